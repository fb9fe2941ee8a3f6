/** The ring buffers behind the live feed: their content, and their bounds. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { createLiveEvents, LiveFeed } from "../../src/observe/live/live_feed.ts";
import {
  binOf,
  BINS,
  type LivePart,
  mergeParts,
  percentile,
} from "../../src/observe/live/live_report.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";

const replica = { provider: "a", ejections: 0, ejectedMs: 0, failures: 0, isEjected: false };
const gateway = {
  openExchanges: 2,
  openStreams: 1,
  replicas: [
    { ...replica, replica: 0, url: "http://x/v1" },
    {
      ...replica,
      replica: 1,
      url: "http://y/v1",
      isEjected: true,
      ejections: 1,
      failures: 5,
      ejectedMs: 4000,
    },
  ],
};
const PROVIDERS = { a: { hosts: ["*"] } };
const record = (more: Partial<ExchangeRecord> = {}): ExchangeRecord => ({
  id: "1",
  startedAt: 0,
  durationMs: 10,
  calledMs: 0.05,
  overheadMs: 0.05,
  outcome: "ok",
  status: 200,
  bytesIn: 1,
  bytesOut: 1,
  retries: 0,
  provider: "a",
  ...more,
});

describe("the live feed", () => {
  it("keeps 300 seconds and reports at most 250 exchanges", () => {
    let now = 0;
    const feed = new LiveFeed(PROVIDERS, () => now);
    for (let count = 0; count < 20_000; count++) {
      now = count * 100;
      const ends = [{ outcome: "refused", code: "invalid_json" }, {
        outcome: "failed",
        code: "internal_error",
      }] as const;
      feed.settled(record({ id: String(count), ...ends[count % 2] }));
    }
    const { seconds, exchanges } = feed.readPart(gateway, 0, 1e9);
    assert.equal(seconds.length, 300);
    assert.deepEqual([seconds[0]?.at, seconds.at(-1)?.at], [1700, 1999]);
    assert.deepEqual([seconds[7]?.errors, seconds[7]?.callers], [{ internal_error: 5 }, {
      invalid_json: 5,
    }]);
    assert.deepEqual(seconds[7]?.providers, { a: [10, 5] });
    assert.deepEqual(seconds[7]?.duration, [binOf(10), 10]);
    assert.equal(exchanges.length, 250);
    assert.deepEqual([exchanges[0]?.id, exchanges.at(-1)?.id], ["19750", "19999"]);
    const some = feed.readPart(gateway, 1990, 1992);
    assert.deepEqual(some.seconds.map(({ at }) => at), [1990, 1991]);
    assert.deepEqual(
      some.exchanges.map(({ id }) => Number(id)),
      Array.from({ length: 20 }, (_, n) => 19_900 + n),
    );
  });

  it("keeps the times of calls that reached each provider for a minute, and reports the start of its counts", () => {
    let now = 7_000_000;
    const feed = new LiveFeed(PROVIDERS, () => now);
    for (let second = 0; second < 90; second++, now += 1000) {
      feed.settled(record({ durationMs: 20, firstTokenMs: 5 }));
      feed.settled(record({ durationMs: 0.2, calledMs: undefined, outcome: "refused" }));
      feed.settled(record({ durationMs: 20 }));
      feed.settled(record({ provider: "b", durationMs: 900 }));
    }
    const { since, seconds } = feed.readPart(gateway, 0, 1e9);
    assert.equal(since, 7000);
    assert.equal(seconds.length, 90);
    assert.deepEqual(seconds.filter(({ times }) => times.a === undefined).length, 30);
    assert.deepEqual(seconds.at(-1)?.times, {
      a: { duration: [binOf(20), 2], firstToken: [binOf(5), 1] },
      b: { duration: [binOf(900), 1], firstToken: [] },
    });
  });

  it("keeps no error object of a failure: it could contain any data", () => {
    const feed = new LiveFeed(PROVIDERS, () => 5000);
    feed.settled(
      record({
        outcome: "failed",
        code: "internal_error",
        cause: "reset",
        error: new Error("a-secret"),
      }),
    );
    const [kept] = feed.readPart(gateway, 0, 9).exchanges;
    assert.deepEqual([kept?.code, kept?.cause, Object.hasOwn(kept ?? {}, "error")], [
      "internal_error",
      "reset",
      false,
    ]);
  });

  it("names the cause of a failure in one word", () => {
    const feed = new LiveFeed(PROVIDERS, () => 5000);
    feed.settled(record());
    feed.settled(record({ outcome: "upstream_error", status: 429 }));
    feed.settled(record({ outcome: "client_closed", status: 499 }));
    feed.settled(record({ outcome: "refused", status: 401, code: "invalid_gateway_key" }));
    feed.settled(record({ outcome: "upstream_error", status: 500 }));
    feed.settled(record({ outcome: "upstream_error", status: 200, stream: true }));
    feed.settled(record({ outcome: "timeout", status: 504, code: "upstream_timeout" }));
    const [second] = feed.readPart(gateway, 0, 9).seconds;
    assert.deepEqual(second?.errors, { upstream_500: 1, upstream_error: 1, upstream_timeout: 1 });
    assert.deepEqual(second?.callers, {
      upstream_429: 1,
      client_closed: 1,
      invalid_gateway_key: 1,
    });
    assert.deepEqual(second?.providers, { a: [7, 3] });
  });

  it("sorts durations into bins whose middle is at most 5 % off", () => {
    for (let ms = 0.008; ms < 2e6; ms *= 1.01) {
      const middle = percentile([[binOf(ms), 1]], 0.5) ?? 0;
      assert.ok(Math.abs(middle / ms - 1) < 0.05, `${ms} is told as ${middle}`);
    }
    for (const odd of [0, -1, NaN, Infinity, 1e12]) assert.ok(binOf(odd) >= 0 && binOf(odd) < BINS);
    const hundred = Array.from({ length: 100 }, (_, index) => [binOf(index + 1), 1]);
    for (const share of [0.5, 0.95, 0.99]) {
      const told = percentile(hundred, share) ?? 0;
      assert.ok(Math.abs(told / (share * 100) - 1) < 0.06, `${share}: ${told}`);
    }
    assert.equal(percentile([], 0.5), undefined);
  });

  it("adds up the reports of several processes", () => {
    let now = 5000;
    const [one, other] = [new LiveFeed(PROVIDERS, () => now), new LiveFeed(PROVIDERS, () => now)];
    other.settled(
      record({ id: "earlier", code: "internal_error", status: 500, outcome: "failed" }),
    );
    other.settled(record({ id: "early", code: "invalid_json", status: 400, outcome: "refused" }));
    now = 5001;
    one.settled(record({ id: "late", usage: { total: 3, output: 2 } }));
    other.settled(record({ id: "guessed", usage: { total: 4, output: 1 }, isEstimated: true }));
    const parts: LivePart[] = [one, other].map((feed) => feed.readPart(gateway, 0, 9));
    const { openExchanges, openStreams, providers, seconds, exchanges } = mergeParts(parts);
    assert.deepEqual([openExchanges, openStreams], [4, 2]);
    assert.deepEqual(
      providers[0]?.replicas.map((
        { inService, ejected, ejectedMs },
      ) => [inService, ejected, ejectedMs]),
      [
        [2, 0, 0],
        [0, 2, 4000],
      ],
    );
    const [second] = seconds;
    assert.deepEqual([second?.exchanges, second?.tokens, second?.outputTokens], [4, 7, 3]);
    assert.equal(second?.estimatedTokens, 4);
    assert.deepEqual([second?.errors, second?.callers], [{ internal_error: 1 }, {
      invalid_json: 1,
    }]);
    assert.deepEqual(second?.providers, { a: [4, 1] });
    assert.equal(percentile([second?.times.a?.duration ?? []], 1), percentile([[binOf(10), 1]], 1));
    assert.equal(mergeParts(parts).since, 5);
    assert.equal(percentile([second?.duration ?? []], 1), percentile([[binOf(10), 1]], 1));
    assert.deepEqual(exchanges.map(({ id }) => id), ["earlier", "early", "late", "guessed"]);
    assert.deepEqual(mergeParts([]).providers, []);
  });

  it("sends each second once, when it is over, even if the wall clock is set back; without readers it does nothing", async () => {
    let now = 1_000_500;
    const timers: (() => void)[] = [];
    const clock = {
      now: () => now,
      monotonic: () => now,
      timer(_: number, fire: () => void) {
        timers.push(fire);
        return () => {};
      },
    };
    const asked: [number, number][] = [];
    let ended = 0;
    const events = createLiveEvents(
      (from, to) => Promise.resolve(asked.push([from, to])),
      clock,
      () => ended++,
    );
    assert.deepEqual(asked, []);
    assert.equal(new TextDecoder().decode(await events.read()), "data: 1\n\n");
    assert.deepEqual(asked, [[701, 1000]]);
    const tick = async (to: number) => {
      const reading = events.read();
      now = to;
      timers.pop()?.();
      await reading;
    };
    await tick(1_001_100);
    await tick(1_004_100);
    assert.deepEqual(asked.slice(1), [[1000, 1001], [1001, 1004]]);
    now = 500_500;
    await tick(501_500);
    assert.deepEqual(asked.at(-1), [500, 501]);
    const last = events.read();
    events.cancel();
    events.cancel();
    assert.equal(await last, undefined);
    assert.equal(ended, 1);
  });
});
