/**
 * Metrics for Prometheus (https://prometheus.io/docs/practices/naming/), under the names of OpenTelemetry's GenAI
 * conventions where they have one. No label holds text of a caller, except the name of a model that a provider has
 * answered.
 *
 * @module
 */
import type { ExchangeRecord } from "../../exchange/record.ts";
import type { ExchangeObserver } from "../../exchange/observer.ts";
import { type Buckets, Instruments, type MetricJson, type Tally } from "./instruments.ts";
import {
  createFamilies,
  createGenAiFamilies,
  type GenAiFamilies,
  type MetricFamilies,
  PREFIX,
  type TokenSeries,
} from "./metric_families.ts";
import { type MetricsFormat, toMetricsText } from "./metrics_text.ts";
import { ModelNames } from "./model_names.ts";

/** State of one replica of a provider. */
export interface ReplicaState {
  readonly provider: string;
  /** Its place among the others, counted from 0. */
  readonly replica: number;
  /** True while it is paused after failures. */
  readonly isEjected: boolean;
  /** Number of pauses so far. */
  readonly ejections: number;
}

/** Sources of the metrics that are read on demand. */
export interface MetricSources {
  /** Reads the open exchanges and streams, and the state of the replicas. */
  readonly gateway: () => {
    readonly openExchanges: number;
    readonly openStreams: number;
    readonly replicas: readonly ReplicaState[];
  };
  readonly droppedLogLines: () => number;
  /** Reads the decisions on limits made without Redis, and the failed calls of Redis; `undefined` without Redis. */
  readonly redis?:
    | (() => { readonly localDecisions: number; readonly failures: number; readonly isUp: boolean } | undefined)
    | undefined;
  readonly version: string;
  readonly runtime: string;
  readonly runtimeVersion: string;
}

/** Facts that exchanges of the same series have in common. */
type Kind = {
  readonly [
    Name in "provider" | "operation" | "outcome" | "code" | "cause" | "status" | "stream" | "replica" | "model"
  ]:
    | ExchangeRecord[Name]
    | undefined;
};

function isSameKind(record: ExchangeRecord, kind: Kind): boolean {
  return record.status === kind.status && record.outcome === kind.outcome && record.stream === kind.stream &&
    record.replica === kind.replica && record.provider === kind.provider && record.operation === kind.operation &&
    record.code === kind.code && record.cause === kind.cause && record.model === kind.model;
}

/** Series in which exchanges of one kind count. The optional ones are created on first use, so that none shows 0. */
interface Series {
  readonly kind: Kind;
  readonly exchanges: Tally;
  readonly duration: Buckets;
  readonly overhead: Buckets;
  /** Set if a replica was called. */
  readonly upstream: Tally | undefined;
  readonly chat: Buckets | undefined;
  firstByte?: Buckets;
  firstToken?: Buckets;
  tokenTime?: Buckets;
  bytesIn?: Tally;
  bytesOut?: Tally;
  tokens?: TokenSeries;
  cached?: Tally;
  reasoning?: Tally;
  unmetered?: Tally;
}

const CHAT = "chat.completions";
/** Limit of the kinds whose series are cached. More are possible: models times codes times replicas. */
const MAX_KINDS = 5000;

/** The counts of one process. */
export class Metrics implements ExchangeObserver {
  readonly #instruments: Instruments = new Instruments();
  readonly #families: MetricFamilies & GenAiFamilies;
  readonly #models: ModelNames = new ModelNames();
  readonly #series = new Map<string, Series>();
  #last: Series | undefined;

