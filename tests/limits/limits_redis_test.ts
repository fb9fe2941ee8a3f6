/** Limits in Redis: the suite of all limiters, memory beside them at each step, and what a fleet adds. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, afterEach, beforeAll, beforeEach, it } from "@std/testing/bdd";
import fc from "fast-check";
import { Redis } from "ioredis";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { type Lease, LEASE_MS, type LimitSubject, NO_RESERVATION } from "../../src/limits/limiter.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import { RedisLimiter } from "../../src/limits/limiter_redis.ts";
import { toArguments } from "../../src/limits/redis_scripts.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { LimitSet } from "../../src/config/limit_set.ts";
import { periodEnd } from "../../src/config/units.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { commandsFor, runPair, type Side } from "./limits_model.ts";
import { describeLimiter, keyWith, refusalOf, tokens, usedOf } from "./limits_suite.ts";

const HOUR = 3_600_000;
const MINUTE = 60_000;
// Nobody can set the clock of the server: what ends in the future is moved towards now instead.
const PASS = `for _, key in ipairs(redis.call('KEYS', 'sallyport:counts:*')) do
  for _, field in ipairs({'ru', 'tu', 'bu'}) do redis.call('HINCRBY', key, field, -ARGV[1]) end
end`;
const EXPIRE = `for _, key in ipairs(redis.call('KEYS', 'sallyport:open:*')) do
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ARGV[1], id) end
end`;

/** A gateway's end of it. */
interface Member {
  readonly client: RedisClient;
  readonly limiter: RedisLimiter;
  readonly reports: string[];
  /** Renews its leases, as it does every few seconds, and pays what it owes. */
  renew(): Promise<void>;
  close(): Promise<void>;
}

/** Deadlines that a busy machine keeps too: where Redis is well, it shall decide. */
const patient: Clock = { ...systemClock, timer: (ms, fire) => systemClock.timer(20 * ms, fire) };

async function join(url: string, clock: Clock): Promise<Member> {
  const reports: string[] = [];
  const client = new RedisClient(url, clock, (text) => reports.push(text));
  await client.ready();
  const limiter = new RedisLimiter(client, { ...systemClock, timer: () => () => {} });
  await limiter.start();
  const close = () => limiter.close().finally(() => client.close());
  return { client, limiter, reports, renew: () => limiter.start(), close };
}

let server: RedisServer;
let raw: Redis;
const members: Member[] = [];
const start = async (clock = patient): Promise<Member> => {
  const member = await join(server.url, clock);
  members.push(member);
  return member;
};
const open = async () => {
  server = await startRedis();
  raw = new Redis(server.url, { retryStrategy: () => 20 });
  raw.on("error", () => {});
};
const close = async () => {
  for (const member of members.splice(0)) await member.close();
  raw.disconnect();
  await server.stop();
};
const nobody: LimitSubject = { name: "key:nobody", limits: {} };
/** Lets time pass, once all is done that was asked before. */
const passFor = ({ limiter }: Member) => async (ms: number): Promise<void> => {
  await limiter.status(nobody);
  await raw.eval(PASS, 0, ms);
};

withRedis.describe("in Redis", () => {
  beforeAll(open);
  afterAll(close);
  describeLimiter("in Redis", async () => {
    const member = await join(server.url, patient);
    return {
      limiter: member.limiter,
      now: () => Date.now(),
      pass: passFor(member),
      close: member.close,
    };
  });
});

