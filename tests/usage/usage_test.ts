/** Usage counts in memory: which exchanges, which tokens, and the bounds. */
// runtimes: once
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import { DEFAULT_RETENTION } from "../../src/config/usage.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { UsageMeter } from "../../src/usage/meter.ts";
import { MemoryUsage, UsageBook } from "../../src/usage/usage_memory.ts";
import { MAX_ROWS, UsageTable } from "../../src/usage/usage_table.ts";
import {
  addCounts,
  DAY_MS,
  HOUR_MS,
  MAX_MODELS,
  noCounts,
  OTHER_NAME,
  payerOf,
  ROWS_A_BATCH,
  type UsageBatch,
  type UsageRow,
} from "../../src/usage/counts.ts";
import { it } from "../support/cases.ts";
import { ALL, DAY, exchange, NOON, rest, StillClock, tell } from "../support/usage.ts";
import { until } from "../support/until.ts";

/** An empty list of models. */
const NOBODY: ReadonlySet<string> = new Set();
const { hoursMs, daysMs } = DEFAULT_RETENTION;

function newMeter(listed: ReadonlySet<string> = NOBODY) {
  const clock = new StillClock();
  const store = new MemoryUsage(listed, () => clock.ms);
  return { clock, meter: new UsageMeter({ store, clock, rest, listed }) };
}

/** Exchanges, and the counts of each. */
const COUNTED: readonly [
  what: string,
  more: Partial<ExchangeRecord>,
  counts: Record<string, number>,
][] = [
  ["one with all its tokens", {}, { requests: 1, input: 3, output: 4 }],
  [
    "cached and reasoning tokens, which are parts",
    { usage: { total: 30, input: 20, output: 10, cached: 15, reasoning: 8 } },
    { requests: 1, input: 20, cached: 15, output: 10, reasoning: 8 },
  ],
  ["a part that is larger than the whole", {
    usage: { total: 3, input: 3, output: 0, cached: 9, reasoning: 1 },
  }, {
    requests: 1,
    input: 3,
    cached: 3,
  }],
  ["an estimate like a statement, and marks it", { isEstimated: true }, {
    requests: 1,
    estimated: 1,
    estimatedInput: 3,
    estimatedOutput: 4,
    input: 3,
    output: 4,
  }],
  ["an estimate of what broke off", { isEstimated: true, outcome: "client_closed", stream: true }, {
    requests: 1,
    estimated: 1,
    estimatedInput: 3,
    estimatedOutput: 4,
    input: 3,
    output: 4,
  }],
  ["a sum alone", { usage: { total: 9 } }, { requests: 1, other: 9 }],
  ["a sum that is more than its parts", { usage: { total: 9, input: 3, output: 4 } }, {
    requests: 1,
    input: 3,
    output: 4,
    other: 2,
  }],
  ["an absurd statement", { usage: { total: 1e13, input: 1e13, output: 0 } }, {
    requests: 1,
    unmetered: 1,
  }],
  ["call without a statement", { usage: undefined as never }, { requests: 1, unmetered: 1 }],
  ["a stream whose caller left after a statement", { outcome: "client_closed", stream: true }, {
    requests: 1,
    partial: 1,
    input: 3,
    output: 4,
  }],
  ["a stream that broke off without one", { outcome: "upstream_cut", usage: undefined as never }, {
    requests: 1,
    unmetered: 1,
  }],
  ["a caller that left before an answer", {
    outcome: "client_closed",
    status: 499,
    usage: undefined as never,
  }, {
    requests: 1,
    unmetered: 1,
  }],
  ["the provider's own refusal", {
    outcome: "upstream_error",
    status: 404,
    usage: undefined as never,
  }, {
    requests: 1,
    failed: 1,
  }],
  ["a stream that ended in the provider's error event", {
    outcome: "upstream_error",
    usage: undefined as never,
  }, {
    requests: 1,
    unmetered: 1,
  }],
  ["call that could not be sent", {
    status: 502,
    outcome: "upstream_failed",
    code: "upstream_unreachable",
    usage: undefined as never,
  }, { requests: 1, failed: 1 }],
  ["call that the provider may have worked on", {
    status: 504,
    outcome: "timeout",
    code: "upstream_first_byte_timeout",
    usage: undefined as never,
  }, { requests: 1, unmetered: 1 }],
];

/** Exchanges that are not counted. */
const LEFT_OUT: readonly [what: string, more: Partial<ExchangeRecord>][] = [
  ["what the gateway refused", { status: 429, outcome: "refused", code: "rate_limit_exceeded" }],
  ["what the gateway shed", { status: 503, outcome: "shed", code: "gateway_overloaded" }],
  ["operations that cost no tokens", { operation: "models.list", isMetered: false }],
  ["callers without a key", { keyId: undefined as never }],
  ["bodies that could not be read", { model: undefined as never }],
];

