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
const [METRIC, SERIES] = [/^[a-zA-Z_:][\w:]*$/, /^[a-zA-Z_:][\w:]*(?:\{[^\n\r]*\})?$/];

/**
 * True if a value is a metric and nothing else can be hidden in its text. Anyone with access to
 * Redis can have written it.
 */
function isMetric(value: unknown): value is MetricSnapshot {
  const { name = "", help = "\n", type = "", aggregation = "", series } = (value ?? {}) as Partial<
    MetricSnapshot
  >;
  if (![name, help, type, aggregation].every((text) => typeof text === "string")) return false;
  return METRIC.test(name) && /^[^\n\r]*$/.test(help) &&
    ["counter", "gauge", "histogram"].includes(type) &&
    ["sum", "max", "min", "average"].includes(aggregation) && typeof series === "object" &&
    series !== null &&
    Object.entries(series).every(([each, number]) =>
      SERIES.test(each) && typeof number === "number"
    );
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
    const answered = "sallyport_gateway_answered";
    const help = "1 if the gateway has answered this scrape through Redis, else 0";
    const value = metrics === undefined ? 0 : 1;
    add(
      { name: answered, help, type: "gauge", aggregation: "sum", series: { [answered]: value } },
      name,
    );
    for (const metric of metrics ?? []) add(metric, name);
  }
  return toMetricsText(
    Array.from(all.values(), ({ metric, series }) => ({ ...metric, series })),
    format,
  );
}
