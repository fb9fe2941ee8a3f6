/** A bounded memory beside a simple model: what was asked for last is there, and never too much. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { RecentMap } from "../../src/keys/recent_map.ts";

describe("a bounded memory", () => {
  it("keeps what was asked for last, never more than it may, and never anything else", () => {
    const key = fc.nat(9);
    const step = fc.oneof(
      fc.record({ act: fc.constant("set" as const), key, value: fc.nat() }),
      fc.record({ act: fc.constantFrom("get" as const, "delete" as const), key }),
    );
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 8 }),
        fc.array(step, { maxLength: 60 }),
        (max, steps) => {
          const map = new RecentMap<number, number>(max);
          // The one that was asked for last stands last. What was deleted leaves its place: it may
          // have pushed others out.
          const model = new Map<number, number | undefined>();
          for (const step of steps) {
            const before = model.get(step.key);
            model.delete(step.key);
            if (step.act === "set") {
              map.set(step.key, step.value);
              model.set(step.key, step.value);
            } else if (step.act === "delete") {
              map.delete(step.key);
              model.set(step.key, undefined);
            } else {
              const value = map.get(step.key);
              assert.ok(value === undefined || value === before);
              if (value !== undefined) model.set(step.key, value);
            }
          }
          const recent = Array.from(model).slice(-Math.ceil(max / 2));
          for (const [key, value] of recent) assert.equal(map.get(key), value);
        },
      ),
    );
  });

  it("holds no more than it may", () => {
    for (const max of [1, 2, 7, 1000]) {
      const map = new RecentMap<number, number>(max);
      for (let number = 0; number < 5 * max; number++) map.set(number, number);
      // A look makes an entry young again, so one look at each is all that there can be.
      let held = 0;
      for (let number = 5 * max - 1; number >= 0; number--) {
        if (map.get(number) !== undefined) held++;
      }
      assert.ok(held >= Math.ceil(max / 2) && held <= 2 * Math.ceil(max / 2), `${held} of ${max}`);
    }
  });
});
