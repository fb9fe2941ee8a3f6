/** The console's store of live traffic, and the format of its numbers and times. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import {
  amount,
  cost,
  day,
  duration,
  exactCost,
  percent,
  rate,
  span,
} from "../../src/admin/console/format.ts";
import { Store } from "../../src/admin/console/store.ts";
import { binOf, type LiveReport, type LiveSecond } from "../../src/observe/live/live_report.ts";

const second = (at: number, exchanges: number): LiveSecond => ({
  ...{
    at,
    exchanges,
    errors: { internal_error: 1 },
    callers: {},
    tokens: 5,
    estimatedTokens: 2,
    outputTokens: 3,
  },
  ...{ duration: [binOf(100), exchanges], firstToken: [], overhead: [] },
  providers: { a: [exchanges, 1] },
  times: { a: { duration: [binOf(100), exchanges], firstToken: [binOf(10), 1] } },
});
const report = (now: number, more: Partial<LiveReport>): LiveReport => ({
  ...{
    now: now * 1000,
    from: 0,
    since: 0,
    state: "ready",
    version: "1",
    health: {},
    openExchanges: 0,
    openStreams: 0,
  },
  ...{ providers: [], seconds: [], exchanges: [], ...more },
});
const at = (store: Store, second: number) =>
  store.snapshot.points.find((point) => point.at === second);

describe("the console's store", () => {
  it("has gaps while the usage is unknown, and zeros while there is none", () => {
    const store = new Store();
    store.add(report(1000, { since: 990, seconds: [second(995, 4)] }));
    const { exchanges, errors, tokens, outputTokens, p50 } = at(store, 989) ?? {};
    assert.deepEqual([exchanges, errors, tokens, outputTokens, p50], [
      null,
      null,
      null,
      null,
      null,
    ]);
    assert.deepEqual([at(store, 990)?.exchanges, at(store, 990)?.errors], [0, 0]);
    assert.deepEqual([at(store, 995)?.exchanges, at(store, 995)?.errors, at(store, 995)?.tokens], [
      4,
      1,
      5,
    ]);
    assert.equal(at(store, 996)?.exchanges, 0);
  });

  it("keeps the history of a restarted gateway, with a gap for the restart", () => {
    const store = new Store();
    store.add(report(1000, { since: 900, seconds: [second(995, 4)] }));
    store.add(report(1010, { since: 1005, seconds: [second(1007, 2)] }));
    assert.deepEqual([995, 996, 1001, 1005, 1007].map((each) => at(store, each)?.exchanges), [
      4,
      0,
      null,
      0,
      2,
    ]);
  });

  it("sums up the recorded time, in total and by provider", () => {
    const store = new Store();
    store.add(report(1000, { since: 990, seconds: [second(995, 4), second(996, 6)] }));
    const minute = store.summary(60);
    assert.deepEqual([minute.seconds, minute.exchanges, minute.errors], [10, 10, 2]);
    const { exchanges, errors, percentile } = minute.of("a");
    assert.deepEqual([exchanges, errors], [10, 2]);
    assert.ok(Math.abs((percentile("duration", 0.95) ?? 0) / 100 - 1) < 0.05);
    assert.ok(Math.abs((percentile("firstToken", 0.5) ?? 0) / 10 - 1) < 0.05);
    assert.deepEqual([minute.of("b").exchanges, minute.of("b").percentile("duration", 0.5)], [
      0,
      undefined,
    ]);
    store.add(report(2000, { since: 990 }));
    assert.equal(store.summary(60).seconds, 60);
  });
});

describe("the console's numbers and times", () => {
  it("have a unit for each time", () => {
    const spans = [0, 1, 1000, 89_000, 90_000, 5_340_000, 5_400_000, 86_400_000, 777_600_000].map(
      span,
    );
    assert.deepEqual(spans, [
      ...[
        "0 seconds",
        "1 second",
        "1 second",
        "89 seconds",
        "2 minutes",
        "89 minutes",
        "2 hours",
        "24 hours",
      ],
      "9 days",
    ]);
    assert.deepEqual([undefined, 0, 0.5, 12, 1500].map(duration), [
      "–",
      "0 ms",
      "500 µs",
      "12 ms",
      "1.5 s",
    ]);
  });

  it("have no zeros that say nothing, and no unit that rounding makes wrong", () => {
    const amounts = [0, 0.04, 0.44, 12.4, 9999, 34_000, 5e6, 5_140_000, 999_960, 2e9].map(amount);
    assert.deepEqual(amounts, [
      ...["0", "<0.1", "0.4", "12", "9999", "34k", "5M", "5.1M", "1M", "2G"],
    ]);
  });

  it("show used money rounded, and a limit of money to the last digit", () => {
    assert.deepEqual([0, 0.00005, 0.002, 1234.5].map(cost), [
      "0.00",
      "<0.0001",
      "0.0020",
      "1,234.50",
    ]);
    assert.deepEqual([0.00005, 0.5, 50, 9e6].map(exactCost), ["0.00005", "0.5", "50", "9,000,000"]);
  });

  it("show a share as a multiple once percent says nothing", () => {
    assert.deepEqual([0, 0.0001, 0.041, 0.5, 0.9996, 1, 9.5, 1800].map(percent), [
      ...["0 %", "<0.1 %", "4.1 %", "50 %", ">99 %", "100 %", "950 %", "1800 times"],
    ]);
  });

  it("show rates and days in words", () => {
    const rates = ["600/min", "100k/h", "5/10s", "2.3M/d", "7/250ms", "20"].map(rate);
    assert.deepEqual(rates, [
      ...[
        "600 per minute",
        "100k per hour",
        "5 per 10 seconds",
        "2.3M per day",
        "7 per 250 milliseconds",
        "20",
      ],
    ]);
    assert.equal(day("2027-01-31T00:00:00Z"), "2027-01-31");
  });
});
