/**
 * A million exchanges of as many keys and models: the memory of observers does not grow with them.
 */
// runtimes: once
import assert from "node:assert/strict";
import v8 from "node:v8";
import vm from "node:vm";
import process from "node:process";
import { describe } from "@std/testing/bdd";
import { FAILURE_CAUSES, type FailureCause } from "../../src/errors/outcomes.ts";
import { ERRORS } from "../../src/errors/codes.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord, GenAiOperation } from "../../src/exchange/record.ts";
import { AccessLog } from "../../src/observe/access_log.ts";
import { MetricRegistry } from "../../src/observe/metrics/metric_registry.ts";
import { MAX_MODEL_LABELS, Metrics } from "../../src/observe/metrics/metrics.ts";
import { it } from "../support/cases.ts";

const EXCHANGES = 1_000_000;
/** Noise in the memory after the first tenth. Beyond it, memory must not grow. Bytes. */
const MAX_GROWTH = 20e6;
/** Lines of text: 101 models with their buckets and counts, and everything else. */
const MAX_LINES = 2 * (MAX_MODEL_LABELS + 1) * (10 * 17 + 19 + 16 + 17 + 4 * 17 + 8) + 5000;

/** Returns the bytes in use after garbage collection. */
function readHeap(): number {
  const bun = (globalThis as unknown as { Bun?: { gc(isForced: boolean): void } }).Bun;
  if (bun !== undefined) bun.gc(true);
  else {
    v8.setFlagsFromString("--expose-gc");
    (vm.runInNewContext("gc") as () => void)();
  }
  return process.memoryUsage().heapUsed;
}

const GEN_AI: readonly GenAiOperation[] = [
  "chat",
  "text_completion",
  "embeddings",
  "generate_content",
];
const CAUSES = Object.keys(FAILURE_CAUSES) as FailureCause[];
const REFUSAL = { outcome: "upstream_error", status: 429 } as const;

/**
 * The n-th exchange. Every key, id and model is new. Some are answered, and some fail, in every
 * way.
 */
function toRecord(n: number): ExchangeRecord {
  const failures = Object.entries(ERRORS);
  const common = {
    id: `request-${n}`,
    startedAt: n,
    durationMs: n % 100,
    overheadMs: n % 7 / 100,
    provider: n % 2 === 0 ? "a" : "b",
    keyId: `key-${n}`,
    operation: "chat.completions",
    genAi: GEN_AI[n % GEN_AI.length] ?? "chat",
    isMetered: true,
    model: `model-${n}`,
    stream: n % 3 === 0,
    bytesIn: n % 1000,
    bytesOut: n % 5000,
    retries: n % 50 === 0 ? 1 : 0,
  };
  if (n % 4 === 0) {
    const [code, { status, outcome }] = failures[n / 4 % failures.length] ?? assert.fail();
    const isForwarded = code.startsWith("upstream_");
    const cause = CAUSES[n % CAUSES.length] ?? assert.fail();
    const calls = isForwarded && { replica: n % 3, cause, retryCause: cause };
    return { ...common, code: code as keyof typeof ERRORS, status, outcome, ...calls };
  }
  const usage = {
    total: n % 999,
    input: n % 333,
    output: n % 666,
    cached: n % 10,
    reasoning: n % 20,
  };
  const times = { firstByteMs: n % 50, firstTokenMs: n % 60, replica: n % 3 };
  return {
    ...common,
    ...times,
    ...(n % 9 === 0 ? REFUSAL : { outcome: "ok", status: 200, usage }),
  };
}

describe("a million exchanges", () => {
  it.large("with as many keys and models leave a bounded number of series and a bounded memory", () => {
    const clock: Clock = { ...systemClock, timer: () => () => {} };
    let bytes = 0;
    const log = new AccessLog("json", (text, done) => {
      bytes += text.length;
      done(null);
    }, clock);
    const metrics = new Metrics(new MetricRegistry());
    const drive = (from: number, until: number): void => {
      for (let n = from; n < until; n++) {
        const record = toRecord(n);
        metrics.settled(record);
        log.settled(record);
      }
    };
    const linesOf = () => metrics.toText("text").split("\n").length;
    drive(0, EXCHANGES / 10);
    const lines = linesOf();
    const before = readHeap();
    drive(EXCHANGES / 10, EXCHANGES);
    const grown = readHeap() - before;
    assert.equal(linesOf(), lines);
    assert.ok(lines < MAX_LINES, `${lines} lines`);
    assert.ok(grown < MAX_GROWTH, `${grown} bytes more`);
    assert.equal(log.dropped, 0);
    assert.ok(bytes > 200 * EXCHANGES);
    assert.match(metrics.toText("text"), /gen_ai_request_model="other"/);
  });
});