withRedis.describe("limits in Redis beside those in memory", () => {
  beforeAll(open);
  afterAll(close);

  it("answer alike at each step", async () => {
    const member = await start();
    const { limiter } = member;
    // Time moves by multiples of 25 s: how long the test itself takes then never decides which window something is in.
    const windowMs = fc.constantFrom(MINUTE, 140_000);
    const rate = fc.option(fc.record({ limit: fc.integer({ min: 1, max: 30 }), windowMs }), { nil: undefined });
    const period = fc.constantFrom("day" as const, "month" as const);
    const limits: fc.Arbitrary<LimitSet> = fc.record({
      requests: rate,
      tokens: rate,
      budget: fc.option(fc.record({ limit: fc.integer({ min: 1, max: 100 }), period }), { nil: undefined }),
      concurrency: fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined }),
      mode: fc.constantFrom(undefined, "enforce" as const, "observe" as const),
    });
    const steps = fc.integer({ min: 1, max: 8 }).map((count) => count * 25_000);
    const runs = fc.array(limits, { minLength: 1, maxLength: 3 })
      .chain((sets) => commandsFor({ subjects: sets.map(keyWith), steps, toleranceMs: 5000, length: 50 }));
    await fc.assert(
      fc.asyncProperty(runs, async (commands) => {
        await raw.flushdb();
        const moved = { wall: Date.now(), passed: 0 };
        const clock: Clock = { now: () => moved.wall, monotonic: () => moved.passed, timer: () => () => {} };
        const memory: Side = {
          limiter: new MemoryLimiter(clock),
          pass(ms) {
            moved.wall += ms;
            moved.passed += ms;
          },
        };
        await runPair(memory, { limiter, pass: passFor(member) }, commands);
      }),
      { numRuns: 150 },
    );
    assert.equal(limiter.fallbacks, 0, "Redis was not asked");
  });

  it("end days and months by the clock of Redis, also where that of a gateway is wrong by almost a day", async () => {
    for (const drift of [-23 * HOUR, -HOUR, HOUR, 23 * HOUR]) {
      const { client } = await start();
      const limiter = new RedisLimiter(client, { ...patient, now: () => Date.now() + drift });
      for (const period of ["day", "month"] as const) {
        const key = keyWith({ budget: { limit: 10, period } });
        (await limiter.acquire([key], NO_RESERVATION)).release(tokens(10));
        const { retryAfterMs = NaN } = await refusalOf(() => limiter.acquire([key], NO_RESERVATION));
        const left = periodEnd(period, Date.now()) - Date.now();
        assert.ok(Math.abs(retryAfterMs - left) < 5000, `${period}, ${drift} ms: ${retryAfterMs} is not ${left}`);
      }
      assert.equal(limiter.fallbacks, 0);
    }
  });

  it("count budgets alone, and say so, where the clock of a gateway is wrong by more than a day", async () => {
    const { client, reports } = await start();
    const limiter = new RedisLimiter(client, { ...patient, now: () => Date.now() + 25 * HOUR });
    await limiter.acquire([keyWith({ requests: { limit: 10, windowMs: HOUR } })], NO_RESERVATION);
    assert.equal(limiter.fallbacks, 0);
    await limiter.acquire([keyWith({ budget: { limit: 10, period: "day" } })], NO_RESERVATION);
    assert.equal(limiter.fallbacks, 1);
    assert.match(reports.join("\n"), /the clocks of this gateway and of Redis differ by more than a day/);
  });

  it("are told the end of any day and month that Redis may be in", () => {
    const [from, to] = [Date.UTC(2020, 0, 1), Date.UTC(2100, 11, 31)];
    const drift = fc.integer({ min: -24 * HOUR, max: 24 * HOUR });
    const period = fc.constantFrom("day" as const, "month" as const);
    fc.assert(fc.property(fc.integer({ min: from, max: to }), drift, period, (now, drift, period) => {
      const told = toArguments([keyWith({ budget: { limit: 1, period } })], now)[5];
      const [gateway, ...ends] = String(told).split(" ").map(Number);
      assert.equal(gateway, now);
      assert.equal(ends.find((end) => end > now + drift), periodEnd(period, now + drift));
    }));
  });
});

