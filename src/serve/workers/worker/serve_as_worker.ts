/**
 * The life of a worker: it serves callers with the configurations from its supervisor, until the
 * supervisor asks it to end.
 *
 * @module
 */
import process from "node:process";
import { ConfigError } from "../../../config/config.ts";
import type { Engines } from "../../engines.ts";
import type { EventLog } from "../../event_log.ts";
import type { Instance } from "../../instance.ts";
import { disablePretenuring } from "../../lifecycle.ts";
import { prepare, type Source } from "../../prepare.ts";
import { ServingHere, type ServingOptions } from "../../serving.ts";
import type { SupervisorConnection } from "./supervisor_connection.ts";

/** Options of a worker. */
interface WorkerOptions extends Omit<ServingOptions, "isShared" | "report"> {
  readonly engines: Engines;
  readonly events: EventLog;
  readonly instance: Instance;
}

/**
 * Serves callers as a worker of a supervisor. Resolves when the worker has ended.
 *
 * @param options The engines of the process, and options that do not change with the configuration
 * @throws {ConfigError} If the first configuration can't be served
 */
export async function serveAsWorker(
  supervisor: SupervisorConnection,
  { engines, events, instance, ...options }: WorkerOptions,
): Promise<void> {
  const { report } = events;
  disablePretenuring();
  const serving = new ServingHere({ ...options, report, isShared: true });
  instance.follow(() => serving.urls);
  const prepareSource = async (source: Source, ports: readonly number[]) => {
    const change = await serving.prepare(await prepare(source, { engines, report }), ports);
    const apply = () => {
      events.use(source);
      change.apply();
    };
    return { ...change, apply };
  };
  const first = await Promise.race([supervisor.source, supervisor.endAsked]);
  if (first === undefined) return; // the supervisor is gone
  const { source, ports, isFirst } = first;
  events.use(source); // what fails at the start is reported in its format too
  try {
    (await prepareSource(source, ports)).apply();
  } catch (error) {
    // The first worker fails together with its supervisor, which ends with text for a person.
    if (isFirst || !(error instanceof ConfigError)) throw error;
    const reason = error.message.replaceAll("\n", "; ");
    report(`a worker could not start: ${reason}`, { event: "worker_failed", reason });
    process.exitCode = 2;
    return;
  }
  const abandonChange = supervisor.onPrepare(prepareSource);
  const stopReports = supervisor.report({
    openExchanges: () => serving.openExchanges,
    isReady: () => !serving.isStarting,
    metrics: () => serving.metrics,
    readLive: (from, to, isBrief) => serving.readLive(from, to, isBrief),
    findExchanges: (query) => serving.findExchanges(query),
  });
  supervisor.listening(serving.urls, source.digest);
  await supervisor.endAsked;
  stopReports();
  abandonChange();
  await serving.close(0);
  await supervisor.reportLast(serving.metrics);
  await engines.close();
  await serving.release();
}
