/** Runs in memory: the suite of all registries, and the memory that they use. */
// runtimes: once
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import { MemoryRuns } from "../../src/runs/memory_runs.ts";
import { it } from "../support/cases.ts";
import { costing, describeRuns } from "./runs_suite.ts";

describeRuns("in memory", () => {
  let now = Date.UTC(2026, 10, 27);
  const runs = new MemoryRuns({ now: () => now });
  return { runs, others: runs, pass: (ms) => void (now += ms), close() {} };
});

describe("runs in memory", () => {
  it("runs of keys that are not used any more are forgotten", async () => {
    let now = 0;
    const runs = new MemoryRuns({ now: () => now });
    const call = (keyId: string) => {
      const run = { id: "run", limits: {} };
      const bounds = { idleMs: 60_000, maxPerKey: 10 };
      runs.admit({ keyId, run, reservation: costing(1), bounds }, () => {}).release(1, false);
    };
    for (let key = 0; key < 100; key++) call(`key-${key}`);
    now += 60_000;
    for (let calls = 0; calls < 200; calls++) call("key-of-now");
    assert.equal(runs.size, 1);
    assert.equal((await runs.list(undefined, 1000)).length, 1);
  });
});
