/** The access log: the content of a line, and the cost of a slow or broken reader. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { parseCost } from "../../src/config/cost.ts";
import { PriceBook } from "../../src/config/price_book.ts";
import { CallCosts } from "../../src/observe/call_costs.ts";
import {
  AccessLog,
  toJsonLine,
  toPrettyLine,
  type WriteLog,
} from "../../src/observe/access_log.ts";

const record: ExchangeRecord = {
  id: "0b5c",
  startedAt: Date.UTC(2026, 10, 21, 12, 0, 1),
  durationMs: 1234.5678,
  firstByteMs: 300.123,
  firstTokenMs: 310.456,
  overheadMs: 0.123456,
  outcome: "ok",
  status: 200,
  provider: "a",
  replica: 1,
  keyId: "team",
  keyName: "agents",
  team: "search",
  operation: "chat.completions",
  model: "gpt\u2028-4o",
  stream: true,
  bytesIn: 100,
  bytesOut: 2000,
  retries: 1,
  usage: { total: 7, input: 3, output: 4 },
  error: new Error("connect 10.0.0.1"),
};

/** A clock whose timers fire when told to. */
function manualClock() {
  const timers: (() => void)[] = [];
  const clock: Clock = {
    now: () => 0,
    monotonic: () => 0,
    timer: (_ms, fire) => {
      timers.push(fire);
      return () => {};
    },
  };
  return { clock, fire: () => timers.splice(0).forEach((fire) => fire()) };
}

/** A reader that accepts texts when told to. */
function manualReader() {
  const taken: string[] = [];
  const pending: ((error: Error | null) => void)[] = [];
  const write: WriteLog = (text, done) => {
    taken.push(text);
    pending.push(done);
  };
  return { write, taken, answer: (error: Error | null = null) => pending.shift()?.(error) };
}

describe("the cost in a line of the access log", () => {
  const prices = { "gpt-*": { input: 2, output: 10, webSearches: 10 } };
  const settings = { prices, providers: { s: { statesCost: true } } };
  const costs = new CallCosts(new PriceBook(settings), "EUR");
  const priced = { ...record, model: "gpt-4o" };
  const tariff = { context: 3 };

  /** The fields of the cost in JSON, and the words of the line for people after the tokens. */
  function read(call: ExchangeRecord) {
    const lines = (["json", "pretty"] as const).map((format) => {
      let text = "";
      const { clock } = manualClock();
      const log = new AccessLog(format, (line) => void (text = line), clock);
      log.under(costs).settled(call);
      log.flush();
      return text;
    });
    const { cost, currency, costs: classes, unpriced } = JSON.parse(lines[0] ?? "");
    const [, words] = /tokens {2}(?:(.*) {2})?key /.exec(lines[1] ?? "") ?? [];
    return { cost, currency, classes, unpriced, words };
  }

  it("is in total and by class, without classes that cost nothing", () => {
    assert.deepEqual(read(priced), {
      cost: 0.000046,
      currency: "EUR",
      classes: { input: 0.000006, output: 0.00004 },
      unpriced: undefined,
      words: "0.000046 EUR",
    });
    const parts = [{ classes: { input: 3, output: 4, webSearches: 2 }, tariff }];
    assert.deepEqual(read({ ...priced, usage: { total: 7, parts } }).classes, {
      input: 0.000006,
      output: 0.00004,
      webSearches: 0.02,
    });
    const stated = { ...priced, provider: "s", usage: { total: 7, statedCost: "0.5" } };
    assert.deepEqual(read(stated).classes, { stated: 0.5 });
  });

  it("is a lower bound if a class has no price, and unknown without any price", () => {
    const parts = [{ classes: { input: 3, inputAudio: 5, codeSessions: 1 }, tariff }];
    assert.deepEqual(read({ ...priced, usage: { total: 8, parts } }), {
      cost: 0.000006,
      currency: "EUR",
      classes: { input: 0.000006 },
      unpriced: { inputAudio: 5, codeSessions: 1 },
      words: ">=0.000006 EUR",
    });
    const unknown = { ...priced, model: "other" };
    assert.deepEqual(read(unknown), {
      cost: undefined,
      currency: undefined,
      classes: undefined,
      unpriced: { input: 3, output: 4 },
      words: undefined,
    });
    const { usage: _, ...unused } = priced;
    assert.equal(read(unused).cost, undefined);
  });

  it("is never shown as zero to people", () => {
    const line = (amount: string, more = {}) =>
      toPrettyLine(priced, { amount: parseCost(amount), classes: {}, currency: "EUR", ...more });
    const unpriced = { pages: 1 };
    assert.match(line("0.0000001"), / {2}<0\.000001 EUR {2}/);
    assert.match(line("0.0000001", { unpriced }), / {2}>0 EUR {2}/);
    assert.match(line("12"), / {2}12 EUR {2}/);
    assert.match(line("0"), / {2}0 EUR {2}/);
  });
});