  /**
   * @param sources Sources of the metrics that are read on demand
   * @param addProcess Adds metrics of the process, which each runtime reports in its own way
   */
  constructor(sources: MetricSources, addProcess: (instruments: Instruments) => void = () => {}) {
    this.#families = { ...createFamilies(this.#instruments), ...createGenAiFamilies(this.#instruments) };
    addSources(this.#instruments, sources);
    addProcess(this.#instruments);
  }

  settled(record: ExchangeRecord): void {
    const { bytesIn, bytesOut, durationMs, firstByteMs, retries, retryCause = "unknown", limit, observedLimit } =
      record;
    const last = this.#last;
    const series = last !== undefined && isSameKind(record, last.kind) ? last : this.#seriesOf(record);
    const { provider = "none", stream } = series.kind;
    const families = this.#families;
    series.exchanges.value++;
    series.duration.observe(durationMs / 1000);
    series.overhead.observe(record.overheadMs / 1000);
    if (series.upstream !== undefined) series.upstream.value++;
    if (firstByteMs !== undefined) {
      (series.firstByte ??= families.firstBytes(provider, String(stream === true))).observe(firstByteMs / 1000);
    }
    if (bytesIn > 0) (series.bytesIn ??= families.bytes(provider, "in")).add(bytesIn);
    if (bytesOut > 0) (series.bytesOut ??= families.bytes(provider, "out")).add(bytesOut);
    if (series.chat !== undefined) this.#countChat(record, series);
    if (retries > 0) families.retries(provider, retryCause).add(retries);
    if (limit !== undefined) families.refused(limit).add(1);
    if (observedLimit !== undefined) families.observed(observedLimit).add(1);
  }

  /** Counts a chat completion: its tokens, and the times of its answer. */
  #countChat({ durationMs, firstTokenMs, usage, outcome, status }: ExchangeRecord, series: Series): void {
    const { provider = "none", model } = series.kind;
    const families = this.#families;
    series.chat?.observe(durationMs / 1000);
    if (firstTokenMs !== undefined) {
      (series.firstToken ??= families.firstTokens("chat", provider, model ?? "")).observe(firstTokenMs / 1000);
    }
    if (usage === undefined) {
      if (outcome === "ok" && status === 200) (series.unmetered ??= families.unmetered(provider)).add(1);
      return;
    }
    const { total, input = 0, output = total - input, cached = 0, reasoning = 0 } = usage;
    const tokens = series.tokens ??= families.tokenSeries(provider, model ?? "");
    tokens.input.add(input);
    tokens.output.add(output);
    if (usage.input !== undefined) tokens.inputSizes.observe(input);
    if (usage.output !== undefined) tokens.outputSizes.observe(output);
    if (cached > 0) (series.cached ??= families.tokens(provider, model ?? "", "cached")).add(cached);
    if (reasoning > 0) (series.reasoning ??= families.tokens(provider, model ?? "", "reasoning")).add(reasoning);
    if (firstTokenMs !== undefined && output > 1 && outcome === "ok") {
      (series.tokenTime ??= families.tokenTimes("chat", provider, model ?? ""))
        .observe((durationMs - firstTokenMs) / 1000 / (output - 1));
    }
  }

  #seriesOf(record: ExchangeRecord): Series {
    const { provider = "none", operation = "none", outcome, code, cause, status, stream, replica } = record;
    const model = this.#models.labelOf(record);
    const id = `${provider} ${operation} ${outcome} ${code} ${cause} ${status} ${stream} ${replica} ${model}`;
    let series = this.#series.get(id);
    if (series === undefined) {
      const families = this.#families;
      const isChat = operation === CHAT && replica !== undefined;
      const result = resultOf(record);
      const failure = result === "2xx" ? "" : result;
      const [codeLabel, causeLabel] = [code ?? "none", cause ?? "none"];
      series = {
        kind: { provider, operation: record.operation, outcome, code, cause, status, stream, replica, model },
        exchanges: families.exchanges(provider, operation, outcome, codeLabel, String(status), causeLabel),
        duration: families.durations(provider, String(stream === true)),
        overhead: families.overheads(provider),
        upstream: replica === undefined ? undefined : families.upstream(provider, String(replica), result, causeLabel),
        chat: isChat ? families.chats("chat", provider, model, failure) : undefined,
      };
      if (this.#series.size >= MAX_KINDS) this.#series.clear(); // the counts themselves are kept elsewhere
      this.#series.set(id, series);
    }
    // A model without a label of its own may be given one by its next answer.
    if (record.model === model) this.#last = series;
    return series;
  }

  /** Returns the metrics as JSON, for another process to add up. */
  toJson(): MetricJson[] {
    return this.#instruments.toJson();
  }

  /** Returns the metrics as text for Prometheus. @param format The format */
  toText(format: MetricsFormat): Promise<string> {
    return toMetricsText([this.toJson()], format);
  }
}

/** Returns the result of a call to a provider: a class of statuses such as `2xx`, or the error's code or outcome. */
function resultOf({ code, outcome, status }: ExchangeRecord): string {
  const isStatus = outcome === "ok" || (outcome === "upstream_error" && status >= 400);
  return code ?? (isStatus ? `${Math.floor(status / 100)}xx` : outcome);
}
const toFlag = (is: boolean | undefined): number | undefined => is === undefined ? undefined : Number(is);

/** Adds the metrics that are read on demand. */
function addSources(instruments: Instruments, sources: MetricSources): void {
  const { gateway, droppedLogLines, redis, version, runtime, runtimeVersion } = sources;
  const read = (name: string, help: string, type: "counter" | "gauge", get: () => number | undefined) =>
    instruments.read({ name: PREFIX + name, help }, type, get);
  read("open_exchanges", "Exchanges that are open", "gauge", () => gateway().openExchanges);
  read("open_streams", "Those that are streams", "gauge", () => gateway().openStreams);
  read("log_dropped_lines_total", "Lines of the access log that nobody took", "counter", droppedLogLines);
  const labels = ["provider", "replica"];
  const ofReplicas = (get: (state: ReplicaState) => number) => () =>
    gateway().replicas.map((state) => [[state.provider, String(state.replica)], get(state)] as const);
  instruments.read(
    { name: `${PREFIX}replica_ejected`, help: "Whether it is given a pause; of several workers the share", labels },
    "gauge",
    ofReplicas(({ isEjected }) => isEjected ? 1 : 0),
    "average",
  );
  instruments.read(
    { name: `${PREFIX}replica_ejections_total`, help: "Pauses that it was given", labels },
    "counter",
    ofReplicas(({ ejections }) => ejections),
  );
  if (redis !== undefined) {
    instruments.read(
      { name: `${PREFIX}redis_up`, help: "Whether Redis answered last" },
      "gauge",
      () => toFlag(redis()?.isUp),
      "min",
    );
    read("redis_failures_total", "Calls of Redis that failed", "counter", () => redis()?.failures);
    read(
      "limits_local_decisions_total",
      "Decisions on limits that were made without Redis",
      "counter",
      () => redis()?.localDecisions,
    );
  }
  instruments.read(
    { name: `${PREFIX}build_info`, help: "What runs", labels: ["version", "runtime", "runtime_version"] },
    "gauge",
    () => [[[version, runtime, runtimeVersion], 1]],
    "max",
  );
}
