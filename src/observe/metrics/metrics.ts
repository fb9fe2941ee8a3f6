/**
 * Metrics of exchanges for Prometheus (https://prometheus.io/docs/practices/naming/). `sallyport_*`
 * are the gateway's own metrics. `gen_ai_*` follow OpenTelemetry's GenAI conventions, in
 * Prometheus's spelling. Labels contain no text of a caller, except names of models that a provider
 * has answered for, and the dimensions of attribution that the configuration lists.
 *
 * @module
 */
import { concernOf } from "../../errors/outcomes.ts";
import type { TokenUsage } from "../../exchange/billing.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import type { ExchangeObserver } from "../../exchange/observer.ts";
import { isSuccess } from "../../http/message.ts";
import { countGenAi, createGenAiMetrics, DURATION_BOUNDS } from "./gen_ai_metrics.ts";
import type { MetricRegistry, MetricSnapshot } from "./metric_registry.ts";
import { type MetricsFormat, toMetricsText } from "./metrics_text.ts";

/** Bounds of buckets for the gateway's own overhead, and for whole exchanges. Seconds. */
const OVERHEAD_BOUNDS = [
  ...[10, 25, 50, 100, 250, 500].map((us) => us / 1e6),
  0.001,
  0.0025,
  0.005,
  0.01,
  0.05,
  0.1,
];
/**
 * Limit of the label combinations that are cached for a model. More are possible: codes times
 * replicas.
 */
const MAX_CACHED = 50;

type LabelFact =
  | "provider"
  | "operation"
  | "outcome"
  | "code"
  | "cause"
  | "status"
  | "stream"
  | "replica";
/** The facts that determine the labels of an exchange, in addition to its model. */
type LabelFacts = { readonly [Name in LabelFact]: ExchangeRecord[Name] | undefined };

/**
 * Compares facts one by one. Joining all eight into a text took 1 % of a call on Bun (2026-11-22,
 * CPU profile).
 */
function haveSameLabels(a: LabelFacts, b: ExchangeRecord): boolean {
  return a.provider === b.provider && a.operation === b.operation && a.outcome === b.outcome &&
    a.code === b.code && a.cause === b.cause && a.status === b.status &&
    a.stream === b.stream && a.replica === b.replica;
}

type ExchangeMetrics = ReturnType<typeof createExchangeMetrics>;
/** Counters and histograms of exchanges that have the same labels. */
type ExchangeSeries = ReturnType<ExchangeMetrics["seriesOf"]>;
/** Counters of tokens that have the same labels. */
type TokenSeries = ReturnType<ReturnType<typeof createTokenMetrics>>;

/** The metrics of one process. Counts settled exchanges. */
export class Metrics implements ExchangeObserver {
  readonly #registry: MetricRegistry;
  readonly #metrics: ExchangeMetrics;
  readonly #models: ModelNames = new ModelNames();
  /** Cached series by model. */
  readonly #cache = new Map<
    string,
    { readonly labels: LabelFacts; readonly series: ExchangeSeries }[]
  >();

  constructor(registry: MetricRegistry) {
    this.#registry = registry;
    this.#metrics = createExchangeMetrics(registry);
  }

  settled(record: ExchangeRecord): void {
    const {
      provider = "none",
      operation = "none",
      retryCause = "unknown",
      firstByteMs,
      limit,
      observedLimit,
    } = record;
    const series = this.#seriesOf(record);
    series.exchanges.add();
    series.duration.observe(record.durationMs / 1000);
    series.overhead.observe(record.overheadMs / 1000);
    if (firstByteMs !== undefined) series.firstByte.observe(firstByteMs / 1000);
    series.bytesIn.add(record.bytesIn);
    series.bytesOut.add(record.bytesOut);
    series.upstream?.add();
    if (series.tokens !== undefined) countTokens(series.tokens, record);
    if (series.genAi !== undefined) countGenAi(series.genAi, record);
    if (record.retries > 0) {
      this.#metrics.retries(provider, operation, retryCause).add(record.retries);
    }
    if (limit !== undefined) this.#metrics.refused(limit).add();
    if (observedLimit !== undefined) this.#metrics.observed(observedLimit).add();
  }

