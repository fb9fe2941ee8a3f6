/**
 * Metrics of exchanges for Prometheus (https://prometheus.io/docs/practices/naming/). `sallyport_*` are the gateway's
 * own; `gen_ai_*` are those of OpenTelemetry's GenAI conventions, in Prometheus's spelling. No label holds text of a
 * caller, except the name of a model that a provider has answered.
 *
 * @module
 */
import type { ExchangeRecord } from "../../exchange/record.ts";
import type { ExchangeObserver } from "../../exchange/observer.ts";
import type { MetricRegistry, MetricSnapshot } from "./metric_registry.ts";
import { type MetricsFormat, toMetricsText } from "./metrics_text.ts";

/** Bounds of buckets for the gateway's own overhead, and for whole exchanges. Seconds. */
const OVERHEAD_BOUNDS = [...[10, 25, 50, 100, 250, 500].map((us) => us / 1e6), 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1];
const DURATION_BOUNDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
// Bounds that the GenAI conventions recommend.
const FIRST_TOKEN_BOUNDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const TOKEN_TIME_BOUNDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
const TOKEN_BOUNDS = Array.from({ length: 14 }, (_, power) => 4 ** power);

/** Limit of the combinations of labels that are cached for a model. More are possible: codes times replicas. */
const MAX_CACHED = 50;

type LabelFact = "provider" | "operation" | "outcome" | "code" | "cause" | "status" | "stream" | "replica";
/** The facts that make the labels of an exchange, beside its model. */
type LabelFacts = { readonly [Name in LabelFact]: ExchangeRecord[Name] | undefined };

/** Compares facts one by one: a string of all eight took 1 % of a call on Bun (2026-11-22, CPU profile). */
function haveSameLabels(a: LabelFacts, b: ExchangeRecord): boolean {
  return a.provider === b.provider && a.operation === b.operation && a.outcome === b.outcome && a.code === b.code &&
    a.cause === b.cause && a.status === b.status && a.stream === b.stream && a.replica === b.replica;
}

type ExchangeMetrics = ReturnType<typeof createExchangeMetrics>;
/** Counters and histograms of exchanges with the same labels. */
type ExchangeSeries = ReturnType<ExchangeMetrics["seriesOf"]>;
/** Counters and histograms of forwarded chat completions with the same labels. */
type ChatSeries = ReturnType<ReturnType<typeof createChatMetrics>>;

