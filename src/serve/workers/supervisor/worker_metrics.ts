/**
 * Metrics of all workers together, and of their shared memory.
 *
 * @module
 */
import { RECORDING_BYTES } from "../../../observe/metrics/durable_metrics.ts";
import type { MetricRegistry, MetricSnapshot } from "../../../observe/metrics/metric_registry.ts";

/** The metric of a worker's memory. */
const MEMORY = "process_resident_memory_bytes";
/** The metric of limit decisions that a worker made without Redis. */
const LOCAL_DECISIONS = "sallyport_limits_local_decisions_total";

/**
 * Reads the number of workers that serve, the configured number, the number that ended
 * unexpectedly, and their shared memory.
 */
export interface WorkerCounts {
  serving(): number;
  wanted(): number;
  deaths(): number;
  /** Memory of the workers' shared recordings; `undefined` before the first one. Bytes. */
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

/** Returns the memory of a worker, from its metrics. Bytes. */
export function memoryOf(counts: readonly MetricSnapshot[]): number {
  return valueOf(counts, MEMORY);
}

/** Returns the number of limit decisions that a worker made without Redis, from its metrics. */
export function localDecisionsOf(counts: readonly MetricSnapshot[]): number {
  return valueOf(counts, LOCAL_DECISIONS);
}

function valueOf(counts: readonly MetricSnapshot[], metric: string): number {
  return counts.find(({ name }) => name === metric)?.series[metric] ?? 0;
}
