/** Usage by billing class and tariff: the stored rows suffice to price it by any table. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import * as v from "valibot";
import { formatCost, toNano } from "../../src/config/cost.ts";
import { PriceBook, type PriceSettings } from "../../src/config/price_book.ts";
import { type Price, PricesSchema } from "../../src/config/prices.ts";
import {
  BILLING_CLASSES,
  type BillingClass,
  type Tariff,
  type TokenUsage,
  type UsagePart,
} from "../../src/exchange/billing.ts";
import { moneyOf } from "../../src/steps/call_price.ts";
import { addClasses, toClasses } from "../../src/usage/classes.ts";
import {
  DAY_MS,
  HOUR_MS,
  noCounts,
  type UsageRow,
  type UsageStep,
} from "../../src/usage/counts.ts";
import { UsageMeter } from "../../src/usage/meter.ts";
import { RowPricing } from "../../src/usage/row_cost.ts";
import { addRow, newGroup, toSums } from "../../src/usage/sums.ts";
import { readTariff, timeOf, writeTariff } from "../../src/usage/tariff.ts";
import { MemoryUsage } from "../../src/usage/usage_memory.ts";
import type { OpenCounts } from "../../src/usage/usage_table.ts";
import { ALL, DAY, exchange, NOON, rest, StillClock } from "../support/usage.ts";

const at = NOON;

function write(tariff: Partial<Tariff>, more: { price?: Price; at?: number } = {}): string {
  const facts = { isStated: false, price: undefined, at, ...more };
  return writeTariff({ ...facts, tariff: { context: 0, ...tariff } }) ?? "";
}

describe("the tariff of a row", () => {
  it("is empty for the standard tariff, whatever its names", () => {
    for (const tier of [undefined, "default", "standard", "auto", "on_demand"]) {
      for (const geo of [undefined, "global", "not_available"]) {
        assert.equal(write({ tier, geo, context: 99_999 }), "");
      }
    }
    const { tariff, isStated, time } = readTariff();
    assert.deepEqual([tariff.tier, tariff.geo, tariff.context, isStated, time], [
      undefined,
      undefined,
      0,
      false,
      0,
    ]);
  });

  it("has the tier, the region and the threshold that the context exceeds", () => {
    assert.equal(write({ tier: "priority", geo: "us", context: 300_000 }), "priority,us,272k");
    assert.equal(write({ geo: "us" }), ",us");
    assert.equal(write({ context: 1e6 }), ",,512k");
    assert.equal(
      writeTariff({ tariff: { context: 1 }, at, isStated: true, price: undefined }),
      ",,,stated",
    );
  });

  it("decides thresholds of both kinds: above a number of tokens, and from it on", () => {
    for (const threshold of [100_000, 128_000, 200_000, 256_000, 272_000, 512_000]) {
      for (const context of [threshold - 1, threshold, threshold + 1]) {
        const read = readTariff(write({ context })).tariff.context;
        assert.equal(read > threshold, context > threshold);
        assert.equal(read >= threshold, context >= threshold);
      }
    }
    assert.equal(write({ context: 200_000 }), ",,200000");
    const price = { input: 1, rows: [{ when: { over: 32_000 }, rates: { input: 2 } }] };
    assert.equal(write({ context: 32_000 }, { price }), "");
    assert.equal(write({ context: 32_001 }, { price }), ",,32k");
  });

  it("has the choices of the caller only if a row of the price names it", () => {
    const asked = { size: "1024x1024", quality: "high" };
    assert.equal(write({ asked }), "");
    const rows = [{ when: { asked: { quality: "high" } }, rates: { images: 40 } }];
    const text = write({ asked }, { price: { rows } });
    assert.equal(text, ",,,quality=high");
    assert.deepEqual(readTariff(text).tariff.asked, { quality: "high" });
    assert.equal(write({ asked: { quality: "low" } }, { price: { rows } }), "");
  });

  it("has the part of the day that the price distinguishes", () => {
    const hours = [{ days: [1, 2, 3, 4, 5], from: "01:00", to: "04:00" }];
    const price = {
      input: 1,
      rows: [
        { when: { hours }, rates: { input: 2 } },
        { when: { since: "2026-11-21T16:00:30Z" }, rates: { input: 3 } },
      ],
    };
    const texts = [0, 1, 3, 4, 15, 17].map((hour) =>
      write({}, { price, at: DAY + hour * HOUR_MS })
    );
    assert.deepEqual(texts, [
      "",
      ",,,@01:00",
      ",,,@01:00",
      ",,,@04:00",
      ",,,@04:00",
      ",,,@16:00:30",
    ]);
    assert.equal(write({}, { price, at: DAY + DAY_MS }), "", "the next day has no change");
    assert.equal(timeOf(DAY, readTariff(",,,@16:00:30")), Date.parse("2026-11-21T16:00:30Z"));
    assert.equal(timeOf(DAY + 17 * HOUR_MS, readTariff(",,,@16:00")), DAY + 17 * HOUR_MS);
  });

  it("keeps odd names of providers, bounds their length, and knows no fact of a later version", () => {
    const odd = 'a,b=c@d"\ud800 é';
    assert.equal(readTariff(write({ tier: odd })).tariff.tier, odd);
    assert.match(write({ tier: odd }), /^[\w%.]+$/);
    assert.equal(write({ tier: "x".repeat(65) }), "(other)");
    assert.equal(readTariff("priority,,,batch").tariff.tier, "priority,,,batch", "no price");
  });
});

const sum = (open: OpenCounts) => ({ counts: open.counts, more: open.more });

describe("the counts of a row", () => {
  it("give back each billing class", () => {
    const open = { counts: noCounts(), more: undefined };
    const classes: Record<string, number> = {};
    for (const [index, name] of BILLING_CLASSES.entries()) {
      if (name !== "requests") classes[name] = index + 1;
    }
    open.counts.requests = classes.requests = 7;
    addClasses(open, { ...classes, requests: 0 }, false);
    assert.deepEqual(toClasses(sum(open)), classes);
    assert.deepEqual([open.counts.cached, open.counts.reasoning], [
      5 + 6 + 7,
      11,
    ]);
  });

  it("are as long as their last class, so that a row of text has no more counts than before", () => {
    const open: OpenCounts = { counts: noCounts(), more: undefined };
    addClasses(open, { input: 3, cacheRead: 2, output: 1, reasoning: 1 }, false);
    assert.equal(open.more, undefined);
    addClasses(open, { cacheWrite: 5, cacheWriteLong: 2 }, false);
    assert.deepEqual(open.more, [7, 2]);
  });
});

const PRICES = {
  "claude*": {
    input: 4,
    output: 20,
    cacheRead: 0.2,
    cacheWrite: 5,
    cacheWriteLong: 8,
    webSearches: 10,
    requests: 0.5,
    rows: [
      {
        when: { over: 200_000 },
        rates: { input: 8, output: 30, cacheRead: 0.4, cacheWrite: 10, cacheWriteLong: 16 },
      },
      { when: { since: "2026-11-21T13:30:00Z" }, rates: { input: 3, output: 15 } },
    ],
    factors: [{ when: { tier: "fast" }, times: 2 }, { when: { geo: "us" }, times: "1.1" }],
  },
  "grok": {
    input: 3,
    output: 15,
    rows: [{ when: { from: 200_000 }, rates: { input: 6, output: 30 } }],
  },
  "night": {
    input: 2,
    output: 4,
    rows: [{
      when: { hours: [{ days: [6], from: "06:00", to: "10:00" }] },
      rates: { input: 4, output: 8 },
    }],
  },
};
const SETTINGS: PriceSettings = {
  prices: v.parse(PricesSchema, PRICES),
  providers: { a: {}, states: { statesCost: true } },
};

/** A generator of numbers (mulberry32): the same calls in each run. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const MODELS = ["claude-5", "grok", "night", "unknown"];
const CLASSES: readonly BillingClass[] = [
  "input",
  "cacheRead",
  "cacheWrite",
  "cacheWriteLong",
  "output",
  "reasoning",
  "inputAudio",
  "webSearches",
];

function randomPart(random: (below: number) => number, model?: string): UsagePart {
  const classes: Partial<Record<BillingClass, number>> = {};
  for (const name of CLASSES) if (random(2) === 0) classes[name] = random(100_000);
  const context = [random(100_000), 200_000, 200_001, random(900_000)][random(4)] ?? 0;
  const tier = [undefined, "standard", "fast", "batch"][random(4)];
  const tariff = { tier, geo: ["us", "global", undefined][random(3)], context };
  return { ...(model !== undefined && { model }), classes, tariff };
}

function randomUsage(random: (below: number) => number): TokenUsage {
  const total = random(1000);
  if (random(5) === 0) return { total, input: Math.min(total, 300), output: 0 };
  const parts = [randomPart(random)];
  if (random(4) === 0) parts.unshift(randomPart(random, MODELS[random(4)]));
  const statedCost = `0.${String(random(1e9)).padStart(10, "0")}`;
  return { total, parts, ...(random(3) === 0 && { statedCost }) };
}

async function rowsOf(meter: UsageMeter, step: UsageStep): Promise<UsageRow[]> {
  const rows: UsageRow[] = [];
  for await (const some of meter.read({ step, ...ALL })) rows.push(...some);
  return rows;
}

describe("the cost of usage", () => {
  it("of a sum is the sum of the costs of its calls, by hour and by day", async () => {
    const random = randomFrom(36);
    const book = new PriceBook(SETTINGS);
    const clock = new StillClock();
    const listed: ReadonlySet<string> = new Set(MODELS);
    const store = new MemoryUsage(listed, () => clock.now());
    const meter = new UsageMeter({
      store,
      clock,
      rest,
      listed,
      findPrice: (row) => book.find(row),
    });
    let cost = 0n;
    const unpriced: Record<string, number> = {};
    for (let call = 0; call < 3000; call++) {
      const usage = randomUsage(random);
      const names = {
        provider: ["a", "states"][random(2)] ?? "",
        model: MODELS[random(4)] ?? "",
      };
      const startedAt = DAY + random(DAY_MS);
      meter.settled(exchange({ ...names, usage, startedAt, keyId: `k${random(3)}` }));
      const ended = startedAt + 10;
      const { amount: paid = 0n, unpriced: amounts = {} } = book.costOf(usage, names, ended);
      cost += paid;
      for (const [name, amount] of Object.entries(amounts)) {
        unpriced[name] = (unpriced[name] ?? 0) + amount;
      }
    }
    assert.ok(cost > 0n && (unpriced.inputAudio ?? 0) > 0);
    const pricing = new RowPricing(SETTINGS as never);
    for (const step of ["hour", "day"] as const) {
      const [whole, byClass] = [newGroup([]), newGroup([])];
      for (const row of await rowsOf(meter, step)) {
        addRow(whole, row, pricing.costOf(row));
        for (const part of pricing.byClass(row)) addRow(byClass, part.row, part.cost);
      }
      const sums = toSums(whole);
      assert.equal(sums.cost, formatCost(cost), step);
      assert.equal(sums.costIsPartial, true);
      const found = Object.entries(sums.unpricedClasses ?? {}).sort();
      assert.deepEqual(found, Object.entries(unpriced).filter(([, sum]) => sum > 0).sort());
      assert.deepEqual(toSums(byClass), sums, "the classes are the whole");
    }
  });

  it("is the statement of the provider only if the configuration says so", async () => {
    const clock = new StillClock();
    const store = new MemoryUsage(new Set(), () => clock.now());
    const meter = new UsageMeter({ store, clock, rest, listed: new Set() });
    const usage = { total: 2e6, input: 1e6, output: 1e6 };
    for (const statedCost of ["0.00014775", "0.12345678901", "1e-7", undefined]) {
      const stated = { ...usage, ...(statedCost !== undefined && { statedCost }) };
      meter.settled(exchange({ provider: "states", model: "grok", usage: stated }));
    }
    const rows = await rowsOf(meter, "hour");
    const costOf = (statesCost: boolean) => {
      const group = newGroup([]);
      const providers = { states: { statesCost } } as never;
      const pricing = new RowPricing({ prices: SETTINGS.prices, providers });
      for (const row of rows) addRow(group, row, pricing.costOf(row));
      return toSums(group);
    };
    // Two statements, rounded up at the tenth decimal. The others are computed, 36 for each call.
    const row = costOf(true);
    assert.equal(row.cost, "72.1236045391");
    assert.equal(row.statedCost, 1_236_045_391);
    assert.equal(costOf(false).cost, "144");
  });

  it("of another model in the same call counts in its row, without a request", async () => {
    const clock = new StillClock();
    const store = new MemoryUsage(new Set(), () => clock.now());
    const meter = new UsageMeter({ store, clock, rest, listed: new Set() });
    const parts = [
      { model: "advisor", classes: { input: 5 }, tariff: { context: 5 } },
      { classes: { output: 3 }, tariff: { context: 0, tier: "fast" } },
    ];
    meter.settled(exchange({ usage: { total: 8, parts } }));
    const rows = (await rowsOf(meter, "day")).map(({ model, tariff, counts }) => [
      model,
      tariff,
      counts.requests,
      counts.input,
      counts.output,
    ]);
    assert.deepEqual(rows, [["advisor", undefined, 0, 5, 0], ["gpt-4o", "fast", 1, 0, 3]]);
  });

  it("of another model in the same call costs a budget as much as it costs in reports", () => {
    const book = new PriceBook({
      ...SETTINGS,
      prices: v.parse(PricesSchema, {
        named: { input: 1, output: 2, requests: 30 },
        advisor: { input: 4, output: 5, requests: 600 },
      }),
    });
    const called = { provider: "a", model: "named" };
    const price = book.find(called) ?? assert.fail("no price");
    const parts = [
      { model: "advisor", classes: { input: 1000 }, tariff: { context: 1000 } },
      { classes: { output: 1000 }, tariff: { context: 0 } },
    ];
    const usage = { total: 2000, parts };
    const charge = moneyOf(usage, { book, provider: "a", settings: {}, price, at });
    assert.equal(charge, 0.036 * 1e9); // 0.004 + 0.002 + 30 / 1000
    assert.equal(toNano(book.costOf(usage, called, at).amount ?? 0n), charge);
  });

  it("is bounded in its tariffs for any answer of a provider", async () => {
    const clock = new StillClock();
    const store = new MemoryUsage(new Set(), () => clock.now());
    const meter = new UsageMeter({ store, clock, rest, listed: new Set() });
    for (let call = 0; call < 1500; call++) {
      const parts = [{ classes: { input: 1 }, tariff: { context: 0, tier: `t${call}` } }];
      meter.settled(exchange({ usage: { total: 1, parts } }));
    }
    const tariffs = new Set((await rowsOf(meter, "day")).map(({ tariff }) => tariff));
    assert.ok(tariffs.size <= 1001 && tariffs.has("(other)"), String(tariffs.size));
  });
});