withRedis.describe("limits that gateways share through Redis", () => {
  beforeEach(open);
  afterEach(close);
  const used = (member: Member, subject: LimitSubject) => usedOf(member.limiter, subject);

  it("let exactly the limit through in every window, also small ones, whoever asks", async () => {
    const both = [await start(), await start(), await start()];
    const key = keyWith({ requests: { limit: 20, windowMs: 150 } });
    const counts = `sallyport:counts:${key.name}`;
    const ends = new Set<string>();
    let taken = 0;
    const isOver = () => ends.size >= 6;
    await Promise.all(both.map(async ({ limiter }) => {
      while (!isOver()) {
        const answers = await Promise.allSettled(
          Array.from({ length: 10 }, () => limiter.acquire([key], NO_RESERVATION)),
        );
        taken += answers.filter(({ status }) => status === "fulfilled").length;
        const [count, end] = await raw.hmget(counts, "r", "ru");
        assert.ok(Number(count ?? 0) <= 20, `${count} in one window`);
        if (end !== null && end !== undefined) ends.add(end);
      }
    }));
    const fallbacks = both.reduce((sum, { limiter }) => sum + limiter.fallbacks, 0);
    assert.equal(fallbacks, 0, "Redis was not asked");
    // A window may have come and gone unseen, on a machine that was busy elsewhere.
    assert.ok(taken <= 20 * (ends.size + 2) && taken > 20 * (ends.size - 2), `${taken} in ${ends.size} windows`);
  });

  it("count what is open on all of them, and forget a gateway that died", async () => {
    const [one, other] = [await start(), await start()];
    const key = keyWith({ concurrency: 3 });
    const leases = [
      await one.limiter.acquire([key], NO_RESERVATION),
      await one.limiter.acquire([key], NO_RESERVATION),
      await other.limiter.acquire([key], NO_RESERVATION),
    ];
    assert.equal(
      (await refusalOf(() => other.limiter.acquire([key], NO_RESERVATION))).code,
      "concurrency_limit_exceeded",
    );
    // Both live on for the life of a lease; the first one renews what it holds, the other one does not.
    await raw.eval(EXPIRE, 0, LEASE_MS.redis - 2000);
    leases[0]?.release(tokens(0));
    await one.renew();
    assert.deepEqual(await used(other, key), { concurrency: 2 });
    await raw.eval(EXPIRE, 0, 2000);
    assert.deepEqual(await used(other, key), { concurrency: 1 });
    for (const lease of leases) lease.release(tokens(0));
    assert.deepEqual(await used(one, key), { concurrency: 0 });
    await one.renew();
    assert.deepEqual(await used(one, key), { concurrency: 0 }, "what is over came back");
  });

  it("leave nothing behind in Redis that lasts longer than it counts", async () => {
    const { limiter } = await start();
    const key = keyWith({
      requests: { limit: 9, windowMs: HOUR },
      tokens: { limit: 9, windowMs: MINUTE },
      concurrency: 9,
    });
    (await limiter.acquire([key], NO_RESERVATION)).release(tokens(1));
    await limiter.acquire([key], NO_RESERVATION);
    (await limiter.acquire([keyWith({ budget: { limit: 9, period: "day" } })], NO_RESERVATION)).release(tokens(1));
    for (const name of await raw.keys("sallyport:*:key:*")) {
      const left = await raw.pttl(name);
      const most = name.includes(":open:") ? LEASE_MS.redis : name.endsWith(key.name) ? HOUR : 24 * HOUR;
      assert.ok(left > 0 && left <= most, `${name} lives for ${left} ms`);
    }
  });

  it("hold what is left when Redis comes back empty", async () => {
    const member = await start();
    const key = keyWith({ tokens: { limit: 1000, windowMs: HOUR }, concurrency: 5 });
    const leases = await Promise.all([1, 2, 3].map(() => member.limiter.acquire([key], NO_RESERVATION)));
    await server.restart();
    await until(() => member.client.health.isUp === false || raw.status === "ready", "a new connection");
    await answering(member);
    await member.renew();
    assert.deepEqual(await used(member, key), { tokens: 0, concurrency: 3 });
    for (const lease of leases) lease.release(tokens(10));
    assert.deepEqual(await used(member, key), { tokens: 30, concurrency: 0 });
  });

  /** Waits until Redis decides again. */
  async function answering({ client, limiter }: Member): Promise<void> {
    let isBack = false;
    const ask = async () => {
      await limiter.status(nobody);
      isBack = client.health.isUp;
    };
    await until(() => {
      if (!isBack) void ask();
      return isBack;
    }, "Redis decides again");
  }

  it("count alone while Redis is away, by their share, and settle the accounts when it is back", async () => {
    const [member, other] = [await start(), await start()];
    await member.renew(); // now it knows of the other
    const key = keyWith({
      requests: { limit: 7, windowMs: HOUR },
      tokens: { limit: 1e6, windowMs: HOUR },
      concurrency: 50,
    });
    const before = await member.limiter.acquire([key], NO_RESERVATION);
    await server.kill();
    const leases: Lease[] = [];
    for (let number = 0; number < 4; number++) leases.push(await member.limiter.acquire([key], NO_RESERVATION));
    assert.match((await refusalOf(() => member.limiter.acquire([key], NO_RESERVATION))).message, /7\/h requests/);
    assert.equal(member.limiter.fallbacks, 5);
    for (const lease of [before, ...leases.slice(0, 3)]) for (const _ of [1, 2]) lease.release(tokens(100));
    await server.restart();
    await answering(member);
    await answering(other);
    await member.renew();
    assert.deepEqual(await used(other, key), { requests: 0, tokens: 400, concurrency: 1 });
    leases[3]?.release(tokens(11));
    assert.deepEqual(await used(member, key), { requests: 0, tokens: 411, concurrency: 0 });
    await member.renew();
    assert.deepEqual(await used(other, key), { requests: 0, tokens: 411, concurrency: 0 }, "it paid twice");
  });

  // What was sent before a pause is done after it, late: it must neither stay held nor be charged a second time.
  it("keep exact accounts over a pause of Redis", async () => {
    const member = await start(systemClock);
    const key = keyWith({ tokens: { limit: 1e6, windowMs: HOUR }, concurrency: 20 });
    const leases = await Promise.all(Array.from({ length: 10 }, () => member.limiter.acquire([key], NO_RESERVATION)));
    server.pause();
    for (const lease of leases.slice(0, 5)) lease.release(tokens(100)); // sent, and not answered
    const late = await Promise.all(Array.from({ length: 10 }, () => member.limiter.acquire([key], NO_RESERVATION)));
    for (const lease of late.slice(0, 9)) lease.release(tokens(10)); // decided here
    for (const lease of leases.slice(5, 9)) lease.release(tokens(1));
    assert.ok(member.limiter.fallbacks >= 10, "Redis was not paused");
    server.resume();
    await answering(member);
    await member.renew();
    assert.deepEqual(await used(member, key), { tokens: 594, concurrency: 2 });
    leases[9]?.release(tokens(0));
    late[9]?.release(tokens(6));
    await member.renew();
    assert.deepEqual(await used(member, key), { tokens: 600, concurrency: 0 });
  });

  it("let no broken entry of one key hinder the others", async () => {
    const member = await start();
    const [broken, sound] = [
      keyWith({ tokens: { limit: 10, windowMs: HOUR } }),
      keyWith({ tokens: { limit: 10, windowMs: HOUR } }),
    ];
    await raw.set(`sallyport:counts:${broken.name}`, "x");
    (await member.limiter.acquire([broken], NO_RESERVATION)).release(tokens(10));
    assert.equal(member.limiter.fallbacks, 1);
    assert.equal((await refusalOf(() => member.limiter.acquire([broken], NO_RESERVATION))).code, "rate_limit_exceeded");
    (await member.limiter.acquire([sound], NO_RESERVATION)).release(tokens(4));
    assert.equal(member.limiter.fallbacks, 2);
    assert.deepEqual(await used(member, sound), { tokens: 4 });
    await raw.del(`sallyport:counts:${broken.name}`);
    await member.renew();
    assert.deepEqual(await used(member, broken), { tokens: 10 });
    assert.equal(member.reports.length, 1, member.reports.join("\n"));
  });
});
