/** The history in Redis: the suite of all stores, expiry, bounds and lost answers. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { RedisHistory } from "../../src/usage/redis/history_store.ts";
import { patientClock } from "../support/patient_clock.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { describeHistoryStore, makeRow, readAll } from "./history_suite.ts";

const HOUR_MS = 3_600_000;

withRedis.describe("one Redis for all of these", () => {
  let server: RedisServer | undefined;
  let raw: Redis;
  const clients: RedisClient[] = [];
  const connect = async () => {
    const client = new RedisClient(server?.url ?? assert.fail("no Redis"), patientClock, () => {});
    clients.push(client);
    await client.ready();
    return client;
  };
  beforeAll(async () => {
    server = await startRedis();
    raw = new Redis(server.url);
  });
  afterAll(async () => {
    for (const client of clients) await client.close();
    raw.disconnect();
    await server?.stop();
  });

  describeHistoryStore("in Redis", async (clock) => {
    await raw.flushdb();
    clock.ms = Date.now();
    return {
      open: async () => new RedisHistory(await connect()),
      write: () => Promise.resolve(),
      close: () => Promise.resolve(),
    };
  });

  it("expires, in one slot of a Cluster", async () => {
    await raw.flushdb();
    const store = new RedisHistory(await connect());
    const at = Date.now() - Date.now() % HOUR_MS;
    await store.add({ number: 1, rows: [makeRow(at)] });
    const names = (await raw.keys("*")).sort();
    assert.equal(names.length, 3);
    const daysOf = async (part: string) => {
      const name = names.find((each) => each.includes(part)) ?? assert.fail(part);
      return (await raw.pttl(name)) / (24 * HOUR_MS);
    };
    for (const name of names) assert.match(name, /^sallyport:\{history\}:/);
    assert.ok(await daysOf(":minute:") > 1 && await daysOf(":minute:") < 1.2);
    assert.ok(await daysOf(":hour:") > 30 && await daysOf(":hour:") < 32.1);
  });

  it("counts a batch once, even if it is sent twice because its answer was lost", async () => {
    await raw.flushdb();
    const store = new RedisHistory(await connect());
    const at = Date.now() - Date.now() % HOUR_MS;
    for (const number of [1, 1, 2]) await store.add({ number, rows: [makeRow(at)] });
    const [row] = await readAll(store, { step: "hour", from: at, to: at + HOUR_MS });
    assert.equal(row?.sums[0], 2);
  });

  it("is bounded: further keys of an hour are counted together, by team", async () => {
    await raw.flushdb();
    const store = new RedisHistory(await connect());
    const at = Date.now() - Date.now() % HOUR_MS;
    const name = `sallyport:{history}:minute:${at}`;
    const full = Array.from({ length: 50_000 }, (_, n) => [`${n}`, "1"]).flat();
    await raw.hset(name, ...full);
    const rows = [makeRow(at, { key: "key-1" }), makeRow(at, { key: "key-2" })];
    await store.add({ number: 1, rows });
    const found = await readAll(store, { step: "minute", from: at, to: at + HOUR_MS });
    const names = found.map(({ key, team, sums }) => `${key} ${team} ${sums[0]}`);
    assert.deepEqual(names, ["(other) search 2"]);
  });
});
