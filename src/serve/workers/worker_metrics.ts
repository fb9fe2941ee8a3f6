/**
 * Metrics of the workers as a whole, and of what they take together.
 *
 * @module
 */
import { RECORDING_BYTES } from "../../observe/metrics/durable_metrics.ts";
import type { MetricRegistry, MetricSnapshot } from "../../observe/metrics/metric_registry.ts";

/** The metric of a worker's memory. */
const MEMORY = "process_resident_memory_bytes";
/** The metric of limits that a worker decided without Redis. */
const LOCAL_DECISIONS = "sallyport_limits_local_decisions_total";

/**
 * Reads the number of workers that serve, that should serve, and that ended unexpectedly, and what
 * they share.
 */
export interface WorkerCounts {
  serving(): number;
  wanted(): number;
  deaths(): number;
  /** Memory of the recordings that the workers share; `undefined` before the first one. Bytes. */
  recordingBytes(): number | undefined;
}

/** Adds the metrics of the workers. */
export function addWorkerMetrics(registry: MetricRegistry, counts: WorkerCounts): void {
  const read = (name: string, help: string, type: "counter" | "gauge", get: () => number) =>
    registry.read({ name: `sallyport_${name}`, help, type, read: get });
  read("workers", "Workers that serve", "gauge", counts.serving);
  read("workers_wanted", "Workers that should serve", "gauge", counts.wanted);
  read("worker_deaths_total", "Workers that ended unexpectedly", "counter", counts.deaths);
  registry.read({ ...RECORDING_BYTES, read: counts.recordingBytes });
}

/** Returns the memory of a worker by its metrics. Bytes. */
export function memoryOf(counts: readonly MetricSnapshot[]): number {
  return valueOf(counts, MEMORY);
}

/** Returns the number of limits that a worker decided without Redis, by its metrics. */
export function localDecisionsOf(counts: readonly MetricSnapshot[]): number {
  return valueOf(counts, LOCAL_DECISIONS);
}

function valueOf(counts: readonly MetricSnapshot[], metric: string): number {
  return counts.find(({ name }) => name === metric)?.series[metric] ?? 0;
}
