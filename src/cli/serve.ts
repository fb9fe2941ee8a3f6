/**
 * `sallyport serve`.
 *
 * @module
 */
import { availableParallelism } from "node:os";
import process from "node:process";
import { generateGatewayKey } from "../keys/key_format.ts";
import { type Config, ConfigError } from "../config/config.ts";
import type { GatewayRequest } from "../http/message.ts";
import { systemClock } from "../exchange/clock.ts";
import type { ExchangeObserver } from "../exchange/observer.ts";
import { LiveFeed } from "../observe/live/live_feed.ts";
import { type LivePart, mergeParts } from "../observe/live/live_report.ts";
import type { KeyConfig } from "../config/key.ts";
import { AccessLog } from "../observe/access_log.ts";
import { Metrics } from "../observe/metrics/metrics.ts";
import { type MetricsFormat, toMetricsText } from "../observe/metrics/metrics_text.ts";
import { createTraces } from "../observe/traces.ts";
import { AdminListener, type Served } from "../serve/admin_listener.ts";
import { type RedisReport, resolveServe, runtime, type ServerName } from "../serve/compose.ts";
import { addProcessMetrics } from "../serve/process_metrics.ts";
import { prepareAll } from "../serve/change.ts";
import { Engines } from "../serve/engines.ts";
import { closeListeners, keepExchangesYoung, waitForSignal } from "../serve/lifecycle.ts";
import type { Serve } from "../serve/listener.ts";
import { ListenerSet } from "../serve/listener_set.ts";
import { callListener } from "../serve/workers/loopback.ts";
import { toStandardOutput } from "../serve/log_output.ts";
import { prepare, type Prepared, readSource, type Source } from "../serve/prepare.ts";
import { catchHangups, Reloader } from "../serve/reload.ts";
import { RunningGateway } from "../serve/running_gateway.ts";
import { connectToSupervisor, type Supervised } from "../serve/workers/worker.ts";
import { Workers } from "../serve/workers/supervisor.ts";
import { toBanner } from "./banner.ts";
import { type CommandOptions, print, UsageError, VERSION } from "./command.ts";

/** Tells the operator of bugs: the name of what was thrown and where, without its message, which may quote a caller. */
const bugReporter: ExchangeObserver = {
  settled({ id, outcome, error }) {
    if (outcome !== "failed") return;
    const { name, stack = "" } = error instanceof Error ? error : new Error();
    const places = stack.split("\n").filter((line) => /^\s+at /.test(line)).join("\n");
    print(`sallyport: internal_error in request ${id}: ${name}\n${places}\n`, process.stderr);
  },
};

const report = (text: string): void => print(`sallyport: ${text}\n`, process.stderr);

/** Makes the function that, at a terminal, creates a key for as long as the process lives, and prints it once. */
function createKeyMaker(): () => KeyConfig | undefined {
  let made: KeyConfig | undefined;
  return () => {
    if (made !== undefined || !process.stdout.isTTY) return made;
    made = { id: "this-run", key: generateGatewayKey() };
    print(`no gateway key is configured; this one lives until the process ends:\n  ${made.key}\n`);
    return made;
  };
}

const MAX_WORKERS = 256;
/** The time for which the end of the process waits for a reader of the log. Milliseconds. */
const LAST_LINES_MS = 500;
/** The time for which it waits for the collector of traces. Milliseconds. */
const LAST_SPANS_MS = 2000;

/** The access logs: JSON lines for programs, pretty lines for a person at a terminal. */
class Logs {
  /** One log of each format: its counts stay when another configuration asks for the other format. */
  readonly #logs = new Map<"json" | "pretty", AccessLog>();

  of(wanted: Config["log"]): AccessLog | undefined {
    if (wanted === "off") return undefined;
    const format = wanted !== "json" && process.stdout.isTTY ? "pretty" : "json";
    let log = this.#logs.get(format);
    if (log === undefined) {
      log = new AccessLog(format, toStandardOutput((ms, then) => void systemClock.timer(ms, then)), systemClock);
      this.#logs.set(format, log);
    }
    return log;
  }

