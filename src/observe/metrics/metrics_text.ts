/**
 * Metrics of one or several processes as text for Prometheus.
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

/** The two text formats of Prometheus. */
export type MetricsFormat = "text" | "openmetrics";

const TYPES = { text: Registry.PROMETHEUS_CONTENT_TYPE, openmetrics: Registry.OPENMETRICS_CONTENT_TYPE } as const;

type Counts = readonly MetricJson[];

const add = (all: readonly Counts[]): Registry =>
  AggregatorRegistry.aggregate(all as unknown as MetricObjectWithValues<MetricValue<string>>[]);

/** Removes `_total` from a counter's name: OpenMetrics has it at the value only, where prom-client adds it. */
const toFamilyName = (metric: MetricJson): MetricJson =>
  metric.type === "counter" ? { ...metric, name: metric.name.replace(/_total$/, "") } : metric;

/**
 * Merges the metrics of one or several processes into one text.
 *
 * @param all The result of `toJson` in each process
 * @param format The format
 * @returns Counters and histograms added up; gauges combined by their aggregator
 */
export async function toMetricsText(all: readonly Counts[], format: MetricsFormat): Promise<string> {
  const named = format === "openmetrics" ? all.map((counts) => counts.map(toFamilyName)) : all;
  const registry: Registry<RegistryContentType> = add(named);
  registry.setContentType(TYPES[format]);
  return await registry.metrics();
}

/** Counts of ended processes. They stay in the sums: Prometheus takes a sum that falls for a restart. */
export class Totals {
  /** Counters and histograms of all ended processes. */
  counts: Counts = [];

  /** Adds an ended process. @param counts Its last metrics */
  add(counts: Counts): void {
    const lasting = counts.filter(({ type }) => type !== "gauge");
    const sum = add([this.counts, lasting]).getMetricsAsArray() as unknown as Counts;
    this.counts = sum.map(({ name, help, type, aggregator, values }) => ({ name, help, type, aggregator, values }));
  }
}
