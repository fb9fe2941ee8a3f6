/**
 * A thousand durable streams in memory: their memory while they run and while they are stored, and
 * that none of it remains.
 */
// runtimes: bun, node
// It reads `memoryUsage`, so it has a separate process.
import assert from "node:assert/strict";
import process from "node:process";
import { describe } from "@std/testing/bdd";
import { MemoryRecordings } from "../../src/durable/recording_store_memory.ts";
import { TOMBSTONE_MS } from "../../src/durable/recording_store.ts";
import { it } from "../support/cases.ts";
import { until } from "../support/until.ts";
import {
  HALF,
  KEEP_MS,
  NOISE_BYTES,
  readMemory,
  RECORDING_BYTES,
  STREAMS,
  Streams,
  WHOLE,
} from "./many_streams.ts";
import { MovedClock, settle } from "./recording_places.ts";
import { claimOf, endOf, freshName, NotedHolder, write } from "./recording_store_suite.ts";

/**
 * Memory of an open exchange with its web objects, in addition to the bytes that its store counts.
 */
const EXCHANGE_BYTES = 40_000;

/**
 * Counted for a recording in addition to its ciphertext, including the runtime's own overhead.
 * Bytes.
 */
const COUNTED_BYTES = 8192;

describe("a thousand durable streams in memory", () => {
  it.large("use the memory that their store counts, within its bound, and none when their time is over", async () => {
    const clock = new MovedClock();
    const store = new MemoryRecordings({ clock, maxBytes: 64_000_000 });
    const streams = new Streams(store, clock);
    const stored = () => store.running.length === 0;
    /** @returns Bytes in use while expired recordings are still known */
    const expire = async () => {
      await clock.pass(KEEP_MS);
      assert.ok(store.bytes <= store.size * 1024, `${store.bytes} bytes of expired ones`);
      const known = await readMemory();
      await clock.pass(TOMBSTONE_MS);
      assert.deepEqual([store.size, store.bytes, clock.waiting], [0, 0, 0]);
      return known;
    };
    await streams.begin(50);
    await streams.end();
    await until(stored, "the store has them");
    await expire();
    const before = await readMemory();
    await streams.begin(STREAMS);
    await settle();
    assert.equal(store.running.length, STREAMS);
    assert.ok(
      store.bytes < STREAMS * (HALF.length + COUNTED_BYTES),
      `${store.bytes} bytes are stored`,
    );
    const running = await readMemory() - before;
    assert.ok(
      running < STREAMS * (HALF.length + EXCHANGE_BYTES),
      `${running} bytes while they run`,
    );
    await streams.end();
    await until(stored, "the store has them");
    assert.ok(
      store.bytes < STREAMS * (WHOLE.length + COUNTED_BYTES),
      `${store.bytes} bytes are stored`,
    );
    const last = streams.locations.at(-1) ?? "";
    assert.deepEqual(new Uint8Array(await (await streams.call(last)).arrayBuffer()), WHOLE);
    const kept = await readMemory() - before;
    assert.ok(
      kept < STREAMS * (WHOLE.length + RECORDING_BYTES) + NOISE_BYTES,
      `${kept} bytes while they are kept`,
    );
    const known = await expire() - before;
    assert.ok(known < NOISE_BYTES, `${known} bytes while it is known that they have expired`);
    assert.equal((await streams.call(last)).status, 404);
    const left = await readMemory() - before;
    assert.ok(left < NOISE_BYTES, `${left} bytes are left`);
  });
});

describe("tiny recordings in memory", () => {
  it.large("use no more memory of the process than their store counts", async () => {
    const store = new MemoryRecordings({ clock: new MovedClock(), maxBytes: 1e9 });
    const record = async (times: number) => {
      for (let number = 0; number < times; number++) {
        const claimed = await store.claim(claimOf(freshName("key"), KEEP_MS), new NotedHolder());
        const held = "held" in claimed ? claimed.held : assert.fail("a new recording");
        await held.end(endOf(await write(held, "x")), "complete");
      }
    };
    await record(2000);
    await readMemory();
    const before = process.memoryUsage().rss;
    const counted = store.bytes;
    await record(30_000);
    await readMemory();
    const [grown, added] = [process.memoryUsage().rss - before, store.bytes - counted];
    assert.ok(grown <= added, `${grown} bytes more, and ${added} counted`);
    await store.close();
  });
});
