/**
 * `sallyport serve`.
 *
 * @module
 */
import { availableParallelism } from "node:os";
import process from "node:process";
import { generateGatewayKey } from "../access/gateway_key.ts";
import { KeyAdministration } from "../access/key_administration.ts";
import { MemoryLimiter } from "../access/limits.ts";
import { type Config, ConfigError } from "../config.ts";
import { type ExchangeObserver, type InboundRequest, systemClock } from "../exchange.ts";
import type { Handler } from "../fetch_handler.ts";
import { createGateway, type Gateway } from "../gateway.ts";
import { createAdminHandler } from "../admin/handler.ts";
import { LiveFeed } from "../admin/live_feed.ts";
import { type LivePart, mergeParts } from "../admin/live_report.ts";
import { UsageReports } from "../admin/usage_report.ts";
import { AccessLog } from "../observe/access_log.ts";
import { Metrics } from "../observe/metrics.ts";
import { type MetricsFormat, toMetricsText } from "../observe/metrics_text.ts";
import { createTraces } from "../observe/traces.ts";
import { assemble, type Assembly, resolveServe, runtime, type ServerName } from "../serve/assemble.ts";
import { closeListeners, keepExchangesYoung, openListeners, waitForSignal } from "../serve/lifecycle.ts";
import type { Listener, Serve } from "../serve/listener.ts";
import { callListener } from "../serve/loopback.ts";
import { toStandardOutput } from "../serve/log_output.ts";
import { loadConfig, readTlsFiles } from "../serve/load_config.ts";
import { connectToSupervisor, type Supervised } from "../serve/worker.ts";
import { Workers } from "../serve/workers.ts";
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

/** On a laptop, a gateway without a key makes one that lives as long as the process; it is shown to a person only. */
function withKey(config: Config): Config {
  if (!Array.isArray(config.keys) || config.keys.length > 0) return config;
  if (!process.stdout.isTTY) {
    throw new ConfigError([{
      path: "keys",
      message: "expected at least one gateway key: configure keys, or set SALLYPORT_KEYS",
    }]);
  }
  const key = generateGatewayKey();
  print(`no gateway key is configured; this one lives until the process ends:\n  ${key}\n`);
  return { ...config, keys: [{ id: "this-run", key }] };
}

const MAX_WORKERS = 256;
/** How long the end of the process waits for a reader of the log. Milliseconds. */
const LAST_LINES_MS = 500;
/** How long it waits for who collects traces. Milliseconds. */
const LAST_SPANS_MS = 2000;

/** JSON lines for programs; other lines for a person, who sits at a terminal and not at the end of a pipe. */
function createLog(wanted: Config["log"]): AccessLog | undefined {
  if (wanted === "off") return undefined;
  const format = wanted !== "json" && process.stdout.isTTY ? "pretty" : "json";
  return new AccessLog(format, toStandardOutput((ms, then) => void systemClock.timer(ms, then)), systemClock);
}

function createMetrics({ redis }: Assembly, gateway: () => Gateway, log: AccessLog | undefined): Metrics {
  return new Metrics({
    gateway,
    droppedLogLines: () => log?.dropped ?? 0,
    redis,
    version: VERSION,
    runtime,
    runtimeVersion: process.versions[runtime] ?? "",
  }, systemClock);
}

function readServer(name = "native"): ServerName {
  if (name !== "native" && name !== "node") throw new UsageError("--server takes native or node");
  return name;
}

function readLog(name: string | undefined): Config["log"] | undefined {
  if (name === undefined || name === "json" || name === "pretty" || name === "off") return name;
  throw new UsageError("--log takes json, pretty or off");
}

/** How many workers: `auto` is one a core. */
function readWorkers(text = "1"): number {
  const count = text === "auto" ? availableParallelism() : Number(text);
  if (!Number.isInteger(count) || count < 1 || count > MAX_WORKERS) {
    throw new UsageError(`--workers takes auto or a whole number from 1 to ${MAX_WORKERS}`);
  }
  return count;
}

/** What is served, by this process or by its workers. */
interface Served {
  readonly isReady: boolean;
  readonly openExchanges: number;
  readonly urls: readonly string[];
  /** More for readiness. */
  readonly health?: readonly unknown[];
  /** What is counted, for Prometheus. */
  metrics(format: MetricsFormat): Promise<string>;
  /** What settled from one second up to, but without, another. */
  look(from: number, to: number): Promise<LivePart>;
  /** Takes a call of the playground. */
  readonly handle: Handler["handle"];
}

/** Opens the admin listener, and says what is served where. */
async function openAdmin(served: Served, serve: Serve, { config, assembly }: Loaded): Promise<Listener[]> {
  const { admin, limits: { bodyTimeMs }, providers } = config;
  const { parts: { digest }, keys, limiter, usage } = assembly;
  const handler = createAdminHandler({
    gateway: served,
    keys: new KeyAdministration({ keys, limiter, digest, now: Date.now, providers: Object.keys(providers) }),
    usage: new UsageReports({ usage, config, keys, now: Date.now }),
    token: admin?.token,
    hostname: admin?.hostname,
    digest,
    version: VERSION,
    metrics: (format) => served.metrics(format),
    look: (from, to) => served.look(from, to),
    handle: (request) => served.handle(request),
    providers,
    clock: systemClock,
    health: () => ({ ...assembly.health(), ...(served.health !== undefined && { workers: served.health }) }),
  });
  const admins = await openListeners(handler, serve, admin === undefined ? [] : [{ ...admin, bodyTimeMs }]);
  print(toBanner({ version: VERSION, urls: served.urls, admins: admins.map(({ url }) => url), providers }));
  return admins;
}

