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
import type { Supervised } from "./worker.ts";

/**
 * Serves callers as a worker of a supervisor. Resolves when the worker has ended.
 *
 * @param options The engines of the process, and options that do not change with the configuration
 * @throws {ConfigError} If the first configuration can't be served
 */
export async function serveAsWorker(
  supervised: Supervised,
  { engines, ...options }: Omit<ServingOptions, "isShared"> & { readonly engines: Engines },
): Promise<void> {
  const { report } = options;
  disablePretenuring();
  const serving = new ServingHere({ ...options, isShared: true });
  const prepareSource = async (source: Source, ports: readonly number[]) =>
    await serving.prepare(await prepare(source, { engines, report }), ports);
  const first = await Promise.race([supervised.source, supervised.leave]);
  if (first === undefined) return; // the supervisor is gone
  const { source, ports } = first;
  (await prepareSource(source, ports)).apply();
  const abandonChange = supervised.onPrepare(prepareSource);
  const stopReports = supervised.report({
    open: () => serving.openExchanges,
    isReady: () => !serving.isStarting,
    counts: () => serving.counts,
    look: (from, to, isBrief) => serving.look(from, to, isBrief),
    find: (query) => serving.find(query),
  });
  supervised.listening(serving.urls, source.digest);
  await supervised.leave;
  stopReports();
  abandonChange();
  await serving.close(0);
  await supervised.reportLast(serving.counts);
  await engines.close();
  await serving.release();
}
