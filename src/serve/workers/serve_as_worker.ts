/**
 * The life of a worker: it serves callers with the configurations from its supervisor, until the
 * supervisor asks it to end.
 *
 * @module
 */
import type { Engines } from "../engines.ts";
import { disablePretenuring } from "../lifecycle.ts";
import { prepare, type Source } from "../prepare.ts";
import { ServingHere, type ServingOptions } from "../serving.ts";
import type { SupervisorConnection } from "./supervisor_connection.ts";

/**
 * Serves callers as a worker of a supervisor. Resolves when the worker has ended.
 *
 * @param options The engines of the process, and options that do not change with the configuration
 * @throws {ConfigError} If the first configuration can't be served
 */
export async function serveAsWorker(
  supervised: SupervisorConnection,
  { engines, ...options }: Omit<ServingOptions, "isShared"> & { readonly engines: Engines },
): Promise<void> {
  const { report } = options;
  disablePretenuring();
  const serving = new ServingHere({ ...options, isShared: true });
  const prepareSource = async (source: Source, ports: readonly number[]) =>
    await serving.prepare(await prepare(source, { engines, report }), ports);
  const first = await Promise.race([supervised.source, supervised.endAsked]);
  if (first === undefined) return; // the supervisor is gone
  const { source, ports } = first;
  (await prepareSource(source, ports)).apply();
  const abandonChange = supervised.onPrepare(prepareSource);
  const stopReports = supervised.report({
    openExchanges: () => serving.openExchanges,
    isReady: () => !serving.isStarting,
    metrics: () => serving.metrics,
    readLive: (from, to, isBrief) => serving.readLive(from, to, isBrief),
    findExchanges: (query) => serving.findExchanges(query),
  });
  supervised.listening(serving.urls, source.digest);
  await supervised.endAsked;
  stopReports();
  abandonChange();
  await serving.close(0);
  await supervised.reportLast(serving.metrics);
  await engines.close();
  await serving.release();
}
