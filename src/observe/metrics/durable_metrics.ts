/**
 * Metrics of durable exchanges. Each call that attaches to a durable exchange also counts as an
 * exchange with the operation `exchange.attach`.
 *
 * @module
 */
import type { MetricRegistry } from "./metric_registry.ts";

/** Counts of durable exchanges. */
export interface DurableReport {
  /** Number of running recordings that this process writes. */
  readonly running: number;
  /**
   * Memory of all recordings in this process, in bytes; `undefined` if they are stored elsewhere.
   */
  readonly bytes: number | undefined;
  /** Number of attached callers, by kind of request. A caller that uses long-polls counts once. */
  readonly attached: Readonly<Record<"replay" | "retry" | "resume", number>>;
  /** Number of recordings that were abandoned before their exchange ended, by cause. */
  readonly givenUp: Readonly<Record<"size" | "store" | "lost", number>>;
  /** Number of calls that were repeated because the gateway of the first call had died. */
  readonly restarted: number;
}

/** The metric of the memory of recordings. Added in the process that stores them. */
export const RECORDING_BYTES = {
  name: "sallyport_recordings_bytes",
  help: "Memory of recordings of durable exchanges; limits.recordings bounds it",
  type: "gauge",
} as const;

/**
 * Adds the metrics of durable exchanges.
 *
 * @param report Reads the counts; `undefined` if recording is off
 */
export function addDurableMetrics(
  registry: MetricRegistry,
  report: () => DurableReport | undefined,
): void {
  registry.read({
    name: "sallyport_recordings_running",
    help: "Durable exchanges that run",
    type: "gauge",
    read: () => report()?.running,
  });
  registry.read({ ...RECORDING_BYTES, read: () => report()?.bytes });
  registry.read({
    name: "sallyport_recordings_attached_total",
    help: "Callers attached to a durable exchange: by its address (resume), by a retry while it " +
      "ran, by a replay after",
    type: "counter",
    labels: ["by"],
    read: () => toSeries(report()?.attached),
  });
  registry.read({
    name: "sallyport_recordings_given_up_total",
    help: "Recordings given up: the answer was too large, the store failed or was full, or " +
      "another gateway took it over",
    type: "counter",
    labels: ["cause"],
    read: () => toSeries(report()?.givenUp),
  });
  registry.read({
    name: "sallyport_recordings_restarted_total",
    help: "Calls made again, since the gateway of the first had died: these are billed twice",
    type: "counter",
    read: () => report()?.restarted,
  });
}

const toSeries = (counts: Readonly<Record<string, number>> = {}) =>
  Object.entries(counts).map(([label, count]) => [[label], count] as const);
