/**
 * Metrics of settled exchanges: names, meanings, labels and buckets. `sallyport_*` are the gateway's own; `gen_ai_*`
 * are those of OpenTelemetry's GenAI conventions, in Prometheus's spelling.
 *
 * @module
 */
import type { Buckets, Instruments, SeriesOf, Tally } from "./instruments.ts";

/** Prefix of the gateway's own metrics. */
export const PREFIX = "sallyport_";

/** Bounds of buckets for the gateway's own overhead, and for whole exchanges. Seconds. */
const OVERHEAD_BOUNDS = [...[10, 25, 50, 100, 250, 500].map((us) => us / 1e6), 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1];
const DURATION_BOUNDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
// What the GenAI conventions ask for.
const FIRST_TOKEN_BOUNDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const TOKEN_TIME_BOUNDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
const TOKEN_BOUNDS = Array.from({ length: 14 }, (_, power) => 4 ** power);

/** Metrics of exchanges. */
export interface MetricFamilies {
  readonly exchanges: SeriesOf<Tally>;
  readonly durations: SeriesOf<Buckets>;
  readonly overheads: SeriesOf<Buckets>;
  readonly firstBytes: SeriesOf<Buckets>;
  readonly upstream: SeriesOf<Tally>;
  readonly retries: SeriesOf<Tally>;
  readonly bytes: SeriesOf<Tally>;
  readonly refused: SeriesOf<Tally>;
  readonly observed: SeriesOf<Tally>;
}

/** @param instruments Where they are made */
export function createFamilies(instruments: Instruments): MetricFamilies {
  const counter = (name: string, help: string, ...labels: string[]) =>
    instruments.counter({ name: PREFIX + name, help, labels });
  const histogram = (name: string, help: string, bounds: readonly number[], ...labels: string[]) =>
    instruments.histogram({ name: PREFIX + name, help, labels }, bounds);
  const ofStreams = ["provider", "stream"];
  const ofExchanges = ["provider", "operation", "outcome", "code", "status", "cause"];
  const overhead = "What the gateway itself took until the answer began";
  const observed = "Exchanges that a limit would have refused, were it enforced";
  return {
    exchanges: counter("exchanges_total", "Settled exchanges", ...ofExchanges),
    durations: histogram("exchange_duration_seconds", "First header to last byte", DURATION_BOUNDS, ...ofStreams),
    overheads: histogram("overhead_seconds", overhead, OVERHEAD_BOUNDS, "provider"),
    firstBytes: histogram("first_byte_seconds", "Until the provider's answer began", DURATION_BOUNDS, ...ofStreams),
    upstream: counter(
      "upstream_results_total",
      "Last calls of exchanges to a replica",
      "provider",
      "replica",
      "result",
      "cause",
    ),
    retries: counter("upstream_retries_total", "Calls that were made a second time", "provider", "cause"),
    bytes: counter("bytes_total", "Bytes of bodies", "provider", "direction"),
    refused: counter("limits_refused_total", "Exchanges that a limit refused", "limit"),
    observed: counter("limits_observed_total", observed, "limit"),
  };
}

/** Tokens of one provider and model. */
export interface TokenSeries {
  readonly input: Tally;
  readonly output: Tally;
  readonly inputSizes: Buckets;
  readonly outputSizes: Buckets;
}

/** Metrics of models: tokens, and times of completions. */
export interface GenAiFamilies {
  readonly unmetered: SeriesOf<Tally>;
  readonly tokens: SeriesOf<Tally>;
  readonly tokenSeries: (provider: string, model: string) => TokenSeries;
  readonly chats: SeriesOf<Buckets>;
  readonly firstTokens: SeriesOf<Buckets>;
  readonly tokenTimes: SeriesOf<Buckets>;
}

/** @param instruments Where they are made */
export function createGenAiFamilies(instruments: Instruments): GenAiFamilies {
  const histogram = (name: string, help: string, bounds: readonly number[], ...more: string[]) => {
    const labels = ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", ...more];
    return instruments.histogram({ name: `gen_ai_${name}`, help, labels }, bounds);
  };
  const tokens = instruments.counter({
    name: `${PREFIX}tokens_total`,
    help: "Tokens as providers stated them; cached ones are part of the input, reasoning of the output",
    labels: ["provider", "model", "type"],
  });
  const sizes = histogram("client_token_usage", "Tokens of one completion", TOKEN_BOUNDS, "gen_ai_token_type");
  const duration = "Chat completions that were forwarded, first header to last byte";
  return {
    unmetered: instruments.counter({
      name: `${PREFIX}unmetered_exchanges_total`,
      help: "Chat completions whose provider stated no usage",
      labels: ["provider"],
    }),
    tokens,
    tokenSeries: (provider, model) => ({
      input: tokens(provider, model, "input"),
      output: tokens(provider, model, "output"),
      inputSizes: sizes("chat", provider, model, "input"),
      outputSizes: sizes("chat", provider, model, "output"),
    }),
    chats: histogram("server_request_duration_seconds", duration, DURATION_BOUNDS, "error_type"),
    firstTokens: histogram("server_time_to_first_token_seconds", "Until a stream's first event", FIRST_TOKEN_BOUNDS),
    tokenTimes: histogram("server_time_per_output_token_seconds", "After a stream's first event", TOKEN_TIME_BOUNDS),
  };
}
