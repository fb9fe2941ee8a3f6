/**
 * What one or several processes counted, as Prometheus reads it.
 *
 * @module
 */
import {
  AggregatorRegistry,
  type MetricObjectWithValues,
  type MetricValue,
  Registry,
  type RegistryContentType,
} from "prom-client";
import type { MetricJson } from "./instruments.ts";

/** The two forms that Prometheus reads. */
export type MetricsFormat = "text" | "openmetrics";

const TYPES = { text: Registry.PROMETHEUS_CONTENT_TYPE, openmetrics: Registry.OPENMETRICS_CONTENT_TYPE } as const;

type Counts = readonly MetricJson[];

const add = (all: readonly Counts[]): Registry =>
  AggregatorRegistry.aggregate(all as unknown as MetricObjectWithValues<MetricValue<string>>[]);

/** OpenMetrics names a counter without the `_total` that its value has; prom-client adds it, and takes none away. */
const toFamilyName = (metric: MetricJson): MetricJson =>
  metric.type === "counter" ? { ...metric, name: metric.name.replace(/_total$/, "") } : metric;

/**
 * The counts of one or several processes as one.
 *
 * @param all What `toJson` gave in each
 * @param format The form
 * @returns Counters and histograms added up; gauges as each says
 */
export async function toMetricsText(all: readonly Counts[], format: MetricsFormat): Promise<string> {
  const named = format === "openmetrics" ? all.map((counts) => counts.map(toFamilyName)) : all;
  const registry: Registry<RegistryContentType> = add(named);
  registry.setContentType(TYPES[format]);
  return await registry.metrics();
}

/** What processes that are gone had counted: a sum that falls when one ends reads as a restart of all of them. */
export class Totals {
  /** Counters and histograms of all of them. */
  counts: Counts = [];

  /** @param counts What one that has ended told last */
  add(counts: Counts): void {
    const lasting = counts.filter(({ type }) => type !== "gauge");
    const sum = add([this.counts, lasting]).getMetricsAsArray() as unknown as Counts;
    this.counts = sum.map(({ name, help, type, aggregator, values }) => ({ name, help, type, aggregator, values }));
  }
}
