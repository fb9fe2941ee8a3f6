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
import { AccessLogs } from "../serve/access_logs.ts";
import { AdminListener } from "../serve/admin_listener.ts";
import { prepareAll } from "../serve/change.ts";
import { resolveServe, type ServerName } from "../serve/compose.ts";
import { Engines } from "../serve/engines.ts";
import { FleetMember } from "../serve/fleet/fleet_member.ts";
import { OwnGateway } from "../serve/fleet/own_gateway.ts";
import { SharedFleet } from "../serve/fleet/shared_fleet.ts";
import { containCrashes, disablePretenuring, waitForSignal } from "../serve/lifecycle.ts";
import type { Serve } from "../serve/listener.ts";
import { prepare, readSource, type Source } from "../serve/prepare.ts";
import { catchHangups, Reloader } from "../serve/reload.ts";
import { type Serving, ServingHere } from "../serve/serving.ts";
import { serveAsWorker } from "../serve/workers/serve_as_worker.ts";
import { Supervisor } from "../serve/workers/supervisor.ts";
import { connectToSupervisor } from "../serve/workers/supervisor_connection.ts";
import { toBanner } from "./banner.ts";
import { formatWarning } from "../config/issue.ts";
import { CommandLineError, print, report, VERSION } from "./command.ts";
import { applyEnvFiles } from "./env_file.ts";
import type { CommandOptions } from "./options.ts";

const MAX_WORKERS = 256;
/** The longest wait at the end of the process for the reader of the last lines. Milliseconds. */
const LAST_LINES_MS = 500;

/**
 * Creates a function that, at a terminal, creates a key for the lifetime of the process and prints
 * it once.
 */
function createKeyMaker(): () => KeyConfig | undefined {
  let made: KeyConfig | undefined;
  return () => {
    if (made !== undefined || !process.stdout.isTTY) return made;
    made = { id: "this-run", key: generateGatewayKey() };
    print(`no gateway key is configured; this one lives until the process ends:\n  ${made.key}\n`);
    return made;
  };
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
}

/** Serves callers until a signal ends the process. Reads the configuration again at each SIGHUP. */
async function serveUntilSignal(context: Context): Promise<void> {
  const { serving, engines, serve, read, count, logs, log } = context;
  const onHangup = catchHangups();
  let providers: Config["providers"] = {};
  const reloader: Reloader = new Reloader({
    read,
    report,
    async prepare(source) {
      const prepared = await prepare(source, { engines, report });
      const steps = [serving, admin, member].map((each) => () => each.prepare(prepared));
      const change = await prepareAll(...steps);
      ({ providers } = prepared.config);
      for (const warning of findMissingWrites(prepared.config)) report(formatWarning(warning));
      return change;
    },
  });
  const inForce = () => reloader.inForce;
  const state: OperatorState = { isDrained: false, watchers: 0 };
  const own = new OwnGateway({ served: serving, version: VERSION, inForce, operators: state });
  const member = new FleetMember(own);
  const fleet = new SharedFleet(own, member);
  const parts = {
    served: serving,
    fleet,
    state,
    serve,
    version: VERSION,
    inForce,
    logs,
    log,
    report,
  };
  const admin = new AdminListener(parts);
  const signal = waitForSignal(); // early: a worker or listener can serve before all have started
  let isEnding = false;
  const start = async () => {
    await reloader.start(read());
    await serving.start();
    if (isEnding) return;
    member.start();
    print(toBanner({ version: VERSION, urls: serving.urls, admins: admin.urls, providers }));
    if (count > 1) print(`${count} workers\n`);
    onHangup(() => void reloader.reload());
  };
  await Promise.race([start(), signal]);
  await signal;
  isEnding = true;
  reloader.end();
  await serving.close();
  await member.leave();
  admin.kill();
  await engines.close();
  await serving.release();
  await logs.close(LAST_LINES_MS);
}

/**
 * Starts the gateway and runs until a signal ends it.
 *
 * @throws {ConfigError} For a mistake in the configuration
 */
export async function serveCommand(command: CommandOptions): Promise<void> {
  const { config: file, server, workers, log: wantedLog } = command;
  containCrashes((text) => report(`contained: ${text}`));
  const serve = await resolveServe(readServer(server));
  const count = readWorkers(workers);
  const log = readLog(wantedLog);
  const supervised = connectToSupervisor();
  const engines = new Engines(supervised);
  const options = { serve, log, version: VERSION, report };
  if (supervised !== undefined) return await serveAsWorker(supervised, { ...options, engines });
  disablePretenuring();
  const logs = new AccessLogs();
  const serving = count === 1
    ? new ServingHere({ ...options, logs, isShared: false })
    : new Supervisor({ engines, count, report });
  const makeKey = createKeyMaker();
  const read = (inForce: string | undefined = file) => {
    applyEnvFiles(command["env-file"]);
    return readSource(inForce, makeKey);
  };
  await serveUntilSignal({ serving, engines, serve, read, count, logs, log });
}