/** The metrics of one process; counts settled exchanges. */
export class Metrics implements ExchangeObserver {
  readonly #registry: MetricRegistry;
  readonly #metrics: ExchangeMetrics;
  readonly #models: ModelNames = new ModelNames();
  /** Series by model. */
  readonly #cache = new Map<string, { readonly labels: LabelFacts; readonly series: ExchangeSeries }[]>();

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
    const model = this.#models.labelOf(record);
    let ofModel = this.#cache.get(model);
    if (ofModel === undefined) this.#cache.set(model, ofModel = []);
    const known = ofModel.find(({ labels }) => haveSameLabels(labels, record));
    if (known !== undefined) return known.series;
    if (ofModel.length >= MAX_CACHED) ofModel.length = 0; // the counts themselves are in the registry
    const { provider, operation, outcome, code, cause, status, stream, replica } = record;
    const series = this.#metrics.seriesOf(record, model);
    ofModel.push({ labels: { provider, operation, outcome, code, cause, status, stream, replica }, series });
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

/** Creates the metrics of exchanges. */
function createExchangeMetrics(registry: MetricRegistry) {
  const counter = (name: string, help: string, ...labels: string[]) =>
    registry.counter({ name: `sallyport_${name}`, help, labels });
  const histogram = (name: string, help: string, bounds: readonly number[], ...labels: string[]) =>
    registry.histogram({ name: `sallyport_${name}`, help, labels }, bounds);
  const ofExchanges = ["provider", "operation", "outcome", "code", "status", "cause"];
  const exchanges = counter("exchanges_total", "Settled exchanges", ...ofExchanges);
  const durationHelp = "Time from a request's first header to the last byte of its answer";
  const duration = histogram("exchange_duration_seconds", durationHelp, DURATION_BOUNDS, "provider", "stream");
  const overheadHelp = "The gateway's own time until the answer began";
  const overhead = histogram("overhead_seconds", overheadHelp, OVERHEAD_BOUNDS, "provider");
  const firstByteHelp = "Time from a request's first header until the provider's answer began";
  const firstByte = histogram("first_byte_seconds", firstByteHelp, DURATION_BOUNDS, "provider", "stream");
  const ofCalls = ["provider", "replica", "result", "cause"];
  const upstream = counter("upstream_results_total", "Results of each exchange's last upstream call", ...ofCalls);
  const retries = counter("upstream_retries_total", "Upstream calls that were repeated", "provider", "cause");
  const bytes = counter("bytes_total", "Bytes of request and response bodies", "provider", "direction");
  const refused = counter("limits_refused_total", "Exchanges that a limit refused", "limit");
  const observedHelp = "Exchanges that a limit in observe mode would have refused";
  const observed = counter("limits_observed_total", observedHelp, "limit");
  const chatSeriesOf = createChatMetrics(registry);
  return {
    retries,
    refused,
    observed,
    /** Resolves the labels of an exchange. */
    seriesOf(record: ExchangeRecord, model: string) {
      const { provider = "none", operation = "none", outcome, code = "none", status, cause = "none", replica } = record;
      const stream = String(record.stream === true);
      const isChat = operation === "chat.completions" && replica !== undefined;
      const result = resultOf(record);
      return {
        exchanges: exchanges(provider, operation, outcome, code, String(status), cause),
        duration: duration(provider, stream),
        overhead: overhead(provider),
        firstByte: firstByte(provider, stream),
        bytesIn: bytes(provider, "in"),
        bytesOut: bytes(provider, "out"),
        upstream: replica === undefined ? undefined : upstream(provider, String(replica), result, cause),
        chat: isChat ? chatSeriesOf(provider, model, result === "2xx" ? "" : result) : undefined,
      };
    },
  };
}

/** Returns the result of a call to a provider: a class of statuses such as `2xx`, or the error's code or outcome. */
function resultOf({ code, outcome, status }: ExchangeRecord): string {
  const isStatus = outcome === "ok" || (outcome === "upstream_error" && status >= 400);
  return code ?? (isStatus ? `${Math.floor(status / 100)}xx` : outcome);
}

/** Creates the metrics of forwarded chat completions. @returns Resolves their labels */
function createChatMetrics(registry: MetricRegistry) {
  const histogram = (name: string, help: string, bounds: readonly number[], ...more: string[]) => {
    const labels = ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", ...more];
    return registry.histogram({ name: `gen_ai_${name}`, help, labels }, bounds);
  };
  const unmetered = registry.counter({
    name: "sallyport_unmetered_exchanges_total",
    help: "Successful chat completions for which the provider stated no usage",
    labels: ["provider"],
  });
  const tokens = registry.counter({
    name: "sallyport_tokens_total",
    help: "Tokens as providers stated them; cached ones are part of the input, reasoning of the output",
    labels: ["provider", "model", "type"],
  });
  const size = histogram("client_token_usage", "Tokens of one completion", TOKEN_BOUNDS, "gen_ai_token_type");
  const durationHelp = "Time from the first header to the last byte of chat completions that were forwarded";
  const duration = histogram("server_request_duration_seconds", durationHelp, DURATION_BOUNDS, "error_type");
  const firstTokenHelp = "Time from a request's first header to the first event of its stream";
  const firstToken = histogram("server_time_to_first_token_seconds", firstTokenHelp, FIRST_TOKEN_BOUNDS);
  const tokenTimeHelp = "Time for each output token after a stream's first event";
  const tokenTime = histogram("server_time_per_output_token_seconds", tokenTimeHelp, TOKEN_TIME_BOUNDS);
  return (provider: string, model: string, error: string) => ({
    duration: duration("chat", provider, model, error),
    firstToken: firstToken("chat", provider, model),
    tokenTime: tokenTime("chat", provider, model),
    inputSize: size("chat", provider, model, "input"),
    outputSize: size("chat", provider, model, "output"),
    input: tokens(provider, model, "input"),
    output: tokens(provider, model, "output"),
    cached: tokens(provider, model, "cached"),
    reasoning: tokens(provider, model, "reasoning"),
    unmetered: unmetered(provider),
  });
}

/**
 * Limit of models with a label of their own; any further one is `other`. A caller can name anything, and each value of a
 * label takes memory for good.
 */
export const MAX_MODELS = 100;
/** Names as providers give them, such as `meta-llama/Llama-3.3-70B-Instruct:free`. */
const NAME = /^[\w.:/@+-]{1,100}$/;

/** Names of models that providers have answered: a provider's 200 makes the requested name a label. */
class ModelNames {
  readonly #known = new Set<string>();

  /**
   * @param record An exchange
   * @returns Its model; `other` if no provider has answered it so far; `none` if the request named none
   */
  labelOf({ model, status, replica }: Pick<ExchangeRecord, "model" | "status" | "replica">): string {
    if (model === undefined) return "none";
    if (this.#known.has(model)) return model;
    const isAnswered = status === 200 && replica !== undefined;
    if (!isAnswered || this.#known.size >= MAX_MODELS || !NAME.test(model)) return "other";
    this.#known.add(model);
    return model;
  }
}
