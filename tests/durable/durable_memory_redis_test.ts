/**
 * A thousand durable streams in Redis: their memory there and in the gateway, and that none of it
 * remains.
 */
// runtimes: once
// It reads `memoryUsage`, so it has a separate process.
import assert from "node:assert/strict";
import { afterAll, beforeAll } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { PATIENT_MS } from "../../src/durable/redis/removed_recordings.ts";
import { REDIS_DEADLINE_MS } from "../../src/storage/redis_client.ts";
import { createPatientClock } from "../support/patient_clock.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
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
import { RedisRecordingsFleet, TOMBSTONE_MS } from "./recordings_redis.ts";

/** Bytes in Redis for each byte of ciphertext: it allocates memory in steps. */
const REDIS_SHARE = 1.5;

withRedis.describe("a thousand durable streams in Redis", () => {
  let server: RedisServer;
  let raw: Redis;
  let fleet: RedisRecordingsFleet;
  beforeAll(async () => {
    server = await startRedis();
    raw = new Redis(server.url);
    const clock = createPatientClock(REDIS_DEADLINE_MS, PATIENT_MS);
    fleet = new RedisRecordingsFleet(server.url, [raw], clock);
  });
  afterAll(async () => {
    await fleet.close();
    raw.disconnect();
    await server.stop();
  });

  withRedis.it(
    "need little more memory there than their ciphertext, and none when their time is over",
    async () => {
      const used = async () => Number(/used_memory:(\d+)/.exec(await raw.info("memory"))?.[1]);
      const { store, clock } = await fleet.join();
      const streams = new Streams(store, clock);
      await streams.begin(50);
      await streams.end();
      await fleet.pass(KEEP_MS + TOMBSTONE_MS + 2000);
      const [beforeHere, before] = [await readMemory(), await used()];
      await streams.begin(STREAMS);
      await fleet.pass(100);
      const running = await used() - before;
      assert.ok(
        running < STREAMS * (REDIS_SHARE * HALF.length + RECORDING_BYTES),
        `${running} bytes while they run`,
      );
      await streams.end();
      const list = async () => await store.list(2 * STREAMS);
      await until(
        async () => (await list()).every(({ state }) => state === "complete"),
        "the store has them",
      );
      assert.equal((await list()).length, STREAMS);
      const kept = await used() - before;
      assert.ok(
        kept < STREAMS * (REDIS_SHARE * WHOLE.length + RECORDING_BYTES),
        `${kept} bytes while they are kept`,
      );
      // For ten seconds the gateway also keeps the entries that a failover could lose.
      await fleet.pass(14_000);
      const here = await readMemory() - beforeHere;
      assert.ok(here < NOISE_BYTES, `${here} bytes here, while Redis keeps them`);
      await fleet.pass(KEEP_MS + 2000);
      const keys = await raw.keys("*");
      assert.deepEqual(keys.filter((key) => key.includes(":log:")), [], "no ciphertext");
      await fleet.pass(TOMBSTONE_MS + 2000);
      assert.deepEqual(await list(), []);
      assert.deepEqual(await raw.keys("*"), []);
      const left = await readMemory() - beforeHere;
      assert.ok(left < NOISE_BYTES, `${left} bytes are left here`);
    },
  );
});
