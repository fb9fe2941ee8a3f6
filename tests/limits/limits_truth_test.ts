/**
 * Limits in memory compared with a provider that knows the real usage: random arrivals, estimates,
 * maxima, missing usage, crashes and restarts, under a clock that the test moves.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import type { LimitSet } from "../../src/config/limit_set.ts";
import { type Act, Bench, type World } from "./limits_books.ts";
import { it } from "../support/cases.ts";

const RUNS = 3000;
const MINUTE = 60_000;

const rate = (limit: number) =>
  fc.option(
    fc.record({
      limit: fc.integer({ min: 1, max: limit }),
      windowMs: fc.constantFrom(1000, MINUTE),
    }),
    {
      nil: undefined,
    },
  );
const budget = (limit: number) =>
  fc.option(
    fc.record({
      limit: fc.integer({ min: 1, max: limit }),
      period: fc.constantFrom("day", "week", "month"),
    }),
    {
      nil: undefined,
    },
  );
const set = fc.record({
  requests: rate(20),
  tokens: rate(200),
  budget: budget(400),
  spend: budget(2000).map((spent) => spent && { ...spent, currency: "USD" }),
  concurrency: fc.option(fc.integer({ min: 1, max: 5 }), { nil: undefined }),
  mode: fc.constantFrom(undefined, "enforce", "strict", "observe"),
}) as unknown as fc.Arbitrary<LimitSet>;
const act: fc.Arbitrary<Act> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      type: fc.constant("call" as const),
      who: fc.integer({ min: 1, max: 7 }),
      expected: fc.integer({ min: 0, max: 60 }),
      room: fc.integer({ min: 0, max: 40 }),
      use: fc.integer({ min: 0, max: 300 }),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      type: fc.constant("end" as const),
      which: fc.nat(100),
      how: fc.constantFrom(
        "stated" as const,
        "stated" as const,
        "estimated" as const,
        "unsent" as const,
        "lost" as const,
      ),
    }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("again" as const), which: fc.nat(100) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constant("pass" as const),
      ms: fc.oneof(fc.nat(1500), fc.nat(2 * MINUTE), fc.nat(40 * 24 * 60 * MINUTE)),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ type: "restart" as const }) },
);
const worlds: fc.Arbitrary<World> = fc.record({
  sets: fc.array(set, { minLength: 1, maxLength: 3 }),
  price: fc.integer({ min: 1, max: 20 }),
  isKept: fc.boolean(),
  acts: fc.array(act, { maxLength: 60, size: "max" }),
});

describe("limits compared with a provider that knows the real usage", () => {
  it.large("charge the real usage, and never exceed a limit by more than the stated bound, whatever callers do [unstated usage]", async () => {
    let refused = 0;
    await fc.assert(
      fc.asyncProperty(worlds, async (world) => {
        const bench = new Bench(world);
        for (const each of world.acts) await bench.act(each);
        await bench.finish();
        refused += bench.refused;
      }),
      { numRuns: RUNS },
    );
    assert.ok(refused > RUNS, `only ${refused} calls were refused`);
  });
});
