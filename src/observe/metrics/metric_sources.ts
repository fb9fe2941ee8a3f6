/**
 * Metrics that are read on demand: open exchanges, replicas, Redis and the build.
 *
 * @module
 */
import type { MetricRegistry, ReadMetricConfig } from "./metric_registry.ts";

/** State of one replica of a provider. */
export interface ReplicaState {
  readonly provider: string;
  /** Index among the provider's replicas. */
  readonly replica: number;
  /** True while the replica is ejected after failures. */
  readonly isEjected: boolean;
  /** Number of ejections so far. */
  readonly ejections: number;
}

/** Sources of the metrics that are read on demand. */
export interface MetricSources {
  /** Reads the open exchanges and streams, and the state of the replicas. */
  readonly gateway: () => {
    readonly openExchanges: number;
    readonly openStreams: number;
    readonly replicas: readonly ReplicaState[];
  };
  readonly droppedLogLines: () => number;
  /**
   * Reads the number of limit decisions made without Redis, and of failed Redis calls; `undefined`
   * without Redis.
   */
  readonly redis?:
    | (() =>
      | { readonly localDecisions: number; readonly failures: number; readonly isUp: boolean }
      | undefined)
    | undefined;
  /** Reads the used part of each budget, by subject and unit. */
  readonly budgets?:
    | (() => Iterable<readonly [labels: readonly string[], ratio: number]>)
    | undefined;
  readonly version: string;
  readonly runtime: string;
  readonly runtimeVersion: string;
}

/** Adds a metric. The first argument is its name without the common prefix. */
type AddMetric = (
  name: string,
  help: string,
  read: ReadMetricConfig["read"],
  more?: Partial<ReadMetricConfig>,
) => void;

/** Functions that add metrics, by type. */
interface Adders {
  readonly counter: AddMetric;
  readonly gauge: AddMetric;
}

function createAdders(registry: MetricRegistry): Adders {
  const addAs = (type: "counter" | "gauge"): AddMetric => (name, help, read, more = {}) =>
    registry.read({ name: `sallyport_${name}`, help, type, read, ...more });
  return { counter: addAs("counter"), gauge: addAs("gauge") };
}

function addReplicas(
  { counter, gauge }: Adders,
  replicas: () => readonly ReplicaState[],
): void {
  const labels = ["provider", "replica"];
  const ofReplicas = (get: (state: ReplicaState) => number) => () =>
    replicas().map((state) => [[state.provider, String(state.replica)], get(state)] as const);
  const ejectedHelp =
    "1 while the replica is paused after failures; with several workers their share";
  gauge("replica_ejected", ejectedHelp, ofReplicas(({ isEjected }) => Number(isEjected)), {
    labels,
    aggregation: "average",
  });
  const ejections = ofReplicas((state) => state.ejections);
  counter("replica_ejections_total", "Pauses of the replica", ejections, { labels });
}

function addRedis(
  { counter, gauge }: Adders,
  redis: NonNullable<MetricSources["redis"]>,
): void {
  const isUp = (): number | undefined => {
    const state = redis();
    return state && Number(state.isUp);
  };
  gauge("redis_up", "1 if the last call of Redis succeeded, else 0", isUp, { aggregation: "min" });
  counter("redis_failures_total", "Failed calls of Redis", () => redis()?.failures);
  const localHelp = "Decisions on limits that were made without Redis";
  counter("limits_local_decisions_total", localHelp, () => redis()?.localDecisions);
}

/** Adds the number of failed writes of files, by the kind of their content. */
export function addFileMetrics(
  registry: MetricRegistry,
  failedWrites: ReadonlyMap<string, number>,
): void {
  const help = "Failed writes of a file, for example on a full disk; each is tried again";
  const read = () => Array.from(failedWrites, ([file, count]) => [[file], count] as const);
  createAdders(registry).counter("file_write_failures_total", help, read, { labels: ["file"] });
}

/** Adds the metrics that are read on demand. */
export function addSources(registry: MetricRegistry, sources: MetricSources): void {
  const { gateway, redis, budgets } = sources;
  const adders = createAdders(registry);
  const { counter, gauge } = adders;
  gauge("open_exchanges", "Open exchanges", () => gateway().openExchanges);
  gauge("open_streams", "Open exchanges that are streams", () => gateway().openStreams);
  const droppedHelp = "Lines of the access log that could not be written";
  counter("log_dropped_lines_total", droppedHelp, sources.droppedLogLines);
  addReplicas(adders, () => gateway().replicas);
  if (redis !== undefined) addRedis(adders, redis);
  if (budgets !== undefined) {
    // Workers share their limits, so the highest value of any worker is the latest.
    const more = { labels: ["subject", "unit"], aggregation: "max" } as const;
    const usedHelp = "Used part of a budget in its period: 1 is all of it";
    gauge("budget_used_ratio", usedHelp, budgets, more);
  }
  const build = [sources.version, sources.runtime, sources.runtimeVersion];
  gauge("build_info", "Version of the gateway and its runtime", () => [[build, 1]], {
    labels: ["version", "runtime", "runtime_version"],
    aggregation: "max",
  });
}