  /** Returns the metrics as JSON, for another process to merge. */
  toJson(): MetricSnapshot[] {
    return this.#registry.snapshot();
  }

  /** Returns the metrics as text for Prometheus. */
  toText(format: MetricsFormat): string {
    return toMetricsText(this.toJson(), format);
  }

  /**
   * Resolves the labels of an exchange. Cached, for there are few combinations: to resolve each
   * again took 30 µs more (Node 26 and Bun, 2026-11-26).
   */
  #seriesOf(record: ExchangeRecord): ExchangeSeries {
    const model = this.#models.labelOf(record);
    let ofModel = this.#cache.get(model);
    if (ofModel === undefined) this.#cache.set(model, ofModel = []);
    const known = ofModel.find(({ labels }) => haveSameLabels(labels, record));
    if (known !== undefined) return known.series;
    // Clearing the cache loses no counts: the registry has them.
    if (ofModel.length >= MAX_CACHED) ofModel.length = 0;
    const { provider, operation, outcome, code, cause, status, stream, replica } = record;
    const series = this.#metrics.seriesOf(record, model);
    ofModel.push({
      labels: { provider, operation, outcome, code, cause, status, stream, replica },
      series,
    });
    return series;
  }
}

const NO_TOKENS: TokenUsage = { total: 0 };

/**
 * Counts the tokens of a forwarded call. Estimated tokens are counted separately from stated ones.
 */
function countTokens(series: TokenSeries, record: ExchangeRecord): void {
  const { usage, isEstimated = false, outcome, status } = record;
  const isAnswered = outcome === "ok" && isSuccess(status);
  const isUnstated = usage === undefined || isEstimated;
  if (isAnswered && isUnstated) series.unmetered.add();
  if (isEstimated) return series.estimated.add(usage?.total);
  const { total, input = 0, output = total - input, cached = 0, reasoning = 0 } = usage ??
    NO_TOKENS;
  series.input.add(input);
  series.output.add(output);
  series.cached.add(cached);
  series.reasoning.add(reasoning);
}

/** Creates the counters and histograms of exchanges. */
function createInstruments(registry: MetricRegistry) {
  const counter = (name: string, help: string, ...labels: string[]) =>
    registry.counter({ name: `sallyport_${name}`, help, labels });
  const histogram = (name: string, help: string, bounds: readonly number[], ...labels: string[]) =>
    registry.histogram({ name: `sallyport_${name}`, help, labels }, bounds);
  const ofExchanges = ["provider", "operation", "concern", "outcome", "code", "status", "cause"];
  const ofTimes = ["provider", "operation", "stream"];
  const ofCalls = ["provider", "operation", "replica", "result", "cause"];
  const ofRetries = ["provider", "operation", "cause"];
  const ofBytes = ["provider", "operation", "direction"];
  const durationHelp = "Time from a request's first header to the last byte of its answer";
  const overheadHelp = "Time that the gateway itself needed until the answer began";
  const firstByteHelp = "Time from a request's first header until the provider's answer began";
  const upstreamHelp = "The last call to the provider of each exchange, by its result";
  const retriesHelp = "Calls to a provider that failed and were made again";
  const observedHelp = "Exchanges that a limit in observe mode would have refused";
  return {
    exchanges: counter("exchanges_total", "Exchanges that have ended", ...ofExchanges),
    duration: histogram("exchange_duration_seconds", durationHelp, DURATION_BOUNDS, ...ofTimes),
    overhead: histogram(
      "overhead_seconds",
      overheadHelp,
      OVERHEAD_BOUNDS,
      "provider",
      "operation",
    ),
    firstByte: histogram("first_byte_seconds", firstByteHelp, DURATION_BOUNDS, ...ofTimes),
    upstream: counter("upstream_results_total", upstreamHelp, ...ofCalls),
    retries: counter("upstream_retries_total", retriesHelp, ...ofRetries),
    bytes: counter("bytes_total", "Bytes of request and response bodies", ...ofBytes),
    refused: counter("limits_refused_total", "Exchanges that a limit refused", "limit"),
    observed: counter("limits_observed_total", observedHelp, "limit"),
  };
}

