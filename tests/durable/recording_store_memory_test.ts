/** Recordings in memory: the suite of all stores, and their bound. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { RecordingsFull } from "../../src/durable/recording_store.ts";
import { TOMBSTONE_MS } from "../../src/durable/recording_store.ts";
import { MemoryRecordings } from "../../src/durable/recording_store_memory.ts";
import { MovedClock } from "./recording_places.ts";
import { claimOf, describeRecordings, endOf, freshName, NotedHolder, write } from "./recording_store_suite.ts";

describeRecordings("in memory", () => {
  const clock = new MovedClock();
  const store = new MemoryRecordings({ clock, maxBytes: 10_000_000 });
  return Promise.resolve({
    leaseMs: 8000,
    tombstoneMs: TOMBSTONE_MS,
    open: () => Promise.resolve(store),
    pass: (ms) => clock.pass(ms),
    now: () => clock.now(),
    size: () => Promise.resolve(store.size),
    close: () => Promise.resolve(),
  });
}, { hasGateways: false });

describe("the bound of recordings in memory", () => {
  const begin = async (store: MemoryRecordings, name = freshName("key")) => {
    const claimed = await store.claim(claimOf(name, 60_000), new NotedHolder());
    return "held" in claimed ? claimed.held : assert.fail("a new recording");
  };

  it("is kept by those that have ended, the oldest first, and then by refusals", async () => {
    const store = new MemoryRecordings({ clock: new MovedClock(), maxBytes: 100_000 });
    const text = "x".repeat(20_000);
    const ended = [];
    for (let number = 0; number < 2; number++) {
      const held = await begin(store);
      await held.end(endOf(await write(held, text)), "complete");
      ended.push(held.id);
    }
    const running = await begin(store);
    await write(running, text, text, text);
    const stateOf = async (id = "") => (await store.find(id))?.state;
    assert.deepEqual([await stateOf(ended[0]), await stateOf(ended[1])], ["expired", "complete"]);
    const last = await begin(store);
    await assert.rejects(write(last, text, text), RecordingsFull);
    assert.equal(await stateOf(ended[1]), undefined, "ids of expired ones count too");
    assert.equal(await stateOf(running.id), "running");
    await last.discard();
    await running.discard();
    const next = await begin(store);
    await write(next, text, text, text, text);
  });
});
