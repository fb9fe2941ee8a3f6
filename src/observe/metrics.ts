/**
 * What is counted, for Prometheus (https://prometheus.io/docs/practices/naming/). No label holds what a caller wrote.
 *
 * @module
 */
import {
  AggregatorRegistry,
  collectDefaultMetrics,
  Counter,
  Gauge,
  Histogram,
  type MetricObjectWithValues,
  type MetricValue,
  Registry,
} from "prom-client";
import type { ExchangeObserver, ExchangeRecord } from "../exchange.ts";

/** Seconds: from what the gateway itself adds to what a model takes. */
const OVERHEAD_BUCKETS = [...[10, 25, 50, 100, 250, 500].map((us) => us / 1e6), 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1];
const DURATION_BUCKETS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/** What is read at the time of asking. */
export interface MetricSources {
  readonly openExchanges: () => number;
  readonly droppedLogLines: () => number;
  /** Decisions on limits that were made without Redis, and calls of Redis that failed; left out without Redis. */
  readonly redis?:
    | (() => { readonly localDecisions: number; readonly failures: number; readonly isUp: boolean })
    | undefined;
  readonly version: string;
  readonly runtime: string;
}

/** A count with its labels: prom-client is told of it when it is asked, for it looks the labels up each time. */
class Tally {
  #pending = 0;

  /** @param count How many more */
  add(count: number): void {
    if (count > 0) this.#pending += count; // less would make every later answer fail
  }

  /** What came since the last time. */
  take(): number {
    const pending = this.#pending;
    this.#pending = 0;
    return pending;
  }
}

/** What exchanges of one kind count in; a part is made when it is needed, for what is made is shown. */
interface Series {
  readonly exchanges: Tally;
  readonly duration: Observer;
  readonly overhead: Observer;
  firstByte?: Observer;
  bytesIn?: Tally;
  bytesOut?: Tally;
  input?: Tally;
  output?: Tally;
  unmetered?: Tally;
  retries?: Tally;
  observed?: Tally;
}
type Observer = ReturnType<Histogram["labels"]>;

/** The counts of one process. */
export class Metrics implements ExchangeObserver {
  readonly #registry = new Registry();
  readonly #exchanges;
  readonly #durations;
  readonly #overheads;
  readonly #firstBytes;
  readonly #tokens;
  readonly #unmetered;
  readonly #retries;
  readonly #bytes;
  readonly #observed;
  readonly #series = new Map<string, Series>();

