/** Calls whose usage is stated later, in memory. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import { AWAITED_MS, MemoryAwaitedCalls } from "../../src/usage/awaited_calls.ts";

describe("awaited calls in memory", () => {
  it("are taken once, by provider and id", () => {
    const calls = new MemoryAwaitedCalls<object>(systemClock);
    const mine = {};
    calls.put({ provider: "a", laterId: "1" }, mine);
    assert.equal(calls.take({ provider: "b", laterId: "1" }), undefined);
    assert.equal(calls.take({ provider: "a", laterId: "1" }), mine);
    assert.equal(calls.take({ provider: "a", laterId: "1" }), undefined);
  });

  it("are forgotten after their time, and the oldest ones if there are too many", () => {
    let now = 0;
    const calls = new MemoryAwaitedCalls<object>({ ...systemClock, now: () => now });
    const put = (laterId: string) => calls.put({ provider: "a", laterId }, {});
    const has = (laterId: string) => calls.take({ provider: "a", laterId }) !== undefined;
    for (const id of ["expired", "kept"]) put(id);
    now = AWAITED_MS;
    assert.ok(has("kept"));
    now++;
    assert.ok(!has("expired"));
    for (let count = 0; count <= 10_000; count++) put(String(count));
    assert.ok(!has("0"));
    assert.ok(has("1"));
  });
});