/** Creates the metrics of exchanges. */
function createExchangeMetrics(registry: MetricRegistry) {
  const all = createInstruments(registry);
  const { retries, refused, observed } = all;
  const tokensOf = createTokenMetrics(registry);
  const genAiOf = createGenAiMetrics(registry);
  return {
    retries,
    refused,
    observed,
    /** Resolves the labels of an exchange. */
    seriesOf(record: ExchangeRecord, model: string) {
      const { provider = "none", operation = "none", code = "none", cause = "none" } = record;
      const { outcome, replica, genAi, isMetered } = record;
      const status = String(record.status);
      const stream = String(record.stream === true);
      const concern = concernOf(record);
      const isForwarded = replica !== undefined;
      const result = resultOf(record);
      const error = result === "2xx" ? "" : result;
      return {
        exchanges: all.exchanges(provider, operation, concern, outcome, code, status, cause),
        duration: all.duration(provider, operation, stream),
        overhead: all.overhead(provider, operation),
        firstByte: all.firstByte(provider, operation, stream),
        bytesIn: all.bytes(provider, operation, "in"),
        bytesOut: all.bytes(provider, operation, "out"),
        upstream: isForwarded
          ? all.upstream(provider, operation, String(replica), result, cause)
          : undefined,
        tokens: isForwarded && isMetered === true
          ? tokensOf(provider, operation, model)
          : undefined,
        genAi: isForwarded && genAi !== undefined
          ? genAiOf(genAi, provider, model, error)
          : undefined,
      };
    },
  };
}

/**
 * Returns the result of a provider call: a class of statuses such as `2xx`, or the error's code or
 * outcome.
 */
function resultOf({ code, outcome, status }: ExchangeRecord): string {
  const isStatus = outcome === "ok" || (outcome === "upstream_error" && status >= 400);
  return code ?? (isStatus ? `${Math.floor(status / 100)}xx` : outcome);
}

/**
 * Creates the counters of tokens, and of answers that state no tokens. Returns a resolver of
 * labels.
 */
function createTokenMetrics(registry: MetricRegistry) {
  const unmetered = registry.counter({
    name: "sallyport_unmetered_exchanges_total",
    help: "Complete answers of operations that cost tokens, in which the provider did not state " +
      "the tokens",
    labels: ["provider", "operation"],
  });
  const tokens = registry.counter({
    name: "sallyport_tokens_total",
    help:
      "Tokens that providers stated. The type input includes cached, and output includes reasoning",
    labels: ["provider", "operation", "model", "type"],
  });
  const estimated = registry.counter({
    name: "sallyport_estimated_tokens_total",
    help: "Tokens that the gateway estimated, because the provider did not state the tokens of " +
      "the call, or not all of them",
    labels: ["provider", "operation", "model"],
  });
  return (provider: string, operation: string, model: string) => ({
    estimated: estimated(provider, operation, model),
    input: tokens(provider, operation, model, "input"),
    output: tokens(provider, operation, model, "output"),
    cached: tokens(provider, operation, model, "cached"),
    reasoning: tokens(provider, operation, model, "reasoning"),
    unmetered: unmetered(provider, operation),
  });
}

/**
 * Limit of models that have their own label. Further models are labelled `other`. A caller can send
 * any name, and each value of a label uses memory forever.
 */
export const MAX_MODEL_LABELS = 100;
/** Form of providers' model names, such as `meta-llama/Llama-3.3-70B-Instruct:free`. */
const NAME = /^[\w.:/@+-]{1,100}$/;

/**
 * Names of models that providers have answered for. A requested name becomes a label after a
 * provider answered it with a 2xx.
 */
export class ModelNames {
  readonly #names = new Set<string>();

  /**
   * Returns the label for the model of an exchange: `other` if no provider has answered for it yet,
   * `none` if the request named no model.
   */
  labelOf({ model, status, replica }: ExchangeRecord): string {
    if (model === undefined) return "none";
    if (this.#names.has(model)) return model;
    const isAnswered = isSuccess(status) && replica !== undefined;
    const isNew = this.#names.size < MAX_MODEL_LABELS && NAME.test(model);
    if (!isAnswered || !isNew) return "other";
    this.#names.add(model);
    return model;
  }
}