describe("usage", () => {
  for (const [what, more, counts] of COUNTED) {
    it(`counts ${what}`, async () => {
      const { meter } = newMeter(new Set(["gpt-4o"]));
      meter.settled(exchange(more));
      assert.deepEqual(await tell(meter), { "team a gpt-4o": counts });
      assert.deepEqual(await tell(meter, { step: "day", from: DAY, to: DAY + 1 }), {
        "team a gpt-4o": counts,
      });
    });
  }

  for (const [what, more] of LEFT_OUT) {
    it(`does not count ${what}`, async () => {
      const { meter, clock } = newMeter();
      meter.settled(exchange(more));
      assert.deepEqual(await tell(meter), {});
      assert.equal(clock.timers.length, 0);
    });
  }

  it("counts every operation that costs tokens, and a call without a model as other", async () => {
    const { meter } = newMeter();
    meter.settled(exchange({ operation: "embeddings.create", genAi: "embeddings", model: "e-1" }));
    meter.settled(
      exchange({ operation: "responses.create", model: undefined as never, replica: 0 }),
    );
    const one = { requests: 1, input: 3, output: 4 };
    assert.deepEqual(await tell(meter), { "team a e-1": one, [`team a ${OTHER_NAME}`]: one });
  });

  it("distinguishes keys, providers and models, and counts an exchange at the hour of its end", async () => {
    const { meter } = newMeter();
    for (const more of [{}, { keyId: "two" }, { provider: "b" }, { model: "o3" }]) {
      meter.settled(exchange(more));
    }
    meter.settled(exchange({ startedAt: NOON + HOUR_MS - 5 }));
    const one = { requests: 1, input: 3, output: 4 };
    const all = {
      "team a gpt-4o": one,
      "two a gpt-4o": one,
      "team b gpt-4o": one,
      "team a o3": one,
    };
    assert.deepEqual(await tell(meter, { from: NOON, to: NOON + 1 }), all);
    assert.deepEqual(await tell(meter, { from: NOON + HOUR_MS, to: NOON + HOUR_MS + 1 }), {
      "team a gpt-4o": one,
    });
    const both = { requests: 2, input: 6, output: 8 };
    assert.deepEqual(await tell(meter, { step: "day" }), { ...all, "team a gpt-4o": both });
  });

  it("corrects the row of the payer whose call was estimated", async () => {
    const { meter } = newMeter();
    const estimate = { total: 100, input: 50, output: 50 };
    for (const usesHeldKey of [true, false]) {
      const { startedAt, durationMs, operation } = exchange();
      meter.settled(exchange({ usesHeldKey, usage: estimate, isEstimated: true }));
      if (!usesHeldKey) continue;
      meter.restated({
        ...{ startedAt, durationMs, operation: operation ?? "", keyId: "team", provider: "a" },
        ...{ team: undefined, plan: undefined, model: "gpt-4o", usesHeldKey, estimate },
        stated: { total: 7, input: 3, output: 4 },
      });
    }
    const found: unknown[] = [];
    for await (const rows of meter.read({ step: "hour", ...ALL })) {
      for (const row of rows) {
        const { estimated, input } = row.counts;
        found.push([payerOf(row), estimated, input]);
      }
    }
    assert.deepEqual(found.toSorted(), [["caller", 1, 50], ["gateway", 0, 3]]);
  });

  it("uses a separate name for a model that its provider has answered for", async () => {
    const { meter } = newMeter();
    const refused = {
      model: "o9",
      outcome: "upstream_error",
      status: 404,
      usage: undefined as never,
    } as const;
    meter.settled(exchange(refused));
    meter.settled(exchange({ model: "o3" }));
    meter.settled(exchange({ ...refused, model: "o3" }));
    assert.deepEqual(await tell(meter), {
      [`team a ${OTHER_NAME}`]: { requests: 1, failed: 1 },
      "team a o3": { requests: 2, failed: 1, input: 3, output: 4 },
    });
  });

  it("flushes once a second, in batches that count once however often they are tried", async () => {
    const clock = new StillClock();
    const tries: UsageBatch[] = [];
    let isAway = true;
    const store = {
      backend: "memory" as const,
      add(batch: UsageBatch) {
        tries.push(batch);
        return isAway ? Promise.reject(new Error("away")) : Promise.resolve();
      },
      async *read() {},
      close: () => Promise.resolve(),
    };
    const meter = new UsageMeter({ store, clock, rest, listed: NOBODY });
    for (let count = 0; count < 3; count++) meter.settled(exchange());
    assert.deepEqual(clock.timers.map(({ ms }) => ms), [1000]);
    clock.fire();
    await until(() => clock.timers.length === 1, "the next try");
    meter.settled(exchange());
    assert.equal(clock.timers.length, 1);
    isAway = false;
    clock.fire();
    await until(() => tries.length === 3, "both batches");
    assert.deepEqual(tries.map(({ number }) => number), [1, 1, 2]);
    assert.equal(tries[0], tries[1]);
    assert.deepEqual(tries.map(({ rows }) => rows.map(({ counts }) => counts.requests)), [
      [3],
      [3],
      [1],
    ]);
    await meter.close();
    assert.equal(tries.length, 3);
  });

  it("flushes the rest when it closes, also the counts of others", async () => {
    const { meter, clock } = newMeter();
    const counts = { ...noCounts(), requests: 1, reasoning: 7 };
    meter.add([{
      at: NOON,
      key: "team",
      provider: "a",
      model: "o3",
      operation: "responses",
      counts,
    }]);
    assert.equal(clock.timers.length, 1);
    await meter.close();
    assert.equal((await tell(meter))["team a o3"]?.reasoning, 7);
  });

  for (const [failures, taken] of [[3, 1], [99, 0]] as const) {
    it(`tries again while it closes, until the store accepts it or five seconds have passed: ${failures} failures`, async () => {
      const clock = new StillClock();
      const added: UsageBatch[] = [];
      let tries = 0;
      let isClosed = false;
      const store = {
        backend: "memory" as const,
        add: (batch: UsageBatch) =>
          ++tries > failures
            ? Promise.resolve(void added.push(batch))
            : Promise.reject(new Error("busy")),
        async *read() {},
        close: () => Promise.resolve(void (isClosed = true)),
      };
      const meter = new UsageMeter({ store, clock, rest, listed: NOBODY });
      meter.settled(exchange());
      clock.fire();
      await until(() => tries === 1, "the first try");
      clock.timers.length = 0;
      const closing = meter.close();
      while (!isClosed) {
        await until(() => clock.timers.length > 0 || isClosed, "the next try").then(() =>
          clock.fire()
        );
      }
      await closing;
      assert.deepEqual([tries, added.length], [failures === 3 ? 4 : 21, taken]);
    });
  }

  it.large("keeps its bounds through 100,000 exchanges of random models and keys", async () => {
    const { meter, clock } = newMeter(new Set(["gpt-4o"]));
    const exchanges = 100_000;
    const record: { -readonly [Name in keyof ExchangeRecord]: ExchangeRecord[Name] } = exchange();
    for (let count = 0; count < exchanges; count++) {
      record.model = `model-${count}`;
      record.keyId = count % 2 === 0 ? "team" : `key-${count}`;
      meter.settled(record);
    }
    record.keyId = "team";
    record.model = "gpt-4o";
    meter.settled(record);
    await meter.close();
    assert.ok(clock.timers.length <= 1);
    for (const step of ["hour", "day"] as const) {
      const told = await tell(meter, { step });
      const rows = Object.keys(told);
      assert.equal(rows.length, exchanges / 2 + MAX_MODELS + 2, "every key has its own");
      assert.equal(rows.filter((row) => row.startsWith("team ")).length, MAX_MODELS + 2);
      assert.equal(told["team a gpt-4o"]?.requests, 1, "what has a price is named");
      const sum = (name: "requests" | "input") =>
        rows.reduce((all, row) => all + (told[row]?.[name] ?? 0), 0);
      assert.equal(sum("requests"), exchanges + 1, "nothing is lost");
      assert.equal(sum("input"), 3 * (exchanges + 1));
    }
  });

  it("keeps every key while the store accepts no counts for days", async () => {
    const clock = new StillClock();
    let isAway = true;
    const taken: UsageRow[] = [];
    const store = {
      backend: "memory" as const,
      add: ({ rows }: UsageBatch) =>
        isAway ? Promise.reject(new Error("away")) : Promise.resolve(void taken.push(...rows)),
      async *read() {},
      close: () => Promise.resolve(),
    };
    const meter = new UsageMeter({ store, clock, rest, listed: NOBODY });
    for (let hour = 0; hour < 48; hour++) {
      for (let key = 0; key < 3000; key++) {
        meter.settled(exchange({ keyId: `key-${key}`, startedAt: NOON + hour * HOUR_MS }));
      }
    }
    assert.equal(clock.timers.length, 1);
    isAway = false;
    await meter.close();
    assert.equal(taken.length, 48 * 3000);
    assert.equal(
      taken.reduce((sum, { counts }) => sum + counts.requests, 0),
      48 * 3000,
      "nothing is lost",
    );
  });
});

