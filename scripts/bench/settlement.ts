/**
 * Processor time for settling an exchange in the metrics: with the gateway's own counters, and with
 * prom-client, whose labels are resolved once where that is possible. Run it with each runtime:
 *
 *     node scripts/bench/settlement.ts
 *     bun scripts/bench/settlement.ts
 *     deno run -A scripts/bench/settlement.ts
 *
 * @module
 */
import process from "node:process";
import { Counter as LibraryCounter, Histogram as LibraryHistogram, Registry } from "prom-client";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import {
  Counter,
  Histogram,
  type Labelled,
  type MetricConfig,
  MetricRegistry,
} from "../../src/observe/metrics/metric_registry.ts";
import { Metrics } from "../../src/observe/metrics/metrics.ts";
import { toJsonLine } from "../../src/observe/access_log.ts";

const ROUNDS = 15;
const CALLS = 100_000;

/** A streamed chat completion, which updates the most counters. */
const RECORD: ExchangeRecord = {
  id: "0b5c2f6e-6f9e-4b1b-8f6e-0f9d8c7b6a59",
  startedAt: Date.UTC(2026, 10, 22),
  durationMs: 1234.5,
  overheadMs: 0.21,
  firstByteMs: 412.5,
  firstTokenMs: 420.1,
  outcome: "ok",
  status: 200,
  provider: "openai",
  keyId: "team-search",
  replica: 0,
  operation: "chat.completions",
  genAi: "chat",
  isMetered: true,
  model: "gpt-4o-mini",
  stream: true,
  bytesIn: 512,
  bytesOut: 20_480,
  retries: 0,
  usage: { total: 330, input: 110, output: 220, cached: 40, reasoning: 50 },
};

/** The same metrics, counted by prom-client. */
class LibraryRegistry extends MetricRegistry {
  readonly #registers = [new Registry()];

  override counter({ name, help, labels = [] }: MetricConfig): Labelled<Counter> {
    const metric = new LibraryCounter({
      name,
      help,
      labelNames: labels,
      registers: this.#registers,
    });
    return (...values) => {
      const { inc } = metric.labels(...values);
      return Object.assign(new Counter(), { add: (count = 1) => inc(count) });
    };
  }

  override histogram(
    { name, help, labels = [] }: MetricConfig,
    bounds: readonly number[],
  ): Labelled<Histogram> {
    const buckets = [...bounds];
    const metric = new LibraryHistogram({
      name,
      help,
      labelNames: labels,
      buckets,
      registers: this.#registers,
    });
    return (...values) => {
      const { observe } = metric.labels(...values);
      return Object.assign(new Histogram(bounds), { observe });
    };
  }
}

/**
 * Measures a function. @returns Nanoseconds of processor time a call: the median round and the
 * fastest one
 */
function measure(call: () => void): { median: number; best: number } {
  const rounds = Array.from({ length: ROUNDS }, () => {
    const before = process.cpuUsage();
    for (let count = 0; count < CALLS; count++) call();
    const { user, system } = process.cpuUsage(before);
    return (user + system) * 1000 / CALLS;
  }).sort((one, other) => one - other);
  return { median: rounds[ROUNDS >> 1] ?? NaN, best: rounds[0] ?? NaN };
}

const own = new Metrics(new MetricRegistry());
const library = new Metrics(new LibraryRegistry());
const subjects = {
  "metrics, own counters": () => own.settled(RECORD),
  "metrics, prom-client": () => library.settled(RECORD),
  "line of the access log": () => void toJsonLine(RECORD),
};
for (const [name, call] of Object.entries(subjects)) {
  const { median, best } = measure(call);
  console.log(
    `${name.padEnd(24)} ${median.toFixed(0).padStart(6)} ns (best ${best.toFixed(0)} ns)`,
  );
}
