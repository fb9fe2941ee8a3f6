/** Recordings in memory: the suite of all stores, and their memory bound. */
// runtimes: once
import assert from "node:assert/strict";
import process from "node:process";
import { describe } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import { ENTRY_KIND, RecordingsFull, TOMBSTONE_MS } from "../../src/durable/recording_store.ts";
import { MemoryRecordings } from "../../src/durable/recording_store_memory.ts";
import { it } from "../support/cases.ts";
import { MovedClock } from "./recording_places.ts";
import {
  claimOf,
  describeRecordings,
  endOf,
  entryOf,
  freshName,
  NotedHolder,
  write,
} from "./recording_store_suite.ts";

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

  /** Starts a recording of a key. */
  const beginOf = async (store: MemoryRecordings, keyId: string) => {
    const claim = claimOf(freshName("key"), 60_000);
    const claimed = await store.claim(
      { ...claim, facts: { ...claim.facts, keyId } },
      new NotedHolder(),
    );
    return "held" in claimed ? claimed.held : assert.fail("a new recording");
  };

  it("removes ended recordings, the oldest first, and then refuses new ones", async () => {
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
    const last = await beginOf(store, "other");
    const length = await write(last, text);
    const third = await beginOf(store, "third");
    await write(third);
    await assert.rejects(last.append(entryOf(ENTRY_KIND.bytes, length, text)), RecordingsFull);
    assert.equal(await stateOf(ended[1]), undefined, "ids of expired ones count too");
    assert.equal(await stateOf(running.id), "running");
    for (const held of [last, third, running]) await held.discard();
    const next = await begin(store);
    await write(next, text, text, text, text);
  });

  const record = async (store: MemoryRecordings, keyId: string, text: string) => {
    const held = await beginOf(store, keyId);
    await held.end(endOf(await write(held, text)), "complete");
    return held.id;
  };

  it("removes a key's own recordings, or recordings of a key with a larger share", async () => {
    const store = new MemoryRecordings({ clock: new MovedClock(), maxBytes: 400_000 });
    const text = "x".repeat(10_000);
    const ofOther: string[] = [];
    for (let number = 0; number < 5; number++) ofOther.push(await record(store, "other", text));
    for (let number = 0; number < 100; number++) await record(store, "greedy", text);
    const states = async (ids: readonly string[]) =>
      await Promise.all(ids.map(async (id) => (await store.find(id))?.state));
    assert.deepEqual(await states(ofOther), Array(5).fill("complete"));
    for (let number = 0; number < 3; number++) ofOther.push(await record(store, "other", text));
    assert.deepEqual(await states(ofOther), Array(8).fill("complete"), "the greedy one makes room");
    const late = [await record(store, "third", text), await record(store, "third", text)];
    assert.deepEqual(await states([...ofOther, ...late]), Array(10).fill("complete"));
    await store.close();
  });

  it("refuses a key whose running recordings use most of it, instead of removing recordings of others", async () => {
    const store = new MemoryRecordings({ clock: new MovedClock(), maxBytes: 200_000 });
    const kept = await record(store, "other", "x".repeat(10_000));
    const held = await beginOf(store, "greedy");
    await write(held, "x".repeat(100_000));
    await assert.rejects(write(held, "x".repeat(100_000)), RecordingsFull);
    assert.equal((await store.find(kept))?.state, "complete");
    await store.close();
  });

  it("is not used up by running recordings of one key: others begin, and continue", async () => {
    const store = new MemoryRecordings({ clock: new MovedClock(), maxBytes: 1_000_000 });
    const fill = async () => {
      for (;;) await write(await beginOf(store, "greedy"), "x".repeat(10_000));
    };
    await assert.rejects(fill(), RecordingsFull);
    assert.ok(store.bytes > 880_000, `${store.bytes} bytes`);
    for (let number = 0; number < 5; number++) await record(store, "other", "x".repeat(10_000));
    await assert.rejects(fill(), RecordingsFull);
    await store.close();
  });

  it("is never exceeded, and unused when all recordings are gone", async () => {
    const clock = new MovedClock();
    const store = new MemoryRecordings({ clock, maxBytes: 100_000 });
    let running: Awaited<ReturnType<typeof beginOf>>[] = [];
    for (let number = 0; number < 300; number++) {
      try {
        const held = await beginOf(store, `key-${number % 7}`);
        running.push(held);
        const length = await write(held, "x".repeat(number * 37 % 9000));
        if (number % 3 === 0) {
          await held.end(endOf(length), number % 2 === 0 ? "complete" : "broken");
        } else if (number % 3 === 1) await held.discard();
        if (number % 3 < 2) running.pop();
      } catch (error) {
        assert.ok(error instanceof RecordingsFull, String(error));
        for (const held of running) await store.delete(held.id);
        running = [];
      }
      assert.ok(store.bytes <= 100_000, `${store.bytes} bytes`);
    }
    for (const held of running) await held.discard();
    await clock.pass(60_000);
    await clock.pass(TOMBSTONE_MS);
    assert.deepEqual([store.size, store.bytes], [0, 0]);
  });

  it.once("needs the same time for any number of recordings", async () => {
    const timeOf = async (count: number) => {
      const store = new MemoryRecordings({
        clock: { ...systemClock, timer: () => () => {} },
        maxBytes: count * 7000,
      });
      const runs: number[] = [];
      for (let number = 0; number < 3 * count; number++) await record(store, "me", "x");
      for (let run = 0; run < 20; run++) {
        const before = process.cpuUsage();
        for (let number = 0; number < 200; number++) await record(store, "me", "x");
        const { user, system } = process.cpuUsage(before); // only their sum is exact
        runs.push((user + system) / 1000);
      }
      await store.close();
      return Math.min(...runs);
    };
    const [few, many] = [await timeOf(250), await timeOf(20_000)];
    assert.ok(many < 4 * few, `${many} ms where there are many, ${few} ms where there are few`);
  });
});
