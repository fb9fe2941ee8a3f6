/**
 * Metrics of calls to models, with the names of OpenTelemetry's GenAI conventions in Prometheus's
 * spelling. Tokens are reported under the names of two generations. The conventions have replaced
 * `gen_ai_client_token_usage`, but most dashboards still read it.
 *
 * @module
 */
import type { ExchangeRecord, GenAiOperation } from "../../exchange/record.ts";
import type { Counter, Histogram, MetricRegistry } from "./metric_registry.ts";

/** Bounds of durations, as OpenTelemetry's conventions recommend them. Seconds. */
export const DURATION_BOUNDS: readonly number[] = [
  0.01,
  0.02,
  0.04,
  0.08,
  0.16,
  0.32,
  0.64,
  1.28,
  2.56,
  5.12,
  10.24,
  20.48,
  40.96,
  81.92,
];
const FIRST_TOKEN_BOUNDS = [
  0.001,
  0.005,
  0.01,
  0.02,
  0.04,
  0.06,
  0.08,
  0.1,
  0.25,
  0.5,
  0.75,
  1,
  2.5,
  5,
  7.5,
  10,
];
const TOKEN_TIME_BOUNDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
const TOKEN_BOUNDS = Array.from({ length: 14 }, (_, power) => 4 ** power);

/** Modality of counted tokens: providers state only the sum over all modalities. */
const MODALITY = "unknown";

/** Labels of all these metrics. */
export const GEN_AI_LABELS: readonly string[] = [
  "gen_ai_operation_name",
  "gen_ai_provider_name",
  "gen_ai_request_model",
];

/** Metrics of calls to models, all with the same labels. */
export interface GenAiSeries {
  readonly times: TimeSeries;
  readonly tokens: TokenSeries;
}

/** Times of calls: of the request as callers see it, and of the provider call. */
interface TimeSeries {
  readonly request: Histogram;
  readonly firstToken: Histogram;
  readonly tokenTime: Histogram;
  readonly call: Histogram | undefined;
  readonly firstChunk: Histogram | undefined;
}

/** Tokens of calls: their sums, and their distribution under the names of both generations. */
interface TokenSeries {
  readonly inputs: readonly Histogram[];
  readonly outputs: readonly Histogram[];
  readonly sums: Readonly<Record<"input" | "cached" | "output" | "reasoning", Counter>> | undefined;
}

/** Resolves the labels of metrics. */
type Resolve<Series> = (
  operation: GenAiOperation,
  provider: string,
  model: string,
  error: string,
) => Series;

/** Returns functions that create histograms and counters with these labels. */
function createMakers(registry: MetricRegistry) {
  return {
    histogram: (name: string, help: string, bounds: readonly number[], ...more: string[]) =>
      registry.histogram(
        { name: `gen_ai_${name}`, help, labels: [...GEN_AI_LABELS, ...more] },
        bounds,
      ),
    counter: (name: string, help: string) =>
      registry.counter({
        name: `gen_ai_${name}_total`,
        help,
        labels: [...GEN_AI_LABELS, "gen_ai_token_modality"],
      }),
  };
}

function createTimes(registry: MetricRegistry): Resolve<TimeSeries> {
  const { histogram } = createMakers(registry);
  const requestHelp =
    "Time from the first header to the last byte of requests that were forwarded to a model";
  const request = histogram(
    "server_request_duration_seconds",
    requestHelp,
    DURATION_BOUNDS,
    "error_type",
  );
  const firstTokenHelp = "Time from a request's first header to the first event of its stream";
  const firstToken = histogram(
    "server_time_to_first_token_seconds",
    firstTokenHelp,
    FIRST_TOKEN_BOUNDS,
  );
  const tokenTimeHelp = "Time for each output token after a stream's first event";
  const tokenTime = histogram(
    "server_time_per_output_token_seconds",
    tokenTimeHelp,
    TOKEN_TIME_BOUNDS,
  );
  const inferenceHelp =
    "Time from the call of a model to the last byte of its answer, including failed calls before it";
  const inference = histogram(
    "client_inference_duration_seconds",
    inferenceHelp,
    DURATION_BOUNDS,
    "error_type",
  );
  const embeddingsHelp = "Time from the call of a model to the last byte of its embeddings";
  const embeddings = histogram(
    "client_embeddings_duration_seconds",
    embeddingsHelp,
    DURATION_BOUNDS,
    "error_type",
  );
  const firstChunkHelp = "Time from the call of a model to the first event of its stream";
  const firstChunk = histogram(
    "client_inference_time_to_first_chunk_seconds",
    firstChunkHelp,
    DURATION_BOUNDS,
  );
  return (operation, provider, model, error) => {
    const isFetch = operation === "fetch_response";
    const ofModel = operation === "embeddings" ? embeddings : inference;
    const call = isFetch ? undefined : ofModel;
    return {
      request: request(operation, provider, model, error),
      firstToken: firstToken(operation, provider, model),
      tokenTime: tokenTime(operation, provider, model),
      call: call?.(operation, provider, model, error),
      firstChunk: call === inference ? firstChunk(operation, provider, model) : undefined,
    };
  };
}

