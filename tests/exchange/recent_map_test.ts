/** The bounded map of recently used names: the latest are kept, and the others are forgotten. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { RecentMap } from "../../src/exchange/recent_map.ts";

function fill(map: RecentMap<string>, from: number, to: number): void {
  for (let n = from; n < to; n++) map.set(`n${n}`, `v${n}`);
}

describe("RecentMap", () => {
  it("keeps the names that were used last, and at most twice as many as its bound", () => {
    const map = new RecentMap<string>(10);
    fill(map, 0, 100);
    for (let n = 90; n < 100; n++) assert.equal(map.get(`n${n}`), `v${n}`);
    assert.ok(Array.from(map.values()).length <= 20);
    assert.equal(map.get("n0"), undefined);
  });

  it("keeps a name once, for as long as it is used", () => {
    const map = new RecentMap<string>(10);
    map.set("used", "value");
    for (let n = 0; n < 100; n += 5) {
      fill(map, n, n + 5);
      assert.equal(map.get("used"), "value");
      assert.equal(Array.from(map.values()).filter((value) => value === "value").length, 1);
    }
    assert.equal(map.getOrAdd("used", () => "another"), "value");
    assert.equal(map.getOrAdd("unknown", () => "another"), "another");
    assert.equal(map.get("unknown"), "another");
  });

  it("passes each forgotten value to the callback, and no replaced one", () => {
    const forgotten: string[] = [];
    const map = new RecentMap<string>(2, (value) => forgotten.push(value));
    map.set("a", "old");
    map.set("a", "new");
    fill(map, 0, 2);
    map.set("a", "newest");
    assert.deepEqual(forgotten, []);
    fill(map, 2, 6);
    assert.deepEqual(forgotten, ["v0", "v1", "newest"]);
  });

  it("iterates over the younger generation, and starts again with the next one", () => {
    const map = new RecentMap<string>(3);
    fill(map, 0, 3);
    const values = map.youngValues();
    assert.equal(values.next().value, "v0");
    fill(map, 3, 5);
    assert.deepEqual(Array.from(values), ["v3", "v4"]);
    assert.deepEqual(Array.from(map.youngValues()), ["v3", "v4"]);
  });

  it("keeps the names that were used last, whatever is set, read and deleted", () => {
    const name = fc.constantFrom(..."0123456789");
    const step = fc.oneof(
      fc.record({ act: fc.constant("set" as const), name, value: fc.nat() }),
      fc.record({ act: fc.constantFrom("get" as const, "delete" as const), name }),
    );
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 4 }),
        fc.array(step, { maxLength: 60 }),
        (kept, steps) => {
          const map = new RecentMap<number>(kept);
          // A name that was read last is the latest. A deleted name can already have evicted
          // others.
          const model = new Map<string, number | undefined>();
          for (const step of steps) {
            const before = model.get(step.name);
            model.delete(step.name);
            if (step.act === "set") {
              map.set(step.name, step.value);
              model.set(step.name, step.value);
            } else if (step.act === "delete") {
              map.delete(step.name);
              model.set(step.name, undefined);
            } else {
              const value = map.get(step.name);
              assert.ok(value === undefined || value === before);
              if (value !== undefined) model.set(step.name, value);
            }
          }
          assert.ok(Array.from(map.values()).length <= 2 * kept);
          const recent = Array.from(model).slice(-kept);
          for (const [name, value] of recent) assert.equal(map.get(name), value);
        },
      ),
    );
  });
});