interface Loaded {
  readonly config: Config;
  readonly assembly: Assembly;
  readonly addresses: ReturnType<typeof readTlsFiles>;
}

/** One process: it serves callers, as a worker of a supervisor or alone. */
async function serveAlone(
  { config, assembly, addresses }: Loaded,
  serve: Serve,
  supervised?: Supervised,
): Promise<void> {
  keepExchangesYoung();
  const { parts } = assembly;
  const { limits: { bodyTimeMs }, drain } = config;
  const log = createLog(config.log);
  const metrics = createMetrics(assembly, () => gateway, log);
  const traces = createTraces(VERSION, report);
  // Without a token nobody may watch.
  const feed = config.admin?.token === undefined ? undefined : new LiveFeed(config.providers, Date.now);
  const observers = [...parts.observers, bugReporter, metrics, log, feed].filter((each) => each !== undefined);
  const gateway: Gateway = createGateway(config, { ...parts, observers, tracer: traces });
  const look = (from: number, to: number) => feed?.look(gateway, from, to) ?? mergeParts([]);
  const isShared = supervised !== undefined;
  const listeners = await openListeners(
    gateway,
    serve,
    addresses.map((address, index) => ({
      ...address,
      port: supervised?.ports[index] ?? address.port,
      bodyTimeMs,
      isShared,
    })),
  );
  const urls = listeners.map(({ url }) => url);
  if (supervised !== undefined) {
    supervised.listening(urls);
    const stopTelling = supervised.tell({
      open: () => gateway.openExchanges,
      counts: () => metrics.toJson(),
      look,
    });
    await supervised.leave;
    stopTelling();
    await closeListeners(gateway, listeners, { ...drain, delayMs: 0 });
    await supervised.tellLast(metrics.toJson());
    await traces?.flush(LAST_SPANS_MS);
    return await log?.close(LAST_LINES_MS);
  }
  const served: Served = {
    get isReady() {
      return gateway.isReady;
    },
    get openExchanges() {
      return gateway.openExchanges;
    },
    urls,
    metrics: (format) => metrics.toText(format),
    look: (from, to) => Promise.resolve(look(from, to)),
    handle: gateway.handle,
  };
  const admins = await openAdmin(served, serve, { config, assembly, addresses });
  await waitForSignal();
  await closeListeners(gateway, listeners, drain);
  for (const listener of admins) listener.kill();
  await traces?.flush(LAST_SPANS_MS);
  await log?.close(LAST_LINES_MS);
}

/** One process that serves through others. */
async function serveByWorkers(loaded: Loaded, serve: Serve, count: number, env: Record<string, string>): Promise<void> {
  const { config: { drain }, assembly: { limiter, usage } } = loaded;
  const args = process.argv.slice(2);
  const workers = new Workers({
    count,
    args,
    env,
    report,
    limiter: limiter instanceof MemoryLimiter ? limiter : undefined,
    usage,
  });
  try {
    await workers.start();
  } catch {
    workers.kill();
    throw new ConfigError([{ path: "workers", message: "the first worker could not start: it says why above" }]);
  }
  const served = Object.assign(workers, {
    metrics: async (format: MetricsFormat) => toMetricsText(await workers.counts(), format),
    handle: (request: InboundRequest) => callListener(workers.urls[0] ?? "", request),
  });
  const admins = await openAdmin(served, serve, loaded);
  print(`${count} workers\n`);
  let restarting: Promise<void> = Promise.resolve();
  process.on("SIGHUP", () => {
    restarting = restarting.then(() => workers.restart()).then(() => report("all workers were replaced"));
  });
  await waitForSignal();
  workers.drain();
  await new Promise((resolve) => setTimeout(resolve, drain.delayMs));
  await workers.close(drain.limitMs);
  for (const listener of admins) listener.kill();
}

/**
 * Starts the gateway and stays until a signal ends it.
 *
 * @param options The configuration's file
 * @throws {ConfigError} For a mistake in the configuration
 */
export async function serveCommand({ config: file, server, workers, log }: CommandOptions): Promise<void> {
  const serve = await resolveServe(readServer(server));
  const count = readWorkers(workers);
  const supervised = connectToSupervisor();
  const { directory, config: loadedConfig } = loadConfig(file);
  const given = { ...loadedConfig, log: readLog(log) ?? loadedConfig.log };
  const addresses = readTlsFiles({ config: given, directory });
  const config = withKey(given);
  // A key that was made for this run is made once, for all workers.
  const made = Array.isArray(config.keys) && config !== given ? config.keys[0]?.key : undefined;
  const { limiter, usage } = supervised ?? {};
  const assembly = await assemble(config, { directory, report, isServing: true, limiter, usage });
  const loaded: Loaded = { config, assembly, addresses };
  if (count === 1 || supervised !== undefined) await serveAlone(loaded, serve, supervised);
  else await serveByWorkers(loaded, serve, count, made === undefined ? {} : { SALLYPORT_KEYS: made });
  await assembly.close();
}
