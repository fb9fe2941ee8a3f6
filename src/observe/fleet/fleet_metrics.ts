/**
 * Metrics of several gateways as one text for Prometheus. Each series has the name of its gateway
 * as `instance`, as in a federation. Prometheus computes the sums, so that a gateway that does not
 * answer leaves a gap instead of a falling sum.
 *
 * @module
 */
import type { MetricSnapshot } from "../metrics/metric_registry.ts";
import { type MetricsFormat, toMetricsText } from "../metrics/metrics_text.ts";
import type { GatewayMetrics } from "./fleet.ts";

/** Form of metric names, and of series with their labels, as Prometheus reads them. */
const METRIC = /^[a-zA-Z_:][\w:]*$/;
const SERIES = /^[a-zA-Z_:][\w:]*(?:\{[^\n\r]*\})?$/;
const HELP = /^[^\n\r]*$/;
const TYPES: readonly unknown[] = ["counter", "gauge", "histogram"];
const AGGREGATIONS: readonly unknown[] = ["sum", "max", "min", "average"];

/**
 * True if a value is a metric and nothing else can be hidden in its text. Anyone with access to
 * Redis can have written it.
 */
function isMetric(value: unknown): value is MetricSnapshot {
  if (typeof value !== "object" || value === null) return false;
  const { name, help, type, aggregation, series }: Partial<MetricSnapshot> = value;
  if (typeof name !== "string" || !METRIC.test(name)) return false;
  if (typeof help !== "string" || !HELP.test(help)) return false;
  if (!TYPES.includes(type) || !AGGREGATIONS.includes(aggregation)) return false;
  return typeof series === "object" && series !== null && Object.entries(series).every(isSeries);
}

function isSeries([name, value]: [string, unknown]): boolean {
  return SERIES.test(name) && typeof value === "number";
}

/** Returns the metrics that a gateway has published. Invalid ones are dropped. */
export function toMetrics(value: unknown): MetricSnapshot[] {
  return Array.isArray(value) ? value.filter(isMetric) : [];
}

/** Adds the label to a series as Prometheus writes it. Names of gateways need no escape. */
function label(series: string, instance: string): string {
  const brace = series.indexOf("{");
  if (brace === -1) return `${series}{instance="${instance}"}`;
  return `${series.slice(0, brace)}{instance="${instance}",${series.slice(brace + 1)}`;
}

function labelAll(
  { series }: MetricSnapshot,
  instance: string,
): (readonly [series: string, value: number])[] {
  return Object.entries(series).map(([name, value]) => [label(name, instance), value] as const);
}

/** Makes the metric that shows whether a gateway has answered. */
function toAnswered(hasAnswered: boolean): MetricSnapshot {
  const name = "sallyport_gateway_answered";
  return {
    name,
    help: "1 if the gateway has answered this scrape through Redis, else 0",
    type: "gauge",
    aggregation: "sum",
    series: { [name]: hasAnswered ? 1 : 0 },
  };
}

/** Formats the metrics of several gateways. */
export function toFleetMetricsText(
  gateways: readonly GatewayMetrics[],
  format: MetricsFormat,
): string {
  const all = new Map<
    string,
    { readonly metric: MetricSnapshot; readonly series: Record<string, number> }
  >();
  const add = (metric: MetricSnapshot, instance: string) => {
    let found = all.get(metric.name);
    if (found === undefined) all.set(metric.name, found = { metric, series: {} });
    for (const [name, value] of labelAll(metric, instance)) found.series[name] = value;
  };
  for (const { name, metrics } of gateways) {
    add(toAnswered(metrics !== undefined), name);
    for (const metric of metrics ?? []) add(metric, name);
  }
  return toMetricsText(
    Array.from(all.values(), ({ metric, series }) => ({ ...metric, series })),
    format,
  );
}
