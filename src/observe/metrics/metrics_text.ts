/**
 * Metrics of one or several processes as text for Prometheus
 * (https://prometheus.io/docs/instrumenting/exposition_formats/,
 * https://prometheus.io/docs/specs/om/open_metrics_spec/).
 *
 * @module
 */
import type { Aggregation, MetricSnapshot } from "./metric_registry.ts";

/** The two text formats of Prometheus. */
export type MetricsFormat = "text" | "openmetrics";

const sum = (values: readonly number[]): number =>
  values.reduce((total, value) => total + value, 0);

const AGGREGATIONS: Readonly<Record<Aggregation, (values: readonly number[]) => number>> = {
  sum,
  average: (values) => sum(values) / values.length,
  min: (values) => Math.min(...values),
  max: (values) => Math.max(...values),
};

function group<Value>(
  entries: Iterable<readonly [key: string, value: Value]>,
): Map<string, [Value, ...Value[]]> {
  const groups = new Map<string, [Value, ...Value[]]>();
  for (const [key, value] of entries) {
    const values = groups.get(key);
    if (values === undefined) groups.set(key, [value]);
    else values.push(value);
  }
  return groups;
}

/** Merges the metrics of several processes. Each series uses the aggregation of its metric. */
export function mergeMetrics(processes: readonly (readonly MetricSnapshot[])[]): MetricSnapshot[] {
  const named = processes.flat().map((metric) => [metric.name, metric] as const);
  return Array.from(group(named).values(), mergeMetric);
}

/** Merges one metric of several processes. */
function mergeMetric(metrics: [MetricSnapshot, ...MetricSnapshot[]]): MetricSnapshot {
  const [metric] = metrics;
  const aggregate = AGGREGATIONS[metric.aggregation];
  const entries = metrics.flatMap((each) => Object.entries(each.series));
  const series = Array.from(group(entries), ([name, values]) => [name, aggregate(values)]);
  return { ...metric, series: Object.fromEntries(series) };
}

/**
 * Adds the last metrics of an ended process to the sums over earlier ended processes. Their counts
 * stay in the totals, because Prometheus treats a falling total as a restart. Gauges end with their
 * process.
 */
export function addEnded(
  ended: readonly MetricSnapshot[],
  last: readonly MetricSnapshot[],
): MetricSnapshot[] {
  return mergeMetrics([ended, last.filter(({ type }) => type !== "gauge")]);
}

/** Formats metrics. */
export function toMetricsText(metrics: readonly MetricSnapshot[], format: MetricsFormat): string {
  const isOpen = format === "openmetrics";
  const lines: string[] = [];
  for (const { name, help, type, series } of metrics) {
    // In OpenMetrics the suffix belongs to the value, not to the metric.
    const metric = isOpen && type === "counter" ? name.replace(/_total$/, "") : name;
    lines.push(`# HELP ${metric} ${help}`);
    lines.push(`# TYPE ${metric} ${type}`);
    for (const [label, value] of Object.entries(series)) lines.push(`${label} ${value}`);
  }
  if (isOpen) lines.push("# EOF");
  lines.push("");
  return lines.join("\n");
}
