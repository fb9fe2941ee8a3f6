/**
 * Metrics of exchanges: names, meanings, labels and buckets. `sallyport_*` are the gateway's own; `gen_ai_*` are those
 * of OpenTelemetry's GenAI conventions, in Prometheus's spelling.
 *
 * @module
 */
import type { ExchangeRecord } from "../../exchange/record.ts";
import type { Counter, Histogram, Labelled, MetricRegistry } from "./metric_registry.ts";

/** Bounds of buckets for the gateway's own overhead, and for whole exchanges. Seconds. */
const OVERHEAD_BOUNDS = [...[10, 25, 50, 100, 250, 500].map((us) => us / 1e6), 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1];
const DURATION_BOUNDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
// Bounds that the GenAI conventions recommend.
const FIRST_TOKEN_BOUNDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const TOKEN_TIME_BOUNDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
const TOKEN_BOUNDS = Array.from({ length: 14 }, (_, power) => 4 ** power);

/** Counters and histograms of exchanges with the same labels. */
export interface ExchangeSeries {
  readonly exchanges: Counter;
  readonly duration: Histogram;
  readonly overhead: Histogram;
  readonly firstByte: Histogram;
  readonly bytesIn: Counter;
  readonly bytesOut: Counter;
  /** Set if a replica was called. */
  readonly upstream: Counter | undefined;
  /** Set if a replica was called with a chat completion. */
  readonly chat: ChatSeries | undefined;
}

/** Counters and histograms of forwarded chat completions with the same labels. */
export interface ChatSeries {
  readonly duration: Histogram;
  readonly firstToken: Histogram;
  readonly tokenTime: Histogram;
  readonly inputSize: Histogram;
  readonly outputSize: Histogram;
  readonly input: Counter;
  readonly output: Counter;
  readonly cached: Counter;
  readonly reasoning: Counter;
  readonly unmetered: Counter;
}

/** Metrics of exchanges. */
export interface ExchangeMetrics {
  /** Resolves the labels of an exchange. `model` is the name that may be a label, see {@link ModelNames}. */
  readonly seriesOf: (record: ExchangeRecord, model: string) => ExchangeSeries;
  /** By provider and cause. */
  readonly retries: Labelled<Counter>;
  /** By limit. */
  readonly refused: Labelled<Counter>;
  /** By limit that is in observe mode. */
  readonly observed: Labelled<Counter>;
}

/** @param registry Receives the metrics */
export function createExchangeMetrics(registry: MetricRegistry): ExchangeMetrics {
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
    seriesOf(record, model) {
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

function createChatMetrics(registry: MetricRegistry): (provider: string, model: string, error: string) => ChatSeries {
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
  return (provider, model, error) => ({
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
