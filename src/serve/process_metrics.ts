/**
 * Metrics of the process itself, with the names of Prometheus' own libraries.
 *
 * @module
 */
import { readdirSync, readFileSync } from "node:fs";
import process from "node:process";
import type { Clock } from "../exchange/clock.ts";
import type { MetricRegistry } from "../observe/metrics/metric_registry.ts";

/** Bucket bounds for the delay of the event loop. Seconds. */
const LAG_BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
/** Interval between two measurements of the delay of the event loop. Milliseconds. */
const LOOK_MS = 500;

/**
 * Queries the operating system. Returns `undefined` if the answer is not available or not
 * permitted.
 */
function ask<Answer>(question: () => Answer): Answer | undefined {
  try {
    return question();
  } catch {
    return undefined;
  }
}

/** Adds memory, processor time, file descriptors and the delay of the event loop. */
export function addProcessMetrics(registry: MetricRegistry, clock: Clock): void {
  const startedAt = Date.now() / 1000 - process.uptime();
  const seconds = (): number => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  };
  const memory = () => process.memoryUsage();
  const countFiles = () => readdirSync("/proc/self/fd").length - 1; // without the folder itself
  const limit = ask(() =>
    Number(/^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1] ?? NaN)
  );
  const add = (name: string, help: string, type: "counter" | "gauge", read: () => number) =>
    registry.read({ name, help, type, read: () => ask(read) });
  add("process_cpu_seconds_total", "Processor time", "counter", seconds);
  add("process_resident_memory_bytes", "Memory in use", "gauge", () => memory().rss);
  add("sallyport_heap_used_bytes", "Memory in use by objects", "gauge", () => memory().heapUsed);
  add("process_open_fds", "Open file descriptors", "gauge", countFiles);
  if (limit !== undefined && limit > 0) {
    add("process_max_fds", "Limit of open file descriptors", "gauge", () => limit);
  }
  registry.read({
    name: "process_start_time_seconds",
    help: "Start of the process, seconds since 1970",
    type: "gauge",
    aggregation: "min",
    read: () => startedAt,
  });
  const lag = registry.histogram(
    { name: "sallyport_event_loop_lag_seconds", help: "Delay of a timer, measured twice a second" },
    LAG_BOUNDS,
  )();
  const look = (): void => {
    const before = clock.monotonic();
    clock.timer(LOOK_MS, () => {
      lag.observe(Math.max(0, clock.monotonic() - before - LOOK_MS) / 1000);
      look();
    });
  };
  look();
}