function createTokens(registry: MetricRegistry): Resolve<TokenSeries> {
  const { histogram, counter } = createMakers(registry);
  const both = histogram(
    "client_token_usage",
    "Tokens of one call",
    TOKEN_BOUNDS,
    "gen_ai_token_type",
  );
  const input = histogram(
    "client_inference_operation_input_tokens",
    "Input tokens of one call",
    TOKEN_BOUNDS,
  );
  const output = histogram(
    "client_inference_operation_output_tokens",
    "Output tokens of one call",
    TOKEN_BOUNDS,
  );
  const embeddedHelp = "Input tokens of one call for embeddings";
  const embedded = histogram(
    "client_embeddings_operation_input_tokens",
    embeddedHelp,
    TOKEN_BOUNDS,
  );
  const inputSum = counter(
    "client_inference_usage_input_tokens",
    "Input tokens, cached ones included",
  );
  const cachedSum = counter(
    "client_inference_usage_cache_read_input_tokens",
    "Input tokens from a provider's cache",
  );
  const outputSum = counter(
    "client_inference_usage_output_tokens",
    "Output tokens, including reasoning",
  );
  const reasoningSum = counter(
    "client_inference_usage_reasoning_output_tokens",
    "Output tokens of reasoning",
  );
  return (operation, provider, model) => {
    const labels = [operation, provider, model] as const;
    const isEmbeddings = operation === "embeddings";
    return {
      inputs: [both(...labels, "input"), (isEmbeddings ? embedded : input)(...labels)],
      outputs: isEmbeddings ? [] : [both(...labels, "output"), output(...labels)],
      sums: isEmbeddings ? undefined : {
        input: inputSum(...labels, MODALITY),
        cached: cachedSum(...labels, MODALITY),
        output: outputSum(...labels, MODALITY),
        reasoning: reasoningSum(...labels, MODALITY),
      },
    };
  };
}

/**
 * Creates the metrics of calls to models.
 *
 * @returns Resolves their labels; the error is empty for a successful call
 */
export function createGenAiMetrics(registry: MetricRegistry): Resolve<GenAiSeries> {
  const timesOf = createTimes(registry);
  const tokensOf = createTokens(registry);
  return (...labels) => ({ times: timesOf(...labels), tokens: tokensOf(...labels) });
}

/** Counts a forwarded call. Counts only stated tokens, as the conventions require. */
export function countGenAi({ times, tokens }: GenAiSeries, record: ExchangeRecord): void {
  const { durationMs, calledMs = 0, firstTokenMs, usage, isEstimated, outcome } = record;
  times.request.observe(durationMs / 1000);
  times.call?.observe((durationMs - calledMs) / 1000);
  if (firstTokenMs !== undefined) {
    times.firstToken.observe(firstTokenMs / 1000);
    times.firstChunk?.observe((firstTokenMs - calledMs) / 1000);
  }
  if (usage === undefined || isEstimated === true) return;
  const { input = 0, output = 0, cached = 0, reasoning = 0 } = usage;
  if (usage.input !== undefined) { for (const sizes of tokens.inputs) sizes.observe(input); }
  if (usage.output !== undefined) { for (const sizes of tokens.outputs) sizes.observe(output); }
  const isWhole = output > 1 && outcome === "ok";
  if (firstTokenMs !== undefined && isWhole) {
    times.tokenTime.observe((durationMs - firstTokenMs) / 1000 / (output - 1));
  }
  tokens.sums?.input.add(input);
  tokens.sums?.cached.add(cached);
  tokens.sums?.output.add(output);
  tokens.sums?.reasoning.add(reasoning);
}
