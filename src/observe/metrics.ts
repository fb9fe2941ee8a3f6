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

/** A histogram or counter with its labels bound: so none is looked up twice. */
class Bound<Instrument> {
  readonly #bound = new Map<string, Instrument>();
  readonly #bind: (...values: string[]) => Instrument;

  constructor(bind: (...values: string[]) => Instrument) {
    this.#bind = bind;
  }

  of(...values: string[]): Instrument {
    const name = values.join(" ");
    const found = this.#bound.get(name);
    if (found !== undefined) return found;
    const made = this.#bind(...values);
    this.#bound.set(name, made);
    return made;
  }
}

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

  /** @param sources What is read at the time of asking */
  constructor(sources: MetricSources) {
    const registers = [this.#registry];
    const counter = (name: string, help: string, ...labelNames: string[]) => {
      const made = new Counter({ name: `sallyport_${name}`, help, labelNames, registers });
      return new Bound((...values: string[]) => made.labels(...values));
    };
    const histogram = (name: string, help: string, buckets: number[], ...labelNames: string[]) => {
      const made = new Histogram({ name: `sallyport_${name}`, help, buckets, labelNames, registers });
      return new Bound((...values: string[]) => made.labels(...values));
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
    const { provider = "none", operation = "none", outcome, code = "none", status, usage, stream } = record;
    this.#exchanges.of(provider, operation, outcome, code, String(status)).inc();
    this.#durations.of(provider, String(stream === true)).observe(record.durationMs / 1000);
    this.#overheads.of(provider).observe(record.overheadMs / 1000);
    if (record.firstByteMs !== undefined) {
      this.#firstBytes.of(provider, String(stream === true)).observe(record.firstByteMs / 1000);
    }
    if (record.bytesIn > 0) this.#bytes.of(provider, "in").inc(record.bytesIn);
    if (record.bytesOut > 0) this.#bytes.of(provider, "out").inc(record.bytesOut);
    if (usage !== undefined) {
      this.#tokens.of(provider, "input").inc(usage.input ?? 0);
      this.#tokens.of(provider, "output").inc(usage.output ?? usage.total - (usage.input ?? 0));
    } else if (operation === "chat.completions" && outcome === "ok" && status === 200) {
      this.#unmetered.of(provider).inc();
    }
    if (record.retries > 0) this.#retries.of(provider).inc(record.retries);
    if (record.observedLimit !== undefined) this.#observed.of(record.observedLimit).inc();
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