describe("usage of 250,000 keys in an hour", () => {
  it.large("is flushed in turns, none of which is long", async () => {
    const batches: number[] = [];
    const keys = new Set<string>();
    let rests = 0;
    const store = {
      backend: "memory" as const,
      add({ rows }: UsageBatch) {
        batches.push(rows.length);
        for (const { key } of rows) keys.add(key);
        return Promise.resolve();
      },
      async *read() {},
      close: () => Promise.resolve(),
    };
    const counting = () => Promise.resolve(void rests++);
    const meter = new UsageMeter({
      store,
      clock: new StillClock(),
      rest: counting,
      listed: NOBODY,
    });
    for (let key = 0; key < 250_000; key++) meter.settled(exchange({ keyId: `key-${key}` }));
    await meter.close();
    assert.equal(keys.size, 250_000);
    assert.ok(batches.every((rows) => rows <= ROWS_A_BATCH));
    assert.equal(rests, 250_000 / ROWS_A_BATCH);
  });
});

describe("the book of usage", () => {
  const row = (more: Partial<UsageRow>): UsageRow => ({
    at: NOON,
    key: "team",
    provider: "a",
    model: "m",
    operation: "chat.completions",
    counts: { ...noCounts(), requests: 1, input: 5 },
    ...more,
  });

  it("keeps hours for a week and a day, days for a year and a month", () => {
    const book = new UsageBook(NOBODY);
    const now = NOON;
    book.add(row({ at: now - hoursMs }));
    book.add(row({ at: now - hoursMs - 2 * HOUR_MS }));
    book.add(row({ at: now - daysMs }));
    book.add(row({ at: now - daysMs - 3 * DAY_MS }));
    book.forget(now);
    assert.deepEqual(Array.from(book.read({ step: "hour", ...ALL }), ({ at }) => now - at), [
      hoursMs,
    ]);
    assert.equal(Array.from(book.read({ step: "day", ...ALL })).length, 2);
  });

  it.large("forgets the oldest hours first when there is too much, and their days keep the sums", () => {
    const book = new UsageBook(NOBODY);
    for (let hour = 0; hour < 11; hour++) {
      for (let key = 0; key < 100_000; key++) {
        book.addTo("hour", row({ at: DAY + hour * HOUR_MS, key: `key-${key}` }));
      }
    }
    book.addTo("day", row({ at: DAY }));
    book.forget(NOON);
    assert.ok(book.rows <= MAX_ROWS);
    const hours = new Set(
      Array.from(book.read({ step: "hour", ...ALL }), ({ at }) => (at - DAY) / HOUR_MS),
    );
    assert.deepEqual(Array.from(hours), [2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert.equal(Array.from(book.read({ step: "day", ...ALL })).length, 1);
  });

  it("never grows beyond exact numbers", () => {
    const sums = { ...noCounts(), requests: Number.MAX_SAFE_INTEGER - 1 };
    addCounts(sums, { ...noCounts(), requests: 5 });
    assert.equal(sums.requests, Number.MAX_SAFE_INTEGER);
  });

  it("keeps counts for the configured time", () => {
    const book = new UsageBook(NOBODY, { hoursMs: 2 * HOUR_MS, daysMs: 3 * DAY_MS });
    for (const ago of [1, 4]) book.addTo("hour", row({ at: NOON - ago * HOUR_MS }));
    for (const ago of [1, 5]) book.addTo("day", row({ at: DAY - ago * DAY_MS }));
    book.forget(NOON);
    assert.equal(Array.from(book.read({ step: "hour", ...ALL })).length, 1);
    assert.equal(Array.from(book.read({ step: "day", ...ALL })).length, 1);
  });

  it("finds each of many rows of one key", () => {
    const table = new UsageTable(new Set(["m"]), 1000);
    const providers = Array.from({ length: 40 }, (_, index) => `p${index}`);
    for (let turn = 0; turn < 2; turn++) {
      for (const provider of providers) {
        table.add(row({ provider, key: "one", counts: { ...noCounts(), requests: 1 } }));
      }
    }
    const found = Array.from(
      table.rowsAt(0),
      ({ provider, counts }) => [provider, counts.requests],
    );
    assert.deepEqual(found, providers.map((provider) => [provider, 2]));
  });

  it("counts new names for all keys together once a table is full", () => {
    const table = new UsageTable(new Set(["gpt-4o"]), 2);
    const once = { ...noCounts(), requests: 1 };
    const names = { provider: "a", model: "gpt-4o", operation: "chat.completions" };
    for (const key of ["one", "two", "three", "four"]) {
      addCounts(table.open({ ...names, key }).counts, once);
    }
    addCounts(table.open({ ...names, key: "one" }).counts, once);
    const rows = Array.from(
      table.rowsAt(0),
      ({ key, model, counts }) => [key, model, counts.requests],
    );
    assert.deepEqual(rows, [["one", "gpt-4o", 2], ["two", "gpt-4o", 1], [OTHER_NAME, "gpt-4o", 2]]);
  });
});
