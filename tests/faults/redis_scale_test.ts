/**
 * A hundred gateways, a quarter of a million keys in an hour and ten thousand open exchanges, on
 * one real Redis.
 */
// runtimes: once
// long: it counts a quarter of a million keys
import assert from "node:assert/strict";
import { afterAll, beforeAll } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { DEFAULT_RETENTION } from "../../src/config/usage.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { NO_RESERVATION } from "../../src/limits/limiter.ts";
import { RedisLimiter } from "../../src/limits/redis/limiter.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { HOUR_MS } from "../../src/usage/counts.ts";
import { UsageMeter } from "../../src/usage/meter.ts";
import { RedisUsage } from "../../src/usage/redis/usage_store.ts";
import { expiryOf, GROUPS, HASHES, hashName } from "../../src/usage/redis/shards.ts";
import { it } from "../support/cases.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { exchange, rest } from "../support/usage.ts";
import { until } from "../support/until.ts";

const GATEWAYS = 100;
/** Keys in use in one hour, each at one gateway. */
const KEYS = 250_000;
/** Open exchanges in limits of concurrency, each of another key. */
const PLACES = 10_000;
/** Longest time for which one operation can block Redis. Milliseconds. */
const MAX_MS = 5;
/** Most rows of a script that counts usage, and most open exchanges that one script renews. */
const MAX_ROWS = 50;
const MAX_RENEWED = 100;
/** Most fields of a hash of usage. */
const MAX_FIELDS = 1500;
/**
 * Deadlines that a busy machine meets too. All gateways flush their usage at once, and Redis gets
 * only its share of a core: a script that times out here would say nothing about Redis.
 */
const patient: Clock = {
  ...systemClock,
  timer: (ms, fire, options) => systemClock.timer(ms < 1000 ? ms : 60_000, fire, options),
};
/** The last complete hour, by the clock of Redis. */
const HOUR = Math.floor(Date.now() / HOUR_MS - 1) * HOUR_MS;

withRedis.describe("a fleet with very many keys", () => {
  let server: RedisServer;
  let raw: Redis;
  let clients: RedisClient[];

  beforeAll(async () => {
    server = await startRedis();
    raw = new Redis(server.url);
    clients = Array.from(
      { length: GATEWAYS },
      () => new RedisClient({ url: server.url, timeoutMs: 10_000 }, patient, () => {}),
    );
    for (const client of clients) await client.ready();
  });
  afterAll(async () => {
    for (const client of clients) client.close();
    raw.disconnect();
    await server.stop();
  });

  let usedMs = 0;
  /**
   * Returns the calls of a command since the last check, and their mean cost: the CPU time of
   * Redis, which does not grow while other processes use the core. The size of a call bounds its
   * cost.
   */
  async function costOf(command: string): Promise<{ calls: number; ms: number }> {
    const [, calls = "0"] = new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(
      await raw.info("commandstats"),
    ) ?? [];
    const before = usedMs;
    const cpu = (await raw.info("cpu")).matchAll(/used_cpu_\w+_main_thread:([\d.]+)/g);
    usedMs = Array.from(cpu, ([, seconds]) => 1000 * Number(seconds)).reduce((a, b) => a + b, 0);
    assert.ok(usedMs > before, "Redis reports its CPU time");
    await raw.config("RESETSTAT");
    return { calls: Number(calls), ms: (usedMs - before) / Number(calls) };
  }

  /** Usage of the hour at all gateways: one call by each key. */
  async function useAllKeys(): Promise<void> {
    const meters = clients.map((client) =>
      new UsageMeter({
        store: new RedisUsage(client, new Set()),
        clock: systemClock,
        rest,
        listed: new Set(),
      })
    );
    for (let key = 0; key < KEYS; key++) {
      meters[key % GATEWAYS]?.settled(
        exchange({ startedAt: HOUR, keyId: `key-${key.toString(36)}` }),
      );
    }
    await Promise.all(meters.map((meter) => meter.close()));
  }

  it.large("usage of every key is kept in small hashes, and scripts take Redis less than 5 ms each [many keys]", async () => {
    await costOf("evalsha");
    await useAllKeys();
    const { calls, ms } = await costOf("evalsha");
    assert.ok(calls >= KEYS / MAX_ROWS, `${calls} scripts`);
    assert.ok(ms < MAX_MS, `${ms} ms a script`);

    const sizes: number[] = [];
    for (let group = 0; group < GROUPS; group++) {
      for (let hash = 0; hash < HASHES; hash++) {
        sizes.push(await raw.hlen(hashName({ group, hash }, "hour", HOUR)));
      }
    }
    assert.ok(Math.max(...sizes) < MAX_FIELDS, `${Math.max(...sizes)} fields in a hash`);

    const [first] = clients;
    assert.ok(first !== undefined);
    const keys = new Set<string>();
    let requests = 0;
    for await (
      const rows of new RedisUsage(first, new Set()).read({
        step: "hour",
        from: HOUR,
        to: HOUR + HOUR_MS,
      })
    ) {
      for (const { key, counts } of rows) {
        keys.add(key);
        requests += counts.requests;
      }
    }
    assert.deepEqual([keys.size, requests], [KEYS, KEYS]);
  });

  it.large("old usage expires hash by hash, each at a different time [many keys]", async () => {
    const places = Array.from({ length: GROUPS * HASHES }, (_, n) => ({
      group: n % GROUPS,
      hash: Math.floor(n / GROUPS),
    }));
    const names = places.map((place) => hashName(place, "hour", HOUR));
    const ends = await Promise.all(names.map((name) => raw.pexpiretime(name)));
    const kept = DEFAULT_RETENTION.hoursMs;
    assert.deepEqual(ends, places.map((place) => expiryOf("hour", HOUR, kept, place)));
    assert.equal(new Set(ends).size, names.length);
    // Deletes the hashes now, as Redis will do days later when they expire.
    await costOf("del");
    for (const name of names) await raw.del(name);
    const { calls, ms } = await costOf("del");
    assert.equal(calls, names.length);
    assert.ok(ms < MAX_MS, `${ms} ms a hash`);
  });

  it.large("open calls of ten thousand keys are renewed a hundred at a time [many keys]", async () => {
    const limiters = clients.map((client) => new RedisLimiter(client, systemClock));
    const place = "sallyport:{key:7}:open";
    try {
      const leases = await Promise.all(
        Array.from(
          { length: PLACES },
          (_, n) =>
            limiters[n % GATEWAYS]?.acquire(
              [{ name: `key:${n}`, limits: { concurrency: 5 } }],
              NO_RESERVATION,
            ),
        ),
      );
      const [, before] = await raw.zrange(place, "0", "-1", "WITHSCORES");
      await costOf("zadd");
      await Promise.all(limiters.map((limiter) => limiter.start()));
      const [, after] = await raw.zrange(place, "0", "-1", "WITHSCORES");
      assert.ok(Number(after) > Number(before), "it is renewed");
      const { calls, ms } = await costOf("zadd");
      assert.ok(calls >= PLACES, `${calls} places`);
      assert.ok(MAX_RENEWED * ms < MAX_MS, `${ms} ms a place`);

      for (const lease of leases) lease?.release({ tokens: 0, spend: 0 });
      await until(async () => await raw.exists(place) === 0, "all are given back");
      assert.equal(limiters.reduce((sum, { localDecisions }) => sum + localDecisions, 0), 0);
    } finally {
      for (const limiter of limiters) await limiter.close();
    }
  });
});
