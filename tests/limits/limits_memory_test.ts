/**
 * Limits in memory: the suite of all limiters, and a simple model under random clocks and orders.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import { type LimitSubject, NO_RESERVATION } from "../../src/limits/limiter.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import type { Clock } from "../../src/exchange/clock.ts";
import type { LimitSet } from "../../src/config/limit_set.ts";
import { commandsFor, LogLimiter, runPair, type StillClock } from "./limits_model.ts";
import { describeLimiter, keyWith, tokens, usedOf } from "./limits_suite.ts";
import { it } from "../support/cases.ts";

function createClock(): Clock & StillClock {
  return {
    wall: Date.UTC(2026, 1, 27, 23, 0),
    passed: 0,
    now() {
      return this.wall;
    },
    monotonic() {
      return this.passed;
    },
    timer: () => () => {},
  };
}

const move = (clock: StillClock, ms: number) => {
  clock.wall += ms;
  clock.passed += ms;
};

describeLimiter("in memory", () => {
  const clock = createClock();
  const limiter = new MemoryLimiter(clock);
  return {
    limiter,
    now: () => clock.now(),
    pass: (ms) => move(clock, ms),
    close() {},
  };
});

const MINUTE = 60_000;

describe("limits in memory compared with a model", () => {
  it.large("answer like a log that is added up each time, for any clock and order", async () => {
    const rate = fc.option(
      fc.record({
        limit: fc.integer({ min: 1, max: 30 }),
        windowMs: fc.integer({ min: 1, max: 2 * MINUTE }),
      }),
      { nil: undefined },
    );
    const limits: fc.Arbitrary<LimitSet> = fc.record({
      requests: rate,
      tokens: rate,
      budget: fc.option(
        fc.record({
          limit: fc.integer({ min: 1, max: 100 }),
          period: fc.constantFrom("day" as const, "week" as const, "month" as const),
        }),
        { nil: undefined },
      ),
      concurrency: fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined }),
      spend: fc.option(
        fc.record({
          limit: fc.integer({ min: 1, max: 100 }),
          period: fc.constantFrom("day" as const, "week" as const, "month" as const),
          currency: fc.constant("USD"),
        }),
        { nil: undefined },
      ),
      mode: fc.constantFrom(undefined, "enforce" as const, "observe" as const, "strict" as const),
    });
    const steps = fc.oneof(fc.nat(1000), fc.nat(2 * MINUTE), fc.nat(40 * 24 * 60 * MINUTE));
    const runs = fc.array(limits, { minLength: 1, maxLength: 3 })
      .chain((sets) =>
        commandsFor({ subjects: sets.map(keyWith), steps, toleranceMs: 0, length: 60 })
      );
    let taken = 0;
    await fc.assert(
      fc.asyncProperty(runs, async (commands) => {
        const [clock, modelClock] = [createClock(), createClock()];
        const limiter = new MemoryLimiter(clock);
        const model = new LogLimiter(modelClock);
        await runPair(
          { limiter: model, pass: (ms) => move(modelClock, ms) },
          { limiter, pass: (ms) => move(clock, ms) },
          commands,
        );
        taken++;
      }),
      { numRuns: 1000 },
    );
    assert.equal(taken, 1000);
  });
});

describe("limits in memory over time", () => {
  const use = async (limiter: MemoryLimiter, key: LimitSubject, count = 0) =>
    (await limiter.acquire([key], NO_RESERVATION)).release(tokens(count));

  it("keep the use of a longer window if a call ends that was admitted by a shorter one", async () => {
    const clock = createClock();
    const limiter = new MemoryLimiter(clock);
    const daily = keyWith({ budget: { limit: 10_000, period: "day" } });
    const monthly = { ...daily, limits: { budget: { limit: 100_000, period: "month" as const } } };
    const [charged, used] = [tokens(10), tokens(2000)];
    const open = await limiter.acquire([daily], { expected: charged, most: charged });
    move(clock, 3 * 24 * 60 * MINUTE);
    await use(limiter, monthly, 500);
    open.release(used);
    assert.deepEqual(await usedOf(limiter, monthly), { budget: 500 + 1990 });
    limiter.correct([daily], { charged, used, ageMs: 3 * 24 * 60 * MINUTE });
    assert.deepEqual(await usedOf(limiter, monthly), { budget: 500 + 2 * 1990 });
  });

  it("forget subjects without usage, and no others", async () => {
    const clock = createClock();
    const limiter = new MemoryLimiter(clock);
    const lasting = keyWith({ budget: { limit: 100, period: "day" } });
    await use(limiter, lasting, 7);
    const held = await limiter.acquire([keyWith({ concurrency: 1 })], NO_RESERVATION);
    const brief = Array.from(
      { length: 1000 },
      () => keyWith({ requests: { limit: 9, windowMs: MINUTE } }),
    );
    for (const key of brief) {
      await use(limiter, key);
      assert.deepEqual(limiter.statuses([keyWith({ concurrency: 1 })]).map(({ used }) => used), [
        0,
      ]);
    }
    assert.ok(limiter.size >= 1002);
    move(clock, MINUTE);
    for (let number = 0; number < 1000; number++) await use(limiter, lasting);
    assert.equal(limiter.size, 2);
    held.release(tokens(1));
    for (let number = 0; number < 10; number++) await use(limiter, lasting);
    assert.equal(limiter.size, 1);
    assert.equal(limiter.statuses([lasting])[0]?.used, 7);
  });

  it("keep budgets after their process ends", async () => {
    const clock = createClock();
    const [day, month] = [
      keyWith({ budget: { limit: 100, period: "day" } }),
      keyWith({ budget: { limit: 100, period: "month" } }),
    ];
    const before = new MemoryLimiter(clock);
    await use(before, day, 60);
    await use(before, month, 70);
    await use(before, keyWith({ budget: { limit: 100, period: "day" } }));
    const spent = JSON.parse(JSON.stringify([...before.budgets()]));
    assert.equal(spent.length, 2, "those that have spent anything");
    const after = new MemoryLimiter(clock);
    after.restoreBudgets(spent);
    assert.deepEqual([...after.budgets()], spent);
    await use(after, day, 40);
    assert.throws(() => after.acquire([day], NO_RESERVATION), /100\/day/);
    move(clock, 60 * MINUTE); // to the next day, not yet to the next month
    const later = new MemoryLimiter(clock);
    later.restoreBudgets(spent);
    assert.deepEqual(later.statuses([day, month]).map(({ used }) => used), [0, 70]);
  });

  // The count of a month must not last beyond the month. It also must not lock a key out whose
  // budget is now daily.
  it("start a budget again when its period gets shorter, and when the wall clock is set back by much", async () => {
    const clock = createClock();
    const limiter = new MemoryLimiter(clock);
    const key = keyWith({ budget: { limit: 100, period: "month" } });
    await use(limiter, key, 100);
    const daily: LimitSubject = {
      name: key.name,
      limits: { budget: { limit: 50, period: "day" } },
    };
    await use(limiter, daily, 50);
    assert.throws(() => limiter.acquire([daily], NO_RESERVATION), /50\/day/);
    clock.wall -= 500; // as clocks are corrected
    assert.throws(() => limiter.acquire([daily], NO_RESERVATION), /50\/day/);
    clock.wall -= 24 * 60 * MINUTE;
    await use(limiter, daily, 50);
  });

  it("count windows by the monotonic clock", async () => {
    const clock = createClock();
    const limiter = new MemoryLimiter(clock);
    const key = keyWith({ requests: { limit: 1, windowMs: MINUTE } });
    await use(limiter, key);
    for (const jump of [-1e9, 2e9]) {
      clock.wall += jump;
      assert.throws(() => limiter.acquire([key], NO_RESERVATION), /1\/min/);
    }
  });
});
