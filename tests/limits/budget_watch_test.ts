/** The watch of budgets: periods, bounds, and its questions to limiters. */
// runtimes: once
import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { beforeEach, describe, it } from "@std/testing/bdd";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { BudgetWatch, MAX_WATCHED, type ReachedBudget } from "../../src/limits/budget_watch.ts";
import type { Limiter, LimitStatus, LimitSubject } from "../../src/limits/limiter.ts";

const NOON = Date.UTC(2027, 0, 31, 12);
const DAY_MS = 86_400_000;
const subjectOf = (name: string, limit = 100): LimitSubject => ({
  name,
  limits: { budget: { limit, period: "day" } },
});
const status = (used: number, subject = subjectOf("key:x")): LimitStatus => {
  const { limit = 0 } = subject.limits.budget ?? {};
  return { subject, name: "budget", limit, used, resetMs: 1 };
};
const amounts = (tokens: number) => ({ tokens, spend: 0 });

describe("the watch of budgets", () => {
  let now = NOON;
  let reached: ReachedBudget[] = [];
  let watch: BudgetWatch;
  const clock: Clock = { ...systemClock, now: () => now, monotonic: () => now };
  const onReached = (each: ReachedBudget) => void reached.push(each);
  beforeEach(() => {
    now = NOON;
    reached = [];
    watch = new BudgetWatch(clock);
  });
  const ratios = () => [...watch.ratios()];
  const thresholds = () => reached.map(({ threshold }) => threshold);

  it("reports each threshold once in a period, and again in the next", () => {
    for (const used of [10, 79, 80, 85, 79, 90, 100, 130]) {
      watch.noteAdmitted([status(used)], onReached);
    }
    assert.deepEqual(reached.map(({ threshold, used }) => [threshold, used]), [[0.8, 80], [
      1,
      100,
    ]]);
    assert.equal(reached[0]?.until, Date.UTC(2027, 1, 1));
    now += DAY_MS / 2;
    assert.deepEqual(ratios(), [], "the period is over");
    watch.noteAdmitted([status(5)], onReached);
    assert.deepEqual(ratios(), [[["key:x", "tokens"], 0.05]]);
    watch.noteAdmitted([status(99)], onReached);
    assert.deepEqual(thresholds(), [0.8, 1, 0.8]);
  });

  it("reports both at once if one call uses the whole budget", () => {
    watch.noteAdmitted([status(0)], onReached)?.(amounts(500));
    assert.deepEqual(thresholds(), [0.8, 1]);
    assert.deepEqual(ratios(), [[["key:x", "tokens"], 5]]);
  });

  it("starts again when the budget changes", () => {
    watch.noteAdmitted([status(90)], onReached);
    watch.noteAdmitted([status(90, subjectOf("key:x", 200))], onReached);
    assert.deepEqual([thresholds(), ratios()], [[0.8], [[["key:x", "tokens"], 0.45]]]);
    watch.noteAdmitted([status(180, subjectOf("key:x", 200))], onReached);
    assert.deepEqual(thresholds(), [0.8, 0.8]);
  });

  it("ignores an exchange that ends late if others have shown a higher usage since", () => {
    const settle = watch.noteAdmitted([status(10)], onReached);
    watch.noteAdmitted([status(60)], onReached);
    settle?.(amounts(5));
    assert.deepEqual(ratios()[0]?.[1], 0.6);
    watch.noteAdmitted([status(40)], onReached);
    assert.deepEqual(ratios()[0]?.[1], 0.4, "what a limiter says is the truth");
  });

  it("ignores an exchange that ends in another period", () => {
    const settle = watch.noteAdmitted([status(10)], onReached);
    now += DAY_MS;
    settle?.(amounts(500));
    assert.deepEqual([reached, ratios()], [[], []]);
  });

  it("ignores other limits, and a gateway's share of a budget", () => {
    const subject: LimitSubject = {
      name: "key:x",
      limits: { tokens: { limit: 10, windowMs: 1000 }, budget: { limit: 100, period: "day" } },
    };
    const tokens: LimitStatus = { subject, name: "tokens", limit: 10, used: 10, resetMs: 1 };
    assert.equal(
      watch.noteAdmitted([tokens, { ...tokens, name: "budget", limit: 50, used: 50 }], onReached),
      undefined,
    );
    assert.deepEqual([reached, ratios()], [[], []]);
  });

  it("distinguishes tokens from money of one subject", () => {
    const spend = { limit: 1e9, period: "month", currency: "EUR" } as const;
    const subject: LimitSubject = {
      name: "team:t",
      limits: { budget: { limit: 100, period: "day" }, spend },
    };
    const both: LimitStatus[] = [
      { subject, name: "budget", limit: 100, used: 10, resetMs: 1 },
      { subject, name: "spend", limit: 1e9, used: 5e8, resetMs: 1 },
    ];
    watch.noteAdmitted(both, onReached)?.({ tokens: 10, spend: 4e8 });
    assert.deepEqual(ratios(), [[["team:t", "tokens"], 0.2], [["team:t", "EUR"], 0.9]]);
    assert.deepEqual(reached.map(({ unit, until }) => [unit, until]), [[
      "EUR",
      Date.UTC(2027, 1, 1),
    ]]);
  });

  it(`remembers the ${MAX_WATCHED} that were used last`, () => {
    for (let index = 0; index < MAX_WATCHED + 10; index++) {
      watch.noteAdmitted([status(1, subjectOf(`key:${index}`))], onReached);
      watch.noteAdmitted([status(1, subjectOf("key:0"))], onReached);
    }
    const names = ratios().map(([[subject]]) => subject);
    assert.equal(names.length, MAX_WATCHED);
    assert.deepEqual([names.includes("key:0"), names.includes("key:1"), names.at(-1)], [
      true,
      false,
      "key:0",
    ]);
  });

  it("asks about a budget that refuses, at most once a second, and not after it is known to be used up", async () => {
    let asked = 0;
    let used = 95;
    const subject = subjectOf("key:x");
    const limiter: Limiter = {
      acquire: () => assert.fail("nothing is taken"),
      status: () => Promise.resolve([status(used, subject)]).finally(() => asked++),
    };
    const refuse = async () => {
      watch.noteRefused(
        [subject, { name: "provider:a", limits: { requests: { limit: 1, windowMs: 1 } } }],
        limiter,
        onReached,
      );
      await new Promise((resolve) => setImmediate(resolve));
    };
    for (let count = 0; count < 5; count++) await refuse();
    assert.deepEqual([asked, thresholds()], [1, [0.8]]);
    now += 1000;
    used = 100;
    for (let count = 0; count < 5; count++) await refuse();
    now += 1000;
    await refuse();
    assert.deepEqual([asked, thresholds()], [2, [0.8, 1]]);
  });

  it("is not affected by a limiter that fails when asked", async () => {
    const limiter: Limiter = {
      acquire: () => assert.fail(),
      status: () => Promise.reject(new Error("away")),
    };
    watch.noteRefused([subjectOf("key:x")], limiter, onReached);
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(reached, []);
  });
});
