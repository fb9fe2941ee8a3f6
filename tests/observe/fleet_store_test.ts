/** Messages between gateways in a real Redis: bounded, expiring, and each for its addressee. */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { FleetStore } from "../../src/observe/fleet/fleet_store_redis.ts";
import { packJson } from "../../src/storage/packed_json.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { patientClock } from "../support/patient_clock.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";

const RECORD = JSON.stringify({
  v: 1,
  name: "gw",
  digest: "d".repeat(64),
  filler: "x".repeat(400),
});

withRedis.describe("messages of the fleet", () => {
  let redis: RedisServer;
  let raw: Redis;
  let client: RedisClient;
  let store: FleetStore;
  beforeAll(async () => {
    redis = await startRedis();
    raw = new Redis(redis.port);
    client = new RedisClient(redis.url, patientClock, () => {});
    await client.ready();
    store = new FleetStore(client);
  });
  afterAll(async () => {
    client.close();
    raw.disconnect();
    await redis.stop();
  });

  const take = async (kind: "live" | "history", ids: readonly string[]) => {
    const found = new Map<string, unknown>();
    for await (const [id, value] of store.take(kind, ids)) found.set(id, value);
    return found;
  };

  it("a command reaches its addressee once", async () => {
    await store.command(["one"], "drain");
    assert.equal((await store.publish("two", RECORD)).command, undefined);
    assert.equal((await store.publish("one", RECORD)).command, "drain");
    assert.equal((await store.publish("one", RECORD)).command, undefined);
    await store.command(["one"], "drain");
    await store.command(["one"], "resume");
    assert.equal((await store.publish("one", RECORD)).command, "resume", "the last one counts");
    await raw.set("sallyport:{fleet}:command:one", "dance", "PX", 5000); // of a later version
    assert.equal((await store.publish("one", RECORD)).command, undefined);
    await store.command(["one"], "drain");
    const left = await raw.pttl("sallyport:{fleet}:command:one");
    assert.ok(left > 0 && left <= 5000, `it expires in ${left}`);
  });

  it("questions have growing times, and remain for a while", async () => {
    const first = await store.ask("watched", true);
    assert.ok(Math.abs(first - Date.now()) < 60_000);
    assert.equal(await store.ask("watched", false), first, "the same one goes on");
    const second = await store.ask("watched", true);
    assert.ok(second > first);
    const { watched, scraped } = await store.publish("one", RECORD);
    assert.deepEqual([watched, scraped], [second, 0]);
    assert.ok(await raw.pttl("sallyport:{fleet}:watched") > 0);
  });

  it("questions for exchanges reach their addressee once, and are bounded", async () => {
    for (let count = 0; count < 20; count++) await store.askExchanges("one", `question ${count}`);
    assert.ok(await raw.pttl("sallyport:{fleet}:asked:one") > 0);
    assert.deepEqual((await store.publish("two", RECORD)).asked, []);
    const { asked } = await store.publish("one", RECORD);
    assert.deepEqual([asked.length, asked[0]], [8, "question 19"]);
    assert.deepEqual((await store.publish("one", RECORD)).asked, []);
  });

  it("publishes data that it can read again, and nothing that is too large", async () => {
    await store.put("live", "one", { a: [1, 2] });
    await store.put("live", "two", randomBytes(600_000).toString("base64"));
    await raw.set("sallyport:{fleet}:live:three", Buffer.from("nonsense"));
    const found = await take("live", ["one", "two", "three", "four"]);
    assert.deepEqual([...found], [["one", { a: [1, 2] }]]);
    assert.ok(await raw.pttl("sallyport:{fleet}:live:one") > 0);
  });

  it("reads no record and no value that is larger than gateways write", async () => {
    await raw.flushall();
    await store.publish("one", RECORD);
    await store.publish("two", JSON.stringify({ name: "two", filler: "x".repeat(1_000_000) }));
    assert.deepEqual((await store.read()).map(({ id }) => id), ["one"]);
    for (let count = 0; count < 500; count++) {
      await raw.zadd("sallyport:{fleet}:seen", Date.now(), `00-${count}`);
    }
    for (let count = 0; count < 500; count++) {
      await raw.hset("sallyport:{fleet}:records", `00-${count}`, RECORD);
    }
    assert.equal((await store.read()).length, 256);
    // They are well compressed. Ten of them would exceed the amount that one reader unpacks.
    const large = await packJson("x".repeat(7_900_000));
    const ids = Array.from({ length: 12 }, (_, count) => `large-${count}`);
    for (const id of ids) await raw.set(`sallyport:{fleet}:live:${id}`, Buffer.from(large));
    assert.equal((await take("live", ids)).size, 8);
    const long = await packJson(randomBytes(600_000).toString("base64"));
    await raw.set("sallyport:{fleet}:live:long", Buffer.from(long));
    await raw.set("sallyport:{fleet}:live:short", Buffer.from(await packJson({ a: 1 })));
    assert.deepEqual([...await take("live", ["long", "short"])], [["short", { a: 1 }]]);
  });

  it("100 gateways use little memory, and there are never more than 256", async () => {
    await raw.flushall();
    for (let count = 0; count < 100; count++) await store.publish(`gw-${count}`, RECORD);
    const memory = await Promise.all(
      ["seen", "records"].map(async (name) =>
        Number(await raw.call("MEMORY", "USAGE", `sallyport:{fleet}:${name}`, "SAMPLES", 0))
      ),
    );
    assert.ok(memory.reduce((sum, each) => sum + each, 0) < 150_000, `${memory} bytes`);
    for (let count = 100; count < 400; count++) await store.publish(`gw-${count}`, RECORD);
    const records = await store.read();
    assert.equal(records.length, 256);
    assert.ok(
      records.some(({ id }) => id === "gw-399") && !records.some(({ id }) => id === "gw-0"),
    );
    assert.equal(await raw.hlen("sallyport:{fleet}:records"), 256);
    for (const key of await raw.keys("*")) assert.ok(await raw.pttl(key) > 0, key);
  });

  it("fails at once while Redis is not used after failures", async () => {
    redis.pause();
    await assert.rejects(store.publish("one", RECORD));
    for (let tries = 0; tries < 10 && client.health.isUp; tries++) {
      await store.publish("one", RECORD).catch(() => {});
    }
    assert.equal(client.health.isUp, false);
    const failMany = async () => {
      const startedAt = performance.now();
      for (let count = 0; count < 50; count++) await assert.rejects(store.publish("one", RECORD));
      return performance.now() - startedAt;
    };
    // On a busy machine one round can be slow.
    const times = [await failMany(), await failMany()];
    assert.ok(Math.min(...times) < 500, `a message is not waited for: ${times}`);
    redis.resume();
  });
});