describe("the access log", () => {
  it("writes one JSON object with the exchange, its outcome and its usage", () => {
    assert.deepEqual(JSON.parse(toJsonLine(record)), {
      time: "2026-11-21T12:00:01.000Z",
      id: "0b5c",
      key: "team",
      keyName: "agents",
      team: "search",
      provider: "a",
      replica: 1,
      operation: "chat.completions",
      model: "gpt\u2028-4o",
      stream: true,
      status: 200,
      outcome: "ok",
      bytesIn: 100,
      bytesOut: 2000,
      overheadMs: 0.12,
      firstByteMs: 300.12,
      firstTokenMs: 310.46,
      durationMs: 1234.57,
      inputTokens: 3,
      outputTokens: 4,
      tokens: 7,
      retries: 1,
    });
    assert.doesNotMatch(toJsonLine(record) + toPrettyLine(record), /10\.0\.0\.1|\n/);
  });

  it("marks tokens that are an estimate", () => {
    const { tokens, estimated } = JSON.parse(toJsonLine({ ...record, isEstimated: true }));
    assert.deepEqual([tokens, estimated], [7, true]);
    assert.match(toPrettyLine({ ...record, isEstimated: true }), / {2}7 tokens \(estimated\) {2}/);
  });

  it("has billing classes and tariffs in lines for debugging, without choices of the caller", () => {
    const tariff = { context: 3, tier: "priority", asked: { quality: "odd" } };
    const usage = {
      total: 7,
      parts: [{ classes: { cacheWrite: 3, output: 4 }, tariff }],
      statedCost: "0.01",
    };
    const { parts } = JSON.parse(toJsonLine({ ...record, usage }));
    assert.equal(parts, undefined);
    const line = JSON.parse(toJsonLine({ ...record, usage, withheld: {} }));
    assert.deepEqual(line.parts, [
      { classes: { cacheWrite: 3, output: 4 }, tariff: { context: 3, tier: "priority" } },
    ]);
    assert.equal(line.statedCost, "0.01");
  });

  it("writes the right time in each line, after any other line", () => {
    const start = record.startedAt;
    for (
      const ms of [
        0,
        1,
        9,
        10,
        99.9,
        100,
        999,
        1000,
        1001,
        999,
        59_999,
        60_000,
        86_400_000,
        0,
        -start,
        2e14,
      ]
    ) {
      const expected = new Date(start + ms).toISOString();
      assert.equal(JSON.parse(toJsonLine({ ...record, startedAt: start + ms })).time, expected);
      assert.ok(
        toPrettyLine({ ...record, startedAt: start + ms }).startsWith(
          `${expected.slice(11, 23)}  `,
        ),
      );
    }
  });

  it("is JSON for any model name", () => {
    for (const model of ['"', "\\", '","key":"x', "\n\r\u0000", "\ud800", "😀", "\u2028"]) {
      const line = toJsonLine({ ...record, model });
      assert.doesNotMatch(line, /\n/);
      assert.deepEqual([JSON.parse(line).model, JSON.parse(line).key], [model, "team"]);
    }
  });

  it("writes the same in words for people", () => {
    assert.equal(
      toPrettyLine({ ...record, model: "gpt-4o" }),
      "12:00:01.000  200  ok  a  chat.completions  gpt-4o  stream  1235 ms  (first byte 300 ms)  7 tokens  key agents  team search  0b5c",
    );
    const refused = {
      ...record,
      outcome: "refused",
      code: "invalid_gateway_key",
      status: 401,
    } as const;
    assert.match(toPrettyLine(refused), /401 {2}invalid_gateway_key {2}/);
    assert.match(
      toPrettyLine({ ...record, run: "nightly", repeats: 4 }),
      / {2}run nightly {2}\(same body 4 times in a row\) {2}0b5c$/,
    );
    const failed = {
      ...record,
      outcome: "upstream_failed",
      code: "upstream_unreachable",
      status: 502,
    } as const;
    assert.match(
      toPrettyLine({ ...failed, cause: "dns" }),
      /502 {2}upstream_unreachable \(dns\) {2}/,
    );
  });

  it("writes lines together, and the lines since then when the last write is done", () => {
    const { clock, fire } = manualClock();
    const { write, taken, answer } = manualReader();
    const log = new AccessLog("json", write, clock);
    for (let count = 0; count < 3; count++) log.settled(record);
    assert.equal(taken.length, 0);
    fire();
    assert.equal(taken[0]?.split("\n").length, 4);
    log.settled(record);
    fire();
    assert.equal(taken.length, 1, "the reader has not taken the first ones yet");
    answer();
    assert.equal(taken.length, 2);
    log.settled(record);
    answer();
    assert.equal(
      taken.length,
      2,
      "its time has not come: a reader is not called for a line at a time",
    );
    fire();
    assert.equal(taken.length, 3);
  });

  it("writes a large amount before its time, and has one timer at most", () => {
    const { clock, fire } = manualClock();
    const { write, taken, answer } = manualReader();
    let timers = 0;
    const log = new AccessLog("json", write, {
      ...clock,
      timer: (...timer) => (timers++, clock.timer(...timer)),
    });
    for (let count = 0; count < 3000; count++) {
      log.settled(record);
      answer();
    }
    assert.ok(taken.length > 2, String(taken.length));
    assert.equal(timers, 1);
    fire();
    assert.equal(taken.join("").split("\n").length, 3001);
  });

  it("drops and counts lines for which a stopped reader leaves no room, and reports it when the reader is back", () => {
    const { clock, fire } = manualClock();
    const { write, taken, answer } = manualReader();
    const log = new AccessLog("json", write, clock);
    log.settled(record);
    fire();
    for (let count = 0; count < 50_000; count++) log.settled(record);
    const { dropped } = log;
    assert.ok(dropped > 10_000 && dropped < 50_000, String(dropped));
    answer();
    const lines = taken.join("").trimEnd().split("\n");
    assert.equal(lines.length - 1 + dropped, 50_001);
    assert.equal(JSON.parse(lines.at(-1) ?? "").dropped, dropped);
  });

  it("continues after a write that failed", () => {
    const { clock, fire } = manualClock();
    const { write, taken, answer } = manualReader();
    const log = new AccessLog("json", write, clock);
    log.settled(record);
    fire();
    answer(new Error("EPIPE"));
    assert.equal(log.dropped, 1);
    log.settled(record);
    fire();
    assert.equal(JSON.parse(taken[1]?.split("\n")[1] ?? "").dropped, 1);
  });

  it("waits at its end for the last lines, but not forever", async () => {
    const { write, taken } = manualReader();
    const log = new AccessLog("json", write, systemClock);
    log.settled(record);
    await log.close(50);
    assert.equal(taken.length, 1);
  });
});
