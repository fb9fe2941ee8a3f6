/**
 * `sallyport serve`.
 *
 * @module
 */
import { availableParallelism } from "node:os";
import process from "node:process";
import { findMissingWrites } from "../config/cache_write_prices.ts";
import type { Config } from "../config/config.ts";
import type { KeyConfig } from "../config/key.ts";
import { generateGatewayKey } from "../keys/key_format.ts";
import type { OperatorState } from "../admin/api/operator_actions.ts";
import { runtime, runtimeVersion } from "../runtime.ts";
import { AccessLogs } from "../serve/access_logs.ts";
import { AdminListener } from "../serve/admin_listener.ts";
import { prepareAll } from "../serve/change.ts";
import { resolveServe, type ServerName } from "../serve/compose.ts";
import { Engines } from "../serve/engines.ts";
import { FleetPublisher } from "../serve/fleet/fleet_publisher.ts";
import { ThisGateway } from "../serve/fleet/this_gateway.ts";
import { RedisFleet } from "../serve/fleet/redis_fleet.ts";
import { EventLog } from "../serve/event_log.ts";
import { Instance } from "../serve/instance.ts";
import { containCrashes, disablePretenuring, waitForSignal } from "../serve/lifecycle.ts";
import type { Serve } from "../serve/listener.ts";
import { prepare, type Prepared, readSource, type Source } from "../serve/prepare.ts";
import { catchHangups, Reloader } from "../serve/reload.ts";
import { type Serving, ServingHere } from "../serve/serving.ts";
import { serveAsWorker } from "../serve/workers/worker/serve_as_worker.ts";
import { Supervisor } from "../serve/workers/supervisor/supervisor.ts";
import { connectToSupervisor } from "../serve/workers/worker/supervisor_connection.ts";
import { toBanner } from "./banner.ts";
import { formatDuration } from "../config/units.ts";
import { formatWarning } from "../config/issue.ts";
import { CommandLineError, print, report, VERSION } from "./command.ts";
import { applyEnvFiles } from "./env_file.ts";
import type { CommandOptions } from "./options.ts";

const MAX_WORKERS = 256;
/** The longest wait at the end of the process for the reader of the last lines. Milliseconds. */
const LAST_LINES_MS = 500;

/** The key that a process creates at a terminal if none is configured. */
class RunKey {
  #made: KeyConfig | undefined;

  /** Returns the key; `undefined` without a person who could read it. */
  make(): KeyConfig | undefined {
    if (process.stdout.isTTY) this.#made ??= { id: "this-run", key: generateGatewayKey() };
    return this.#made;
  }

