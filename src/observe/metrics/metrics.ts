/**
 * Metrics for Prometheus (https://prometheus.io/docs/practices/naming/), under the names of OpenTelemetry's GenAI
 * conventions where they have one. No label holds text of a caller, except the name of a model that a provider has
 * answered.
 *
 * @module
 */
import type { ExchangeRecord } from "../../exchange/record.ts";
import type { ExchangeObserver } from "../../exchange/observer.ts";
import {
  type ChatSeries,
  createExchangeMetrics,
  type ExchangeMetrics,
  type ExchangeSeries,
} from "./exchange_metrics.ts";
import type { MetricRegistry, MetricSnapshot } from "./metric_registry.ts";
import { type MetricsFormat, toMetricsText } from "./metrics_text.ts";
import { ModelNames } from "./model_names.ts";

/** Limit of the combinations of labels that are cached. More are possible: models times codes times replicas. */
const MAX_CACHED = 5000;

/** The metrics of one process; counts settled exchanges. */
export class Metrics implements ExchangeObserver {
  readonly #registry: MetricRegistry;
  readonly #metrics: ExchangeMetrics;
  readonly #models: ModelNames = new ModelNames();
  readonly #series = new Map<string, ExchangeSeries>();

  /** @param registry Receives the metrics of exchanges */
  constructor(registry: MetricRegistry) {
    this.#registry = registry;
    this.#metrics = createExchangeMetrics(registry);
  }

  settled(record: ExchangeRecord): void {
    const { provider = "none", retryCause = "unknown", firstByteMs, limit, observedLimit } = record;
    const series = this.#seriesOf(record);
    series.exchanges.add();
    series.duration.observe(record.durationMs / 1000);
    series.overhead.observe(record.overheadMs / 1000);
    if (firstByteMs !== undefined) series.firstByte.observe(firstByteMs / 1000);
    series.bytesIn.add(record.bytesIn);
    series.bytesOut.add(record.bytesOut);
    series.upstream?.add();
    if (series.chat !== undefined) countChat(series.chat, record);
    if (record.retries > 0) this.#metrics.retries(provider, retryCause).add(record.retries);
    if (limit !== undefined) this.#metrics.refused(limit).add();
    if (observedLimit !== undefined) this.#metrics.observed(observedLimit).add();
  }

  /** Returns the metrics as JSON, for another process to merge. */
  toJson(): MetricSnapshot[] {
    return this.#registry.snapshot();
  }

  /** Returns the metrics as text for Prometheus. @param format The format */
  toText(format: MetricsFormat): string {
    return toMetricsText(this.toJson(), format);
  }

  /** Resolves the labels of an exchange. Cached, for there are few combinations and they take a dozen look-ups. */
  #seriesOf(record: ExchangeRecord): ExchangeSeries {
    const { provider, operation, outcome, code, cause, status, stream, replica } = record;
    const model = this.#models.labelOf(record);
    const id = `${provider} ${operation} ${outcome} ${code} ${cause} ${status} ${stream} ${replica} ${model}`;
    const known = this.#series.get(id);
    if (known !== undefined) return known;
    const series = this.#metrics.seriesOf(record, model);
    if (this.#series.size >= MAX_CACHED) this.#series.clear(); // the counts themselves are in the registry
    this.#series.set(id, series);
    return series;
  }
}

/** Counts a chat completion: its tokens, and the times of its answer. */
function countChat(series: ChatSeries, { durationMs, firstTokenMs, usage, outcome, status }: ExchangeRecord): void {
  series.duration.observe(durationMs / 1000);
  if (firstTokenMs !== undefined) series.firstToken.observe(firstTokenMs / 1000);
  if (usage === undefined) {
    if (outcome === "ok" && status === 200) series.unmetered.add();
    return;
  }
  const { total, input = 0, output = total - input, cached = 0, reasoning = 0 } = usage;
  series.input.add(input);
  series.output.add(output);
  series.cached.add(cached);
  series.reasoning.add(reasoning);
  if (usage.input !== undefined) series.inputSize.observe(input);
  if (usage.output !== undefined) series.outputSize.observe(output);
  if (firstTokenMs !== undefined && output > 1 && outcome === "ok") {
    series.tokenTime.observe((durationMs - firstTokenMs) / 1000 / (output - 1));
  }
}