  get dropped(): number {
    return Array.from(this.#logs.values()).reduce((sum, { dropped }) => sum + dropped, 0);
  }

  async close(limitMs: number): Promise<void> {
    await Promise.all(Array.from(this.#logs.values(), (log) => log.close(limitMs)));
  }
}

function createMetrics(gateway: RunningGateway, redis: () => ReturnType<RedisReport> | undefined, logs: Logs): Metrics {
  return new Metrics({
    gateway: () => gateway,
    droppedLogLines: () => logs.dropped,
    redis,
    version: VERSION,
    runtime,
    runtimeVersion: process.versions[runtime] ?? "",
  }, (instruments) => addProcessMetrics(instruments, systemClock));
}

function readServer(name = "native"): ServerName {
  if (name !== "native" && name !== "node") throw new UsageError("--server takes native or node");
  return name;
}

function readLog(name: string | undefined): Config["log"] | undefined {
  if (name === undefined || name === "json" || name === "pretty" || name === "off") return name;
  throw new UsageError("--log takes json, pretty or off");
}

/** Reads the number of workers; `auto` is one a core. */
function readWorkers(text = "1"): number {
  const count = text === "auto" ? availableParallelism() : Number(text);
  if (!Number.isInteger(count) || count < 1 || count > MAX_WORKERS) {
    throw new UsageError(`--workers takes auto or a whole number from 1 to ${MAX_WORKERS}`);
  }
  return count;
}

/** Options of `serve` beside the configuration, and the parts that stay when that changes. */
interface Context {
  readonly serve: Serve;
  readonly engines: Engines;
  /** Reads the configuration again. */
  readonly read: (file: string | undefined) => Source;
  /** Format of the log that the command line asks for; `undefined` if it does not. */
  readonly log: Config["log"] | undefined;
  /** Registers the function that is called on SIGHUP. */
  readonly onHangup: (act: () => void) => void;
}

/**
 * Prints the addresses of listeners and providers.
 *
 * @returns Resolves at the signal that ends the process, which may come as soon as somebody has read the addresses
 */
function printServed({ urls }: Served, admin: AdminListener, { config: { providers } }: Prepared): Promise<string> {
  const signal = waitForSignal();
  print(toBanner({ version: VERSION, urls, admins: admin.urls, providers }));
  return signal;
}

/** Reloads the configuration at each SIGHUP until another signal ends the process. */
async function reloadUntil(signal: Promise<string>, reloader: Reloader, { onHangup }: Context): Promise<void> {
  onHangup(() => void reloader.reload());
  await signal;
  reloader.end();
}

/** Creates the parts that serve callers in this process; they stay when the configuration changes. */
function createServing({ serve, log: wantedLog }: Context, supervised: Supervised | undefined) {
  const logs = new Logs();
  const traces = createTraces(VERSION, report);
  let current: Prepared | undefined;
  let feed: LiveFeed | undefined;
  const observe = ({ config }: Prepared) => {
    // Without a token nobody may watch.
    if (config.admin?.token !== undefined) feed ??= new LiveFeed(config.providers, Date.now);
    const watching = config.admin?.token === undefined ? undefined : feed;
    return [bugReporter, metrics, logs.of(wantedLog ?? config.log), watching].filter((each) => each !== undefined);
  };
  const gateway = new RunningGateway({ observe, tracer: traces });
  const metrics = createMetrics(gateway, () => current?.assembly.redis?.(), logs);
  const isShared = supervised !== undefined;
  const listeners = new ListenerSet({
    handler: gateway.handler,
    serve,
    toPath: (index) => `listen[${index}]`,
    report,
  });
  return {
    gateway,
    metrics,
    listeners,
    look: (from: number, to: number): LivePart => feed?.look(gateway, from, to) ?? mergeParts([]),
    prepareListeners({ config: { limits: { bodyTimeMs } }, addresses }: Prepared, ports: readonly number[] = []) {
      return listeners.prepare(
        addresses.map((address, index) => ({ ...address, givenPort: ports[index], bodyTimeMs, isShared })),
      );
    },
    began(prepared: Prepared): void {
      current = prepared;
      feed?.show(prepared.config.providers);
    },
    /** Closes the listeners and the gateway, with the drain times of the configuration in force. */
    async close(delayMs = current?.config.drain.delayMs ?? 0): Promise<void> {
      const { limitMs } = current?.config.drain ?? { limitMs: 0 };
      await closeListeners(gateway, listeners.close(), { delayMs, limitMs });
    },
    async flush(): Promise<void> {
      await traces?.flush(LAST_SPANS_MS);
      await logs.close(LAST_LINES_MS);
    },
  };
}

/** Serves callers as a worker of a supervisor, which hands it the configuration. */
async function serveAsWorker(context: Context, supervised: Supervised): Promise<void> {
  keepExchangesYoung();
  const { gateway, metrics, listeners, look, ...serving } = createServing(context, supervised);
  const { engines } = context;
  const prepareAs = async (source: Source, ports: readonly number[]) => {
    const prepared = await prepare(source, { engines, report });
    let urls: readonly string[] = [];
    const change = await prepareAll(() => gateway.prepare(prepared), async () => {
      const listening = await serving.prepareListeners(prepared, ports);
      ({ urls } = listening);
      return listening;
    });
    const apply = () => {
      change.apply();
      serving.began(prepared);
    };
    return { apply, abandon: change.abandon, urls };
  };
  const source = await Promise.race([supervised.source, supervised.leave]);
  if (source === undefined) return; // the supervisor has gone
  (await prepareAs(source, supervised.ports)).apply();
  supervised.onPrepare(prepareAs);
  supervised.listening(listeners.urls, source.digest);
  const stopTelling = supervised.tell({ open: () => gateway.openExchanges, counts: () => metrics.toJson(), look });
  await supervised.leave;
  stopTelling();
  await serving.close(0);
  await supervised.tellLast(metrics.toJson());
  await serving.flush();
  await engines.close();
  await gateway.release();
}

/** Serves callers in this process alone. */
async function serveAlone(context: Context, source: Source): Promise<void> {
  keepExchangesYoung();
  const { engines, serve } = context;
  const { gateway, metrics, listeners, look, ...serving } = createServing(context, undefined);
  const served: Served = {
    get isReady() {
      return gateway.isReady;
    },
    get openExchanges() {
      return gateway.openExchanges;
    },
    get urls() {
      return listeners.urls;
    },
    metrics: (format) => metrics.toText(format),
    look: (from, to) => Promise.resolve(look(from, to)),
    handle: (request) => gateway.handler.handle(request),
  };
  const signals: Promise<string>[] = [];
  const reloader: Reloader = new Reloader({
    read: context.read,
    report,
    async prepare(next) {
      const prepared = await prepare(next, { engines, report });
      return await prepareAll(
        () => gateway.prepare(prepared),
        () => serving.prepareListeners(prepared),
        () => admin.prepare(prepared),
        () =>
          Promise.resolve({
            apply() {
              serving.began(prepared);
              if (signals.length === 0) signals.push(printServed(served, admin, prepared));
            },
            abandon: () => Promise.resolve(),
          }),
      );
    },
  });
  const admin = new AdminListener({ served, serve, version: VERSION, inForce: () => reloader.inForce, report });
  await reloader.start(source);
  await reloadUntil(Promise.race(signals), reloader, context);
  await serving.close();
  admin.kill();
  await serving.flush();
  await engines.close();
  await gateway.release();
}

/** Serves callers through worker processes. */
async function serveByWorkers(context: Context, source: Source, count: number): Promise<void> {
  const { engines, serve } = context;
  let current: Prepared | undefined;
  const usage = {
    add: (rows: Parameters<Prepared["assembly"]["usage"]["add"]>[0]) => current?.assembly.usage.add(rows),
  };
  const workers = new Workers({ count, args: process.argv.slice(2), report, limiter: engines.limiter, usage });
  const served = Object.assign(workers, {
    metrics: async (format: MetricsFormat) => toMetricsText(await workers.counts(), format),
    handle: (request: GatewayRequest) => callListener(workers.urls[0] ?? "", request),
  });
  const admin = new AdminListener({ served, serve, version: VERSION, inForce: () => reloader.inForce, report });
  const reloader: Reloader = new Reloader({
    read: context.read,
    report,
    async prepare(next) {
      const prepared = await prepare(next, { engines, report });
      const own = {
        apply() {
          const before = current;
          current = prepared;
          const begun = prepared.assembly.begin();
          void begun.then(() => before?.assembly.close());
        },
        abandon: () => prepared.assembly.close(),
      };
      return await prepareAll(
        () => Promise.resolve(own),
        () => admin.prepare(prepared),
        () => workers.prepare(next),
      );
    },
  });
  await reloader.start(source);
  try {
    await workers.start(source);
  } catch {
    workers.kill();
    throw new ConfigError([{ path: "workers", message: "the first worker could not start: it says why above" }]);
  }
  if (current === undefined) throw new Error("Cannot serve: no configuration is in force");
  const signal = printServed(served, admin, current);
  print(`${count} workers\n`);
  await reloadUntil(signal, reloader, context);
  workers.drain();
  const { delayMs, limitMs } = current?.config.drain ?? { delayMs: 0, limitMs: 0 };
  await new Promise((resolve) => setTimeout(resolve, delayMs));
  await workers.close(limitMs);
  admin.kill();
  await engines.close();
  await current?.assembly.close();
}

/**
 * Starts the gateway and stays until a signal ends it.
 *
 * @param options The configuration's file, the server, the number of workers, and the log
 * @throws {ConfigError} For a mistake in the configuration
 */
export async function serveCommand({ config: file, server, workers, log }: CommandOptions): Promise<void> {
  const serve = await resolveServe(readServer(server));
  const count = readWorkers(workers);
  const supervised = connectToSupervisor();
  const makeKey = createKeyMaker();
  const context: Context = {
    serve,
    engines: new Engines(supervised),
    read: (inForce) => readSource(inForce ?? file, makeKey),
    log: readLog(log),
    onHangup: supervised === undefined ? catchHangups() : () => {},
  };
  if (supervised !== undefined) return await serveAsWorker(context, supervised);
  const source = context.read(undefined);
  if (count === 1) await serveAlone(context, source);
  else await serveByWorkers(context, source, count);
}