  /** The lines that show the key to a person. */
  get text(): string {
    if (this.#made === undefined) return "";
    const { key } = this.#made;
    return `no gateway key is configured; this one lives until the process ends:\n  ${key}\n`;
  }
}

function readServer(name: string | undefined): ServerName | undefined {
  if (name === undefined) return undefined;
  if (name === "native" || name === "node") return name;
  throw new CommandLineError("--server expects native or node");
}

/** Formats of the log on the command line. */
const LOGS = ["json", "debug", "pretty", "off"] as const;

function readLog(name: string | undefined): Config["log"] | undefined {
  const log = LOGS.find((each) => each === name);
  if (name === undefined || log !== undefined) return log;
  throw new CommandLineError("--log expects json, debug, pretty or off");
}

/** Reads the number of workers. `auto` is one per core. */
function readWorkers(text = "1"): number {
  const count = text === "auto" ? availableParallelism() : Number(text);
  const isInRange = count >= 1 && count <= MAX_WORKERS;
  if (Number.isInteger(count) && isInRange) return count;
  throw new CommandLineError(`--workers expects auto or a whole number from 1 to ${MAX_WORKERS}`);
}

/** Parts of `serve` that do not change with the configuration. */
interface Context {
  readonly serving: Serving;
  readonly engines: Engines;
  /** The runtime's listener. */
  readonly serve: Serve;
  /** Reads the configuration. @param inForce The active file; `undefined` at the start */
  readonly read: (inForce?: string) => Source;
  /** Number of worker processes; 1 for none. */
  readonly count: number;
  readonly logs: AccessLogs;
  /** Format of the log from the command line; `undefined` if not set. */
  readonly log: Config["log"] | undefined;
  readonly events: EventLog;
  readonly instance: Instance;
  readonly runKey: RunKey;
}

/** Reports that the gateway serves, and shows its addresses to a person. */
function reportStart(context: Context, admins: readonly string[], config: Config): void {
  const { serving: { urls }, events, runKey, count } = context;
  const { providers } = config;
  const workers = count > 1 ? [`${count} workers`] : [];
  const lines = [...toBanner({ version: VERSION, urls, admins, providers }), ...workers];
  const banner = `${runKey.text}${lines.join("\n")}\n`;
  if (!events.isJson) return print(banner); // in a text log, it is the report
  events.report(lines.join("; "), {
    event: "started",
    version: VERSION,
    runtime: `${runtime} ${runtimeVersion}`,
    workers: count,
    listen: urls,
    admin: admins,
  });
  if (process.stderr.isTTY) print(banner, process.stderr);
}

/**
 * Ends serving, and reports the beginning and the end of that.
 *
 * @param current The active configuration; `undefined` if the signal arrived before there was one
 */
async function drain(context: Context, signal: string, current?: Prepared): Promise<void> {
  const { serving, events: { report } } = context;
  const { delayMs: configuredMs, limitMs } = current?.config.drain ?? { delayMs: 0, limitMs: 0 };
  const isAtTerminal = [process.stdin, process.stdout, process.stderr].some(({ isTTY }) => isTTY);
  const isCtrlC = signal === "SIGINT" && isAtTerminal;
  // A person waits, and only a configured delay shows that a load balancer needs it.
  const delayMs = isCtrlC && current?.source.hasDrainDelay !== true ? 0 : configuredMs;
  const { openExchanges } = serving;
  const delay = delayMs === 0 ? "" : `accepts calls for ${formatDuration(delayMs)} more, then `;
  const again = isCtrlC ? "Ctrl-C again" : "a second signal";
  report(
    `${signal}: the gateway ${delay}waits at most ${formatDuration(limitMs)} for open exchanges ` +
      `(now ${openExchanges}); ${again} ends it at once`,
    { event: "draining", signal, openExchanges, delayMs, limitMs },
  );
  const startedAt = performance.now();
  await serving.close(delayMs);
  const durationMs = Math.round(performance.now() - startedAt);
  report(`ended after ${durationMs / 1000} s of draining`, { event: "ended", signal, durationMs });
}

/** Serves callers until a signal ends the process. Reads the configuration again at each SIGHUP. */
async function serveUntilSignal(context: Context): Promise<void> {
  const { serving, engines, serve, read, logs, log, events, instance } = context;
  const { report } = events;
  const onHangup = catchHangups();
  let current: Prepared | undefined;
  const reloader: Reloader = new Reloader({
    read,
    report,
    async prepare(source) {
      const prepared = await prepare(source, { engines, report });
      const steps = [serving, admin, publisher].map((each) => () => each.prepare(prepared));
      const change = await prepareAll(...steps, () => events.prepare(source));
      current = prepared;
      for (const warning of findMissingWrites(prepared.config)) {
        report(formatWarning(warning), { event: "configuration_warning" });
      }
      return change;
    },
  });
  const inForce = () => reloader.inForce;
  const state: OperatorState = { isDrained: false, watchers: 0 };
  const facts = { served: serving, version: VERSION, inForce };
  const own = new ThisGateway({ ...facts, instance, operators: state });
  const publisher = new FleetPublisher(own);
  const fleet = new RedisFleet(own, publisher);
  const admin = new AdminListener({ ...facts, fleet, state, serve, logs, log, report });
  const signal = waitForSignal(); // early: a worker or listener can serve before all have started
  let isEnding = false;
  const start = async () => {
    const source = read();
    events.use(source); // what fails at the start is reported in its format too
    await reloader.start(source);
    await serving.start();
    if (isEnding || current === undefined) return;
    publisher.start();
    reportStart(context, admin.urls, current.config);
    onHangup(() => void reloader.reload());
  };
  await Promise.race([start(), signal]);
  const name = await signal;
  isEnding = true;
  reloader.end();
  await drain(context, name, current);
  await publisher.leave();
  admin.kill();
  await engines.close();
  await serving.release();
}

/**
 * Starts the gateway and runs until a signal ends it.
 *
 * @throws {ConfigError} For a mistake in the configuration
 */
export async function serveCommand(command: CommandOptions): Promise<void> {
  const { config: file, server, workers, log: wantedLog } = command;
  const log = readLog(wantedLog);
  const supervisor = connectToSupervisor();
  const logs = new AccessLogs();
  const instance = new Instance();
  const worker = supervisor === undefined ? undefined : process.pid;
  const events = new EventLog({ logs, instance, log, worker, say: report });
  containCrashes(events.report);
  const serve = await resolveServe(readServer(server));
  const count = readWorkers(workers);
  const engines = new Engines(supervisor);
  const { failedWrites } = engines;
  const options = { serve, log, logs, version: VERSION, report: events.report, failedWrites };
  try {
    if (supervisor !== undefined) {
      return await serveAsWorker(supervisor, { ...options, engines, events, instance });
    }
    disablePretenuring();
    const serving = count === 1
      ? new ServingHere({ ...options, isShared: false })
      : new Supervisor({ engines, count, report: events.report });
    instance.follow(() => serving.urls);
    const runKey = new RunKey();
    const read = (inForce: string | undefined = file) => {
      applyEnvFiles(command["env-file"]);
      return readSource(inForce, () => runKey.make());
    };
    const context = { serving, engines, serve, read, count, logs, log, events, instance, runKey };
    await serveUntilSignal(context);
  } finally {
    await logs.close(LAST_LINES_MS);
  }
}