  /** @param sources What is read at the time of asking */
  constructor(sources: MetricSources) {
    const registers = [this.#registry];
    const counter = (name: string, help: string, ...labelNames: string[]) => {
      const tellers: (() => void)[] = [];
      const collect = () => tellers.forEach((tell) => tell());
      const made = new Counter({ name: `sallyport_${name}`, help, labelNames, registers, collect });
      return (...values: string[]): Tally => {
        const [tally, child] = [new Tally(), made.labels(...values)];
        tellers.push(() => child.inc(tally.take()));
        return tally;
      };
    };
    const histogram = (name: string, help: string, buckets: number[], ...labelNames: string[]) => {
      const made = new Histogram({ name: `sallyport_${name}`, help, buckets, labelNames, registers });
      return (...values: string[]): Observer => made.labels(...values);
    };
    this.#exchanges = counter(
      "exchanges_total",
      "Settled exchanges",
      "provider",
      "operation",
      "outcome",
      "code",
      "status",
    );
    this.#durations = histogram(
      "exchange_duration_seconds",
      "First header to last byte",
      DURATION_BUCKETS,
      "provider",
      "stream",
    );
    this.#overheads = histogram(
      "overhead_seconds",
      "What the gateway itself took until the answer began",
      OVERHEAD_BUCKETS,
      "provider",
    );
    this.#firstBytes = histogram(
      "first_byte_seconds",
      "Until the provider's answer began",
      DURATION_BUCKETS,
      "provider",
      "stream",
    );
    this.#tokens = counter("tokens_total", "Tokens as providers stated them", "provider", "type");
    this.#unmetered = counter(
      "unmetered_exchanges_total",
      "Chat completions whose provider stated no usage",
      "provider",
    );
    this.#retries = counter("upstream_retries_total", "Calls that were made a second time", "provider");
    this.#bytes = counter("bytes_total", "Bytes of bodies", "provider", "direction");
    this.#observed = counter(
      "limits_observed_total",
      "Exchanges that a limit would have refused, were it enforced",
      "limit",
    );
    this.#gauges(sources, registers);
  }

  settled(record: ExchangeRecord): void {
    const { provider = "none", bytesIn, bytesOut, retries, usage, observedLimit } = record;
    const series = this.#seriesOf(record, provider);
    series.exchanges.add(1);
    series.duration.observe(record.durationMs / 1000);
    series.overhead.observe(record.overheadMs / 1000);
    if (record.firstByteMs !== undefined) {
      (series.firstByte ??= this.#firstBytes(provider, String(record.stream === true)))
        .observe(record.firstByteMs / 1000);
    }
    if (bytesIn > 0) (series.bytesIn ??= this.#bytes(provider, "in")).add(bytesIn);
    if (bytesOut > 0) (series.bytesOut ??= this.#bytes(provider, "out")).add(bytesOut);
    if (usage !== undefined) {
      const { total, input = 0, output = total - input } = usage;
      (series.input ??= this.#tokens(provider, "input")).add(input);
      (series.output ??= this.#tokens(provider, "output")).add(output);
    } else if (record.operation === "chat.completions" && record.outcome === "ok" && record.status === 200) {
      (series.unmetered ??= this.#unmetered(provider)).add(1);
    }
    if (retries > 0) (series.retries ??= this.#retries(provider)).add(retries);
    if (observedLimit !== undefined) (series.observed ??= this.#observed(observedLimit)).add(1);
  }

  #seriesOf(record: ExchangeRecord, provider: string): Series {
    const { operation = "none", outcome, code = "none", status, stream, observedLimit } = record;
    const name = `${provider} ${operation} ${outcome} ${code} ${status} ${stream} ${observedLimit}`;
    const found = this.#series.get(name);
    if (found !== undefined) return found;
    const made: Series = {
      exchanges: this.#exchanges(provider, operation, outcome, code, String(status)),
      duration: this.#durations(provider, String(stream === true)),
      overhead: this.#overheads(provider),
    };
    this.#series.set(name, made);
    return made;
  }

  /** The counts, for another process to add up. */
  async toJson(): Promise<object[]> {
    return await this.#registry.getMetricsAsJSON();
  }

  /** The counts as Prometheus reads them. */
  async toText(): Promise<string> {
    return await this.#registry.metrics();
  }

  #gauges({ openExchanges, droppedLogLines, redis, version, runtime }: MetricSources, registers: Registry[]): void {
    const gauge = (name: string, help: string, read: () => number) =>
      new Gauge({
        name: `sallyport_${name}`,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    gauge("open_exchanges", "Exchanges that are open", openExchanges);
    gauge("log_dropped_lines", "Lines of the access log that nobody took", droppedLogLines);
    if (redis !== undefined) {
      gauge("redis_up", "Whether Redis answered last", () => redis().isUp ? 1 : 0);
      gauge("redis_failures", "Calls of Redis that failed", () => redis().failures);
      gauge("limits_local_decisions", "Decisions on limits that were made without Redis", () => redis().localDecisions);
    }
    new Gauge({ name: "sallyport_build_info", help: "What runs", labelNames: ["version", "runtime"], registers })
      .labels(version, runtime).set(1);
    collectDefaultMetrics({ register: this.#registry });
  }
}

/**
 * The counts of several processes as one.
 *
 * @param all What {@link Metrics.toJson} gave in each
 * @returns Text for Prometheus: counters and histograms added up
 */
export async function toAggregateText(all: readonly object[][]): Promise<string> {
  return await AggregatorRegistry.aggregate(all as unknown as MetricObjectWithValues<MetricValue<string>>[]).metrics();
}
