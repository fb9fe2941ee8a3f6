/**
 * Metrics of the workers as a whole, and of what they take together.
 *
 * @module
 */
import { RECORDING_BYTES } from "../../observe/metrics/durable_metrics.ts";
import type { MetricRegistry, MetricSnapshot } from "../../observe/metrics/metric_registry.ts";

/** The metric of a worker's memory. */
const MEMORY = "process_resident_memory_bytes";

/** Reads the number of workers that serve, that should serve, and that ended unexpectedly, and what they share. */
export interface WorkerCounts {
  serving(): number;
  wanted(): number;
  deaths(): number;
  /** Memory of the recordings that the workers share; `undefined` before the first one. Bytes. */
  recordingBytes(): number | undefined;
}

/** Adds the metrics of the workers. */
export function addWorkerMetrics(
  registry: MetricRegistry,
  { serving, wanted, deaths, recordingBytes }: WorkerCounts,
): void {
  const read = (name: string, help: string, type: "counter" | "gauge", get: () => number) =>
    registry.read({ name: `sallyport_${name}`, help, type, read: get });
  read("workers", "Workers that serve", "gauge", serving);
  read("workers_wanted", "Workers that should serve", "gauge", wanted);
  read("worker_deaths_total", "Workers that ended unexpectedly", "counter", deaths);
  registry.read({ ...RECORDING_BYTES, read: recordingBytes });
}

/** Returns the memory of a worker by its metrics. Bytes. */
export function memoryOf(counts: readonly MetricSnapshot[]): number {
  return counts.find(({ name }) => name === MEMORY)?.series[MEMORY] ?? 0;
}
