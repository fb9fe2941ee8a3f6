/**
 * Settlements in Redis: after lost counts, of absurd amounts, of windows with another length, and
 * settlements that Redis refuses.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import type { Redis } from "ioredis";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { LimitSubject } from "../../src/limits/limiter.ts";
import { MOST_COUNTED } from "../../src/limits/redis/scripts.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { patientClock } from "../support/patient_clock.ts";
import { type RedisServer, withRedis } from "../support/redis.ts";
import { RedisLimiters } from "../support/redis_limiters.ts";
import { until, untilSoon } from "../support/until.ts";
import { expecting, keyWith, refusalOf, tokens, usedOf } from "./limits_suite.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

withRedis.describe("settlements in Redis", () => {
  let server: RedisServer;
  let raw: Redis;
  let limiters: RedisLimiters;
  beforeEach(async () => {
    limiters = await RedisLimiters.start(patientClock);
    ({ server, raw } = limiters);
  });
  afterEach(() => limiters.stop());

  const start = (Client = RedisClient, clock?: Clock) => limiters.join(Client, { clock });
  /** Scripts that Redis has run. */
  const scripts = async () => {
    const stats = await raw.info("commandstats");
    return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
  };

  for (const period of ["day", "month"] as const) {
    it(`free concurrency and settle tokens when Redis has lost the counts of a ${period}`, async () => {
      const { limiter, reports, renew } = await start();
      const key = keyWith({
        budget: { limit: 1e6, period },
        tokens: { limit: 1e5, windowMs: HOUR },
        concurrency: 26,
      });
      const leases = await Promise.all(
        Array.from({ length: 25 }, () => limiter.acquire([key], expecting(tokens(100)))),
      );
      await raw.hdel(`sallyport:{${key.name}}:counts`, "b", "bu");
      // A call begins the same day or month again, and uses none of it.
      (await limiter.acquire([key], expecting(tokens(100)))).release(tokens(0));
      for (const lease of leases) {
        await limiter.status(key);
        lease.release(tokens(40));
      }
      await renew();
      assert.deepEqual(await usedOf(limiter, key), { budget: 0, tokens: 1000, concurrency: 0 });
      assert.deepEqual(reports, []);
      const before = await scripts();
      await renew();
      assert.equal(await scripts() - before, 1, "a settlement is repeated"); // only its membership
    });
  }

  it("correct all subjects of a call or none, so that a retry corrects each of them once", async () => {
    const { limiter, renew } = await start();
    const limits = { tokens: { limit: 1000, windowMs: HOUR } };
    const key = keyWith(limits);
    const team: LimitSubject = { name: `team:${key.name}`, limits: { ...limits } };
    (await limiter.acquire([key, team], expecting(tokens(400)))).release(tokens(400));
    await limiter.status(key);
    const correction = { charged: tokens(400), used: tokens(150), ageMs: 0 };
    const [counts, aside] = [`sallyport:{${team.name}}:counts`, `{${team.name}}aside`];
    await raw.rename(counts, aside);
    await raw.set(counts, "no hash");
    await assert.rejects(async () => await limiter.correct([key, team], correction));
    await renew();
    assert.deepEqual(await usedOf(limiter, key), { tokens: 400 });
    await raw.rename(aside, counts);
    await limiter.correct([key, team], correction);
    await renew();
    for (const subject of [key, team]) {
      assert.deepEqual(await usedOf(limiter, subject), { tokens: 150 });
    }
  });

  it("count an amount beyond all numbers as the largest one, once, and free its concurrency", async () => {
    const { limiter, reports, renew } = await start();
    for (const amount of [1e15, 1e17, 1e300, Infinity]) {
      const key = keyWith({
        requests: { limit: 10, windowMs: HOUR },
        tokens: { limit: 1000, windowMs: HOUR },
        budget: { limit: 1000, period: "month" },
        concurrency: 2,
      });
      const leases = [
        await limiter.acquire([key], expecting(tokens(1))),
        await limiter.acquire([key], expecting(tokens(1))),
      ];
      for (const lease of leases) lease.release(tokens(amount));
      for (let round = 0; round < 2; round++) await renew();
      const used = Math.min(2 * amount, MOST_COUNTED);
      assert.deepEqual(await usedOf(limiter, key), {
        requests: 2,
        tokens: used,
        budget: used,
        concurrency: 0,
      });
    }
    assert.deepEqual(reports, []);
  });

  it("write nothing if one of the keys of a subject is not a set", async () => {
    const { limiter, renew } = await start();
    const key = keyWith({ tokens: { limit: 1000, windowMs: HOUR }, concurrency: 2 });
    const open = `sallyport:{${key.name}}:open`;
    const lease = await limiter.acquire([key], expecting(tokens(10)));
    await raw.set(open, "no set");
    lease.release(tokens(30));
    for (let round = 0; round < 3; round++) await renew();
    assert.equal(await raw.hget(`sallyport:{${key.name}}:counts`, "t"), "10");
    await raw.del(open);
    await renew();
    assert.deepEqual(await usedOf(limiter, key), { tokens: 30, concurrency: 0 });
  });

  it("drop a settlement whose content Redis refuses, free its concurrency, and report it", async () => {
    /** A connection whose Redis refuses settlements of 13 tokens. */
    class Refusing extends RedisClient {
      override script(name: string, lua: string): ReturnType<RedisClient["script"]> {
        const refusal =
          "for _, a in ipairs(ARGV) do if a == '13' then return redis.error_reply('ERR unlucky') end end\n";
        return super.script(name, name === "sallyportSettle" ? refusal + lua : lua);
      }
    }
    const { limiter, reports, renew } = await start(Refusing);
    const key = keyWith({ tokens: { limit: 1000, windowMs: HOUR }, concurrency: 5 });
    const [bad, good] = [
      await limiter.acquire([key], expecting(tokens(10))),
      await limiter.acquire([key], expecting(tokens(10))),
    ];
    bad.release(tokens(23));
    await limiter.status(key);
    good.release(tokens(15));
    await limiter.status(key);
    const before = await scripts();
    for (let round = 0; round < 3; round++) await renew();
    assert.equal(await scripts() - before, 3, "a settlement is repeated");
    assert.deepEqual(await usedOf(limiter, key), { tokens: 25, concurrency: 0 });
    assert.ok(
      reports.some((line) =>
        /^Redis refuses a settlement \(.*ERR unlucky.*\): it is dropped$/.test(line)
      ),
      reports.join("\n"),
    );
  });

  it("keep the count of a longer window when gateways with a shorter one settle and admit", async () => {
    const [older, newer] = [await start(), await start()];
    const short = keyWith({
      requests: { limit: 100, windowMs: MINUTE },
      tokens: { limit: 500_000, windowMs: MINUTE },
    });
    const long: LimitSubject = {
      name: short.name,
      limits: {
        requests: { limit: 900, windowMs: HOUR },
        tokens: { limit: 900_000, windowMs: HOUR },
      },
    };
    const open = await older.limiter.acquire([short], expecting(tokens(100)));
    // The short window ends, and a gateway with the new limit begins a longer one.
    await raw.del(`sallyport:{${short.name}}:counts`);
    (await newer.limiter.acquire([long], expecting(tokens(1000)))).release(tokens(400_000));
    assert.deepEqual(await usedOf(newer.limiter, long), { requests: 1, tokens: 400_000 });
    open.release(tokens(110));
    assert.deepEqual(await usedOf(older.limiter, short), { requests: 0, tokens: 10 });
    assert.deepEqual(await usedOf(newer.limiter, long), { requests: 1, tokens: 400_010 });
    for (let number = 0; number < 3; number++) {
      (await older.limiter.acquire([short], expecting(tokens(100)))).release(tokens(50));
      (await newer.limiter.acquire([long], expecting(tokens(100)))).release(tokens(50));
    }
    assert.deepEqual(await usedOf(newer.limiter, long), { requests: 7, tokens: 400_310 });
    assert.deepEqual(await usedOf(older.limiter, short), { requests: 3, tokens: 160 });
    const { retryAfterMs = NaN } = await refusalOf(() =>
      older.limiter.acquire([short], expecting(tokens(499_900)))
    );
    assert.ok(retryAfterMs <= MINUTE, `${retryAfterMs}`);
  });

  it("keep the count of a longer window of requests alone", async () => {
    const [older, newer] = [await start(), await start()];
    const short = keyWith({ requests: { limit: 5, windowMs: MINUTE } });
    const long: LimitSubject = {
      name: short.name,
      limits: { requests: { limit: 10, windowMs: HOUR } },
    };
    for (let number = 0; number < 4; number++) {
      await newer.limiter.acquire([long], expecting(tokens(0)));
    }
    for (let number = 0; number < 5; number++) {
      await older.limiter.acquire([short], expecting(tokens(0)));
    }
    await refusalOf(() => older.limiter.acquire([short], expecting(tokens(0))));
    assert.deepEqual(await usedOf(newer.limiter, long), { requests: 9 });
    await newer.limiter.acquire([long], expecting(tokens(0)));
    await refusalOf(() => newer.limiter.acquire([long], expecting(tokens(0))));
  });
  it("free concurrency within two seconds if the new server had not seen its release", async () => {
    const { limiter } = await start(RedisClient, systemClock);
    const { limiter: other } = await start(RedisClient, systemClock);
    const key = keyWith({ concurrency: 10 });
    const open = `sallyport:{${key.name}}:open`;
    const leases = await Promise.all(
      Array.from({ length: 8 }, () => limiter.acquire([key], expecting(tokens(0)))),
    );
    const replicated = await raw.zrange(open, "0", "-1", "WITHSCORES");
    for (const lease of leases.slice(0, 7)) lease.release(tokens(0));
    assert.deepEqual(await usedOf(limiter, key), { concurrency: 1 });
    const later = await limiter.acquire([key], expecting(tokens(0)));
    // As Sentinels do it: the new primary has the replicated data, and connections to the former
    // primary are closed.
    await raw.del(open);
    for (let index = 0; index < replicated.length; index += 2) {
      await raw.zadd(open, replicated[index + 1] ?? 0, replicated[index] ?? "");
    }
    await raw.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    await untilSoon(async () => await raw.zcard(open) === 2, "eight places are free", 2000);
    await until(async () => (await usedOf(other, key)).concurrency === 2, "other gateways see it");
    for (const lease of [...leases, later]) lease.release(tokens(0));
    await until(async () => await raw.zcard(open) === 0, "all are free");
  });

  it("send Redis at most the last ten thousand of the calls that ended without it", async () => {
    const { limiter, renew } = await start();
    const key = keyWith({ concurrency: 100_000 });
    await server.kill();
    for (let number = 0; number < 50_000; number++) {
      const lease = await limiter.acquire([key], expecting(tokens(0)));
      lease.release(tokens(0));
    }
    assert.ok(limiter.localDecisions === 50_000);
    await server.restart();
    await until(async () => {
      await renew();
      return (await scripts()) > 0;
    }, "Redis is asked again");
    await renew();
    const stats = await raw.info("stats");
    const received = Number(/total_net_input_bytes:(\d+)/.exec(stats)?.[1]);
    assert.ok(received < 600_000, `${received} bytes`);
  });
});
