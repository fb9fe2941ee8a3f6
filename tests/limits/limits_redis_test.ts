/**
 * Limits in Redis: the suite of all limiters, a comparison with memory at each step, and the
 * effects of a fleet.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, afterEach, beforeAll, beforeEach, it } from "@std/testing/bdd";
import fc from "fast-check";
import { Redis } from "ioredis";
import { RedisClient } from "../../src/storage/redis_client.ts";
import {
  type Lease,
  LEASE_MS,
  type Limiter,
  type LimitSubject,
  NO_RESERVATION,
  type Reservation,
} from "../../src/limits/limiter.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import type { BlockSizes } from "../../src/limits/redis/subject_blocks.ts";
import { DryLimiter } from "../../src/limits/dry_limiter.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import { RedisLimiter } from "../../src/limits/redis/limiter.ts";
import { END_OF } from "../../src/limits/redis/scripts.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { LimitSet } from "../../src/config/limit_set.ts";
import { periodEnd, PERIODS } from "../../src/config/units.ts";
import { patientClock } from "../support/patient_clock.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { commandsFor, runPair, type Side } from "./limits_model.ts";
import { describeLimiter, keyWith, refusalOf, tokens, usedOf } from "./limits_suite.ts";

const HOUR = 3_600_000;
const MINUTE = 60_000;
// The server's clock cannot be set. Instead its scripts add the time that tests have let pass.
const PASSED = "test:passed";
const TIME = "local now = time[1] * 1000";
const PASSED_TIME = `${TIME} + tonumber(redis.call('GET', '${PASSED}') or 0)`;
const EXPIRE = `for _, key in ipairs(redis.call('KEYS', 'sallyport:{*}:open')) do
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ARGV[1], id) end
end`;

/** A gateway's connection and limiter. */
interface Member {
  readonly client: RedisClient;
  readonly limiter: RedisLimiter;
  readonly reports: string[];
  /** Renews its leases and pays its debts, as it does every few seconds. */
  renew(): Promise<void>;
  close(): Promise<void>;
}

/** The same until Redis is paused. Then deadlines pass as in service. */
const createPausedClock = (): Clock & { isPaused: boolean } => {
  const clock = {
    ...systemClock,
    isPaused: false,
    timer: (ms: number, fire: () => void) =>
      (clock.isPaused ? systemClock : patientClock).timer(ms, fire),
  };
  return clock;
};

/** The time that tests have let pass. Milliseconds. */
let passedMs = 0;
/**
 * A time at which the limiters' clock is stopped, for tests that must not run slower than their
 * claim.
 */
let stoodStillAt: number | undefined;
/** The limiters' clock. Tests move it, and it fires no timer. */
const movedClock: Clock = {
  ...systemClock,
  monotonic: () => (stoodStillAt ?? systemClock.monotonic()) + passedMs,
  timer: () => () => {},
};
const countsKey = ({ name }: LimitSubject): string => `sallyport:{${name}}:counts`;

/** A connection whose scripts have a clock that tests can set. */
class TimedClient extends RedisClient {
  override script(name: string, lua: string): ReturnType<RedisClient["script"]> {
    assert.ok(lua.includes(TIME), `${name} has no clock`);
    return super.script(name, lua.replace(TIME, PASSED_TIME));
  }
}

/** Divides all limits into blocks that are never larger than the amount that exchanges wait for. */
const SMALL_BLOCKS: BlockSizes = {
  minLimits: { requests: 1, tokens: 1, budget: 1, spend: 1 },
  perLimit: Infinity,
};

async function join(url: string, clock: Clock, sizes?: BlockSizes): Promise<Member> {
  const reports: string[] = [];
  const client = new TimedClient(url, clock, (text) => reports.push(text));
  await client.ready();
  const limiter = new RedisLimiter(client, movedClock, sizes);
  await limiter.start();
  const close = () => limiter.close().finally(() => client.close());
  return { client, limiter, reports, renew: () => limiter.start(), close };
}

/** Acquires a lease. Returns `undefined` if it is refused. */
async function tryAcquire(limiter: Limiter, subject: LimitSubject, reservation = NO_RESERVATION) {
  try {
    return await limiter.acquire([subject], reservation);
  } catch (error) {
    assert.ok(GatewayError.is(error));
    return undefined;
  }
}

let server: RedisServer;
let raw: Redis;
const members: Member[] = [];
const start = async (clock = patientClock, sizes?: BlockSizes): Promise<Member> => {
  const member = await join(server.url, clock, sizes);
  members.push(member);
  return member;
};
const open = async () => {
  server = await startRedis();
  raw = new Redis(server.url, { retryStrategy: () => 20 });
  raw.on("error", () => {});
  passedMs = 0;
  stoodStillAt = undefined;
};
const close = async () => {
  for (const member of members.splice(0)) await member.close();
  raw.disconnect();
  await server.stop();
};
const unlimited: LimitSubject = { name: "key:unlimited", limits: {} };
/** Lets time pass after all earlier questions are done. */
const passFor = ({ limiter }: Member) => async (ms: number): Promise<void> => {
  await limiter.status(unlimited);
  passedMs += ms;
  await raw.set(PASSED, passedMs);
  await raw.eval(EXPIRE, 0, -ms); // open ones stay open: their gateway lives
};

withRedis.describe("in Redis", () => {
  beforeAll(open);
  afterAll(close);
  for (const [place, sizes] of [["in Redis"], ["in blocks of Redis", SMALL_BLOCKS]] as const) {
    describeLimiter(place, async () => {
      const member = await join(server.url, patientClock, sizes);
      return {
        limiter: member.limiter,
        now: () => Date.now() + passedMs,
        pass: passFor(member),
        close: member.close,
      };
    });
  }
});

withRedis.describe("limits in Redis and limits in memory", () => {
  beforeAll(open);
  afterAll(close);

  it("answer alike at each step", () => assertAlike());

  it("answer alike at each step, in blocks", () => assertAlike(SMALL_BLOCKS));

  const assertAlike = async (sizes?: BlockSizes) => {
    const member = await start(patientClock, sizes);
    const { limiter } = member;
    // New limits each time: their windows are not known, so Redis is asked about all of them.
    const forgetful: Limiter = {
      acquire: (subjects, reservation) =>
        limiter.acquire(
          subjects.map(({ name, limits }) => ({ name, limits: { ...limits } })),
          reservation,
        ),
      status: (subject) => limiter.status(subject),
    };
    // Time moves by multiples of 25 s. So the duration of the test itself never decides which
    // window an event is in.
    const windowMs = fc.constantFrom(MINUTE, 140_000);
    const rate = fc.option(fc.record({ limit: fc.integer({ min: 1, max: 30 }), windowMs }), {
      nil: undefined,
    });
    const period = fc.constantFrom("day" as const, "week" as const, "month" as const);
    const limits: fc.Arbitrary<LimitSet> = fc.record({
      requests: rate,
      tokens: rate,
      budget: fc.option(fc.record({ limit: fc.integer({ min: 1, max: 100 }), period }), {
        nil: undefined,
      }),
      spend: fc.option(
        fc.record({
          limit: fc.integer({ min: 1, max: 100 }),
          period,
          currency: fc.constant("USD"),
        }),
        { nil: undefined },
      ),
      concurrency: fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined }),
      mode: fc.constantFrom(undefined, "enforce" as const, "observe" as const, "strict" as const),
    });
    const steps = fc.integer({ min: 1, max: 8 }).map((count) => count * 25_000);
    const runs = fc.array(limits, { minLength: 1, maxLength: 3 })
      .chain((sets) =>
        commandsFor({ subjects: sets.map(keyWith), steps, toleranceMs: 5000, length: 50 })
      );
    await fc.assert(
      fc.asyncProperty(runs, async (commands) => {
        await raw.flushdb();
        await raw.set(PASSED, passedMs);
        const moved = { wall: Date.now() + passedMs, passed: 0 };
        const clock: Clock = {
          now: () => moved.wall,
          monotonic: () => moved.passed,
          timer: () => () => {},
        };
        const memory: Side = {
          limiter: new MemoryLimiter(clock),
          pass(ms) {
            moved.wall += ms;
            moved.passed += ms;
          },
        };
        await runPair(memory, { limiter: forgetful, pass: passFor(member) }, commands);
      }),
      { numRuns: 150 },
    );
    assert.equal(limiter.localDecisions, 0, "Redis was not asked");
  };

  it("end days and months by the clock of Redis, however wrong the clock of a gateway is", async () => {
    for (const drift of [-40 * 24 * HOUR, -HOUR, HOUR, 40 * 24 * HOUR]) {
      const { client } = await start();
      const limiter = new RedisLimiter(client, { ...patientClock, now: () => Date.now() + drift });
      for (const period of PERIODS) {
        const key = keyWith({ budget: { limit: 10, period } });
        (await limiter.acquire([key], NO_RESERVATION)).release(tokens(10));
        const { retryAfterMs = NaN } = await refusalOf(() =>
          limiter.acquire([key], NO_RESERVATION)
        );
        const now = Date.now() + passedMs;
        const left = periodEnd(period, now) - now;
        assert.ok(
          Math.abs(retryAfterMs - left) < 5000,
          `${period}, ${drift} ms: ${retryAfterMs} is not ${left}`,
        );
      }
      assert.equal(limiter.localDecisions, 0);
    }
  });

  it("know the end of every day, week and month", async () => {
    const script = `local now = tonumber(ARGV[1])
${END_OF}
return {endOf('day'), endOf('week'), endOf('month')}`;
    const times = fc.integer({ min: Date.UTC(2020, 0, 1), max: Date.UTC(2420, 11, 31) });
    const edges = fc.constantFrom(
      ...[2023, 2024, 2100, 2400].flatMap((year) =>
        Array.from(
          { length: 12 },
          (_, month) => [Date.UTC(year, month, 1), Date.UTC(year, month, 1) - 1],
        ).flat()
      ),
    );
    await fc.assert(
      fc.asyncProperty(fc.oneof(times, edges), async (now) => {
        assert.deepEqual(
          await raw.eval(script, 0, now),
          PERIODS.map((period) => periodEnd(period, now)),
        );
      }),
      { numRuns: 1000 },
    );
  });
});

withRedis.describe("limits that gateways share through Redis", () => {
  beforeEach(open);
  afterEach(close);
  const used = (member: Member, subject: LimitSubject) => usedOf(member.limiter, subject);

  it("accept exactly the limit in every window, also in short ones, for all callers", async () => {
    const both = [await start(), await start(), await start()];
    const key = keyWith({ requests: { limit: 20, windowMs: 150 } });
    const counts = countsKey(key);
    const ends = new Set<string>();
    let taken = 0;
    const isOver = () => ends.size >= 6;
    await Promise.all(both.map(async ({ limiter }) => {
      while (!isOver()) {
        const answers = await Promise.allSettled(
          Array.from({ length: 10 }, async () => await limiter.acquire([key], NO_RESERVATION)),
        );
        taken += answers.filter(({ status }) => status === "fulfilled").length;
        const [count, end] = await raw.hmget(counts, "r", "ru");
        assert.ok(Number(count ?? 0) <= 20, `${count} in one window`);
        if (end !== null && end !== undefined) ends.add(end);
      }
    }));
    const localDecisions = both.reduce((sum, { limiter }) => sum + limiter.localDecisions, 0);
    assert.equal(localDecisions, 0, "Redis was not asked");
    // On a busy machine a window can pass unseen.
    assert.ok(
      taken <= 20 * (ends.size + 2) && taken > 20 * (ends.size - 2),
      `${taken} in ${ends.size} windows`,
    );
  });

  it("count open exchanges of all of them, and forget a gateway that died", async () => {
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
    // Both gateways stay alive for the life of a lease. Only the first one renews its leases.
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

  it("leave nothing in Redis that lasts longer than it counts", async () => {
    const { limiter } = await start();
    const key = keyWith({
      requests: { limit: 9, windowMs: HOUR },
      tokens: { limit: 9, windowMs: MINUTE },
      concurrency: 9,
    });
    (await limiter.acquire([key], NO_RESERVATION)).release(tokens(1));
    await limiter.acquire([key], NO_RESERVATION);
    (await limiter.acquire([keyWith({ budget: { limit: 9, period: "day" } })], NO_RESERVATION))
      .release(tokens(1));
    for (const name of await raw.keys("sallyport:{key:*}:*")) {
      const left = await raw.pttl(name);
      const most = name.endsWith(":open")
        ? LEASE_MS.redis
        : name === countsKey(key)
        ? HOUR
        : 24 * HOUR;
      assert.ok(left > 0 && left <= most, `${name} lives for ${left} ms`);
    }
  });

  it("count open exchanges again when Redis returns empty", async () => {
    const member = await start();
    const key = keyWith({ tokens: { limit: 1000, windowMs: HOUR }, concurrency: 5 });
    const leases = await Promise.all(
      [1, 2, 3].map(() => member.limiter.acquire([key], NO_RESERVATION)),
    );
    await server.restart();
    await until(
      () => member.client.health.isUp === false || raw.status === "ready",
      "a new connection",
    );
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
      await limiter.status(unlimited);
      isBack = client.health.isUp;
    };
    await until(() => {
      if (!isBack) void ask();
      return isBack;
    }, "Redis decides again");
  }

  it("count alone while Redis is away, by their share of the rest, and settle when it is back", async () => {
    const [member, other] = [await start(), await start()];
    await member.renew(); // now it knows the other
    const key = keyWith({
      requests: { limit: 8, windowMs: HOUR },
      tokens: { limit: 1e6, windowMs: HOUR },
      concurrency: 50,
    });
    const before = await member.limiter.acquire([key], NO_RESERVATION);
    await server.kill();
    const leases: Lease[] = [];
    for (let number = 0; number < 4; number++) {
      leases.push(await member.limiter.acquire([key], NO_RESERVATION));
    }
    assert.match(
      (await refusalOf(() => member.limiter.acquire([key], NO_RESERVATION))).message,
      /8\/h requests/,
    );
    assert.equal(member.limiter.localDecisions, 5);
    for (const lease of [before, ...leases.slice(0, 3)]) {
      for (const _ of [1, 2]) lease.release(tokens(100));
    }
    await server.restart();
    await answering(member);
    await answering(other);
    await member.renew();
    assert.deepEqual(await used(other, key), { requests: 4, tokens: 400, concurrency: 1 });
    leases[3]?.release(tokens(11));
    assert.deepEqual(await used(member, key), { requests: 4, tokens: 411, concurrency: 0 });
    await member.renew();
    assert.deepEqual(
      await used(other, key),
      { requests: 4, tokens: 411, concurrency: 0 },
      "it paid twice",
    );
  });

  // Commands sent before a pause run late, after it. They must not stay reserved or be charged
  // twice.
  it("keep exact accounts over a pause of Redis", async () => {
    const clock = createPausedClock();
    const member = await start(clock);
    const key = keyWith({ tokens: { limit: 1e6, windowMs: HOUR }, concurrency: 20 });
    const leases = await Promise.all(
      Array.from({ length: 10 }, () => member.limiter.acquire([key], NO_RESERVATION)),
    );
    server.pause();
    clock.isPaused = true;
    for (const lease of leases.slice(0, 5)) lease.release(tokens(100)); // sent, and not answered
    const late = await Promise.all(
      Array.from({ length: 10 }, () => member.limiter.acquire([key], NO_RESERVATION)),
    );
    for (const lease of late.slice(0, 9)) lease.release(tokens(10)); // decided here
    for (const lease of leases.slice(5, 9)) lease.release(tokens(1));
    assert.equal(member.limiter.localDecisions, 10, "Redis was not paused");
    clock.isPaused = false;
    server.resume();
    await answering(member);
    await member.renew();
    assert.deepEqual(await used(member, key), { tokens: 594, concurrency: 2 });
    leases[9]?.release(tokens(0));
    late[9]?.release(tokens(6));
    await member.renew();
    assert.deepEqual(await used(member, key), { tokens: 600, concurrency: 0 });
  });

  it("are not affected by a broken entry of another key", async () => {
    const member = await start();
    const [broken, sound] = [
      keyWith({ tokens: { limit: 10, windowMs: HOUR } }),
      keyWith({ tokens: { limit: 10, windowMs: HOUR } }),
    ];
    await raw.set(countsKey(broken), "x");
    (await member.limiter.acquire([broken], NO_RESERVATION)).release(tokens(10));
    assert.equal(member.limiter.localDecisions, 1);
    assert.equal(
      (await refusalOf(() => member.limiter.acquire([broken], NO_RESERVATION))).code,
      "rate_limit_exceeded",
    );
    (await member.limiter.acquire([sound], NO_RESERVATION)).release(tokens(4));
    assert.equal(member.limiter.localDecisions, 2);
    assert.deepEqual(await used(member, sound), { tokens: 4 });
    await raw.del(countsKey(broken));
    await member.renew();
    assert.deepEqual(await used(member, broken), { tokens: 10 });
    assert.equal(member.reports.length, 1, member.reports.join("\n"));
  });

  /** Commands in scripts that the server has run, by name. */
  const scriptsRun = async () => {
    const stats = await raw.info("commandstats");
    return Array.from(
      stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g),
      ([, calls]) => Number(calls),
    )
      .reduce((sum, calls) => sum + calls, 0);
  };
  const expecting = (count: number): Reservation => ({
    expected: tokens(count),
    most: tokens(10 * count),
  });
  const scriptsFor = async (act: () => Promise<unknown>): Promise<number> => {
    const before = await scriptsRun();
    await act();
    return await scriptsRun() - before;
  };

  it("cost one script for a subject that limits only requests, and leave one counter", async () => {
    const member = await start();
    const key = keyWith({ requests: { limit: 100, windowMs: HOUR } });
    const calls = async () => {
      for (let number = 0; number < 10; number++) {
        (await member.limiter.acquire([key], NO_RESERVATION)).release(tokens(9));
      }
      await member.limiter.status(unlimited); // all earlier questions are done
    };
    assert.equal(await scriptsFor(calls), 11);
    await member.renew();
    assert.deepEqual(await raw.keys("sallyport:{key:*"), [countsKey(key)]);
    assert.deepEqual(Object.keys(await raw.hgetall(countsKey(key))).sort(), ["r", "ru"]);
  });

  it("keep the count of requests when the other limits of a subject change", async () => {
    const member = await start();
    const requests = { limit: 3, windowMs: HOUR };
    const plain = keyWith({ requests });
    const { name } = plain;
    const full = {
      name,
      limits: { requests, tokens: { limit: 100, windowMs: MINUTE }, concurrency: 2 },
    };
    for (const subject of [plain, full, { name, limits: { requests } }]) {
      (await member.limiter.acquire([subject], NO_RESERVATION)).release(tokens(0));
    }
    assert.equal(
      (await refusalOf(() => member.limiter.acquire([full], NO_RESERVATION))).code,
      "rate_limit_exceeded",
    );
    assert.equal((await used(member, plain)).requests, 3);
  });

  it("refuse without Redis in a window that is known to be exhausted, unless the limits change or a second is over", async () => {
    const member = await start();
    stoodStillAt = systemClock.monotonic();
    const requests = { limit: 2, windowMs: HOUR };
    const [key, provider] = [keyWith({ requests }), {
      name: "provider:x",
      limits: { concurrency: 5 },
    }];
    const take = (subject = key) => member.limiter.acquire([subject, provider], NO_RESERVATION);
    const refusals: GatewayError[] = [];
    for (let number = 0; number < 2; number++) (await take()).release(tokens(0));
    refusals.push(await refusalOf(take));
    await member.limiter.status(unlimited);
    const calls = async () => {
      for (let number = 0; number < 50; number++) refusals.push(await refusalOf(take));
    };
    assert.equal(await scriptsFor(calls), 0);
    assert.equal(member.limiter.localDecisions, 0);
    for (const { code, headers, retryAfterMs = NaN } of refusals) {
      assert.equal(code, "rate_limit_exceeded");
      assert.match(
        headers["ratelimit"] ?? "",
        /^"requests";r=0;t=3[56]\d\d, "provider-concurrency";r=5$/,
      );
      assert.ok(retryAfterMs > HOUR - 5000 && retryAfterMs <= HOUR);
    }
    (await take({ name: key.name, limits: { requests: { limit: 3, windowMs: HOUR } } })).release(
      tokens(0),
    );
    await refusalOf(take);
    await raw.del(countsKey(key)); // lost, or returned
    passedMs += 1000;
    (await take()).release(tokens(0));
    passedMs += HOUR;
    (await take()).release(tokens(0));
  });

  it("return the amounts of a subject when a later one refuses, and describe all limits", async () => {
    const member = await start();
    const key = keyWith({
      requests: { limit: 9, windowMs: HOUR },
      tokens: { limit: 1000, windowMs: HOUR },
      concurrency: 3,
    });
    const team = { name: "team:x", limits: { requests: { limit: 9, windowMs: HOUR } } };
    const provider = { name: "provider:x", limits: { concurrency: 1 } };
    const held = await member.limiter.acquire([key, team, provider], expecting(100));
    const refusal = await refusalOf(() =>
      member.limiter.acquire([key, team, provider], expecting(100))
    );
    assert.equal(refusal.code, "concurrency_limit_exceeded");
    const names = ["requests", "tokens", "concurrency", "team-requests", "provider-concurrency"];
    for (const header of ["ratelimit", "ratelimit-policy"]) {
      assert.deepEqual(
        Array.from(
          refusal.headers[header]?.matchAll(/(?:^|, )"([a-z-]+)";/g) ?? [],
          ([, name]) => name,
        ),
        names,
      );
    }
    assert.deepEqual(await used(member, key), { requests: 1, tokens: 100, concurrency: 1 });
    assert.deepEqual(await used(member, team), { requests: 1 });
    held.release(tokens(30));
    assert.deepEqual(await used(member, key), { requests: 1, tokens: 30, concurrency: 0 });
    // The first one refuses. The others are only read.
    const full = keyWith({ tokens: { limit: 1, windowMs: HOUR } });
    (await member.limiter.acquire([full], expecting(1))).release(tokens(1));
    const first = await refusalOf(() =>
      member.limiter.acquire([full, team, provider], NO_RESERVATION)
    );
    assert.match(
      first.headers["ratelimit"] ?? "",
      /"tokens";r=0;.*"team-requests";r=8;.*"provider-concurrency";r=1/,
    );
    assert.deepEqual(await used(member, team), { requests: 1 });
  });

  it("are each stated once in an explanation, also if calls have used them before", async () => {
    const { limiter } = await start();
    const key = keyWith({ requests: { limit: 9, windowMs: HOUR } });
    const provider = { name: "provider:x", limits: { concurrency: 9 } };
    await limiter.acquire([{ ...key }, { ...provider }], NO_RESERVATION);
    const dry = new DryLimiter((subject) => limiter.status(subject));
    await dry.acquire([key], NO_RESERVATION);
    await dry.acquire([key, provider], { ...NO_RESERVATION, firstLeaseSubject: key.name });
    assert.deepEqual(dry.asked?.statuses.map(({ name }) => name), ["requests", "concurrency"]);
  });

  it("never exceed a strict limit, whichever gateway is asked, and pass on unused amounts", async () => {
    const three = [await start(), await start(), await start()];
    const key = keyWith({ tokens: { limit: 1000, windowMs: HOUR }, mode: "strict" });
    let [sum, most] = [0, 0];
    await Promise.all(three.map(async ({ limiter }, index) => {
      for (let number = 0; number < 40; number++) {
        const taken = await tryAcquire(limiter, key, { expected: tokens(1), most: tokens(100) });
        most = Math.max(
          most,
          (await used(three[(index + 1) % 3] ?? assert.fail(), key)).tokens ?? 0,
        );
        if (taken === undefined) continue;
        const amount = number % 2 === 0 ? 100 : 10;
        sum += amount;
        taken.release(tokens(amount));
      }
    }));
    await Promise.all(three.map(({ renew }) => renew()));
    assert.ok(sum <= 1000 && sum > 900 && most <= 1000, `${sum} of 1000, ${most} at most`);
    assert.deepEqual(await used(three[0] ?? assert.fail(), key), { tokens: sum });
    const beyond = await refusalOf(() => three[0]?.limiter.acquire([key], expecting(101)));
    assert.equal(beyond.code, "request_exceeds_limit");
  });

  it("keep the reservations of a gateway that dies, and free its concurrency", async () => {
    const [dying, other] = [await start(), await start()];
    const key = keyWith({ tokens: { limit: 1000, windowMs: HOUR }, concurrency: 3 });
    for (let number = 0; number < 3; number++) await dying.limiter.acquire([key], expecting(100));
    dying.client.close();
    await refusalOf(() => other.limiter.acquire([key], expecting(100)));
    await raw.eval(EXPIRE, 0, LEASE_MS.redis);
    assert.deepEqual(await used(other, key), { tokens: 300, concurrency: 0 });
    (await other.limiter.acquire([key], expecting(100))).release(tokens(7));
    assert.deepEqual(await used(other, key), { tokens: 307, concurrency: 0 });
  });

  it("correct a reservation only in its own window, also if another gateway began the next one", async () => {
    const [one, other] = [await start(), await start()];
    const key = keyWith({
      tokens: { limit: 1000, windowMs: MINUTE },
      budget: { limit: 1e6, period: "month" },
    });
    const leases = [
      await one.limiter.acquire([key], expecting(100)),
      await one.limiter.acquire([key], expecting(100)),
    ];
    await passFor(one)(MINUTE);
    const late = await other.limiter.acquire([key], expecting(50));
    leases[0]?.release(tokens(10));
    leases[1]?.release(tokens(130));
    assert.deepEqual(await used(one, key), { tokens: 80, budget: 10 + 130 + 50 });
    late.release(tokens(0));
    assert.deepEqual(await used(other, key), { tokens: 30, budget: 140 });
  });

  it("send the settlements of one subject in one moment together", async () => {
    const member = await start();
    const key = keyWith({ tokens: { limit: 1e6, windowMs: HOUR }, concurrency: 100 });
    const leases = await Promise.all(
      Array.from({ length: 50 }, () => member.limiter.acquire([key], expecting(10))),
    );
    const settle = async () => {
      for (const [index, lease] of leases.entries()) lease.release(tokens(index));
      await member.limiter.status(unlimited);
    };
    assert.equal(await scriptsFor(settle), 2);
    assert.deepEqual(await used(member, key), { tokens: 49 * 25, concurrency: 0 });
  });

  it("renew open exchanges in batches of 100, and nothing if concurrency is not limited", async () => {
    const member = await start();
    const key = keyWith({ tokens: { limit: 1e6, windowMs: HOUR }, concurrency: 250 });
    const free = keyWith({ tokens: { limit: 1e6, windowMs: HOUR } });
    for (let number = 0; number < 250; number++) {
      await member.limiter.acquire([key, free], NO_RESERVATION);
    }
    assert.equal(await scriptsFor(member.renew), 1 + 3);
    assert.deepEqual(await raw.keys("sallyport:{*}:open"), [`sallyport:{${key.name}}:open`]);
    await raw.eval(EXPIRE, 0, LEASE_MS.redis - 1);
    await member.renew();
    await raw.eval(EXPIRE, 0, LEASE_MS.redis - 1000);
    assert.equal((await used(member, key)).concurrency, 250);
  });

  for (const name of ["key", "team", "provider"]) {
    const policy = name === "key" ? "requests" : `${name}-requests`;
    it(`accept exactly a large limit of a ${name}, in blocks that gateways reserve in advance`, () =>
      assertLargeLimit(`${name}:large`, policy));
  }

  // Regression: the first waiting call returned the amount that the others were about to use. They
  // were refused, although the whole amount was left.
  it("share a block among all waiting calls, to the end of a limit", async () => {
    const member = await start(patientClock, SMALL_BLOCKS);
    const large = keyWith({ requests: { limit: 5, windowMs: HOUR } });
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => tryAcquire(member.limiter, large)),
    );
    assert.equal(answers.filter((lease) => lease !== undefined).length, 5);
    assert.deepEqual(await used(member, large), { requests: 5 });
    const settled = keyWith({ tokens: { limit: 500, windowMs: HOUR } });
    const acquire = () => tryAcquire(member.limiter, settled, expecting(100));
    const waiting = Array.from({ length: 8 }, async () => {
      const lease = await acquire();
      lease?.release(tokens(100));
      return lease;
    });
    assert.equal((await Promise.all(waiting)).filter((lease) => lease !== undefined).length, 5);
    assert.deepEqual(await used(member, settled), { tokens: 500 });
  });

  const assertLargeLimit = async (name: string, policy: string) => {
    const three = [await start(), await start(), await start()];
    const large = { name, limits: { requests: { limit: 3000, windowMs: HOUR } } };
    let [passed, refused] = [0, 0];
    const load = () =>
      Promise.all(
        three.flatMap(({ limiter }) => Array<RedisLimiter>(4).fill(limiter)).map(
          async (limiter) => {
            for (let refusals = 0; refusals < 150;) {
              try {
                const lease = await limiter.acquire([large], NO_RESERVATION);
                assert.match(
                  lease.headers["ratelimit"] ?? "",
                  new RegExp(`^"${policy}";r=\\d+;t=3[56]\\d\\d$`),
                );
                passed++;
              } catch (error) {
                assert.equal(GatewayError.is(error) && error.code, "rate_limit_exceeded");
                refusals++;
                refused++;
              }
            }
          },
        ),
      );
    const scripts = await scriptsFor(load);
    for (const { limiter } of three) assert.equal(limiter.localDecisions, 0, "Redis was not asked");
    assert.equal(refused, 1800); // each gateway asks until it is refused
    assert.equal(passed, 3000); // all blocks are used up
    assert.ok(scripts < 500, `${scripts} scripts for 4800 calls`);
    assert.deepEqual(await used(three[0] ?? assert.fail(), large), { requests: 3000 });
    await passFor(three[0] ?? assert.fail())(HOUR);
    await three[1]?.limiter.acquire([large], NO_RESERVATION);
  };

  it("spend no block after its window", async () => {
    const member = await start();
    const provider = {
      name: "provider:large",
      limits: { requests: { limit: 1000, windowMs: MINUTE } },
    };
    for (let number = 0; number < 20; number++) {
      await member.limiter.acquire([provider], NO_RESERVATION);
    }
    await passFor(member)(MINUTE);
    await member.limiter.acquire([provider], NO_RESERVATION);
    const count = (await used(member, provider)).requests ?? 0;
    assert.ok(count >= 1 && count <= 10, `${count} in the new window`);
  });

  it("divide limits by the traffic of each gateway while Redis is away", async () => {
    const [busy, idle] = [await start(), await start()];
    for (let number = 0; number < 300; number++) {
      await busy.limiter.acquire([unlimited], NO_RESERVATION);
    }
    for (let round = 0; round < 2; round++) {
      for (const { renew } of [busy, idle]) {
        await passFor(busy)(1500);
        await renew();
      }
    }
    await server.kill();
    const passedOf = async ({ limiter }: Member) => {
      const key = keyWith({ requests: { limit: 80, windowMs: HOUR } });
      for (let passed = 0;; passed++) {
        if (await tryAcquire(limiter, key) === undefined) return passed;
      }
    };
    assert.deepEqual([await passedOf(busy), await passedOf(idle)], [70, 10]);
  });

  it("remember the other gateways when Redis returns empty, and use a tenth if it was never reached", async () => {
    const [member, other] = [await start(), await start()];
    const memory = {
      gateways: 0,
      noteGateways: (gateways: number) => void (memory.gateways = gateways),
    };
    member.limiter.remember(memory);
    await member.renew();
    assert.equal(memory.gateways, 2);
    const passedOf = async ({ limiter }: Pick<Member, "limiter">) => {
      const key = keyWith({ requests: { limit: 80, windowMs: HOUR } });
      for (let passed = 0;; passed++) {
        if (await tryAcquire(limiter, key) === undefined) return passed;
      }
    };
    await server.restart();
    await answering(member);
    await member.renew();
    await other.close();
    await server.kill();
    assert.equal(await passedOf(member), 40);
    const client = new RedisClient(server.url, systemClock, () => {});
    const stranger = new RedisLimiter(client, movedClock);
    await stranger.start();
    assert.equal(await passedOf({ limiter: stranger }), 8);
    stranger.remember(undefined, 4);
    assert.equal(await passedOf({ limiter: stranger }), 20, "as many as its operator expects");
    stranger.remember(memory, 4);
    assert.equal(
      await passedOf({ limiter: stranger }),
      40,
      "as many as were there before its start",
    );
    await stranger.close();
    client.close();
  });

  it("charge no window with usage that was admitted in another one while Redis was away", async () => {
    const member = await start();
    const key = keyWith({
      requests: { limit: 4, windowMs: MINUTE },
      tokens: { limit: 100, windowMs: HOUR },
    });
    await server.kill();
    for (let number = 0; number < 4; number++) {
      (await member.limiter.acquire([key], expecting(20))).release(tokens(5));
    }
    passedMs += MINUTE;
    await server.restart();
    await raw.set(PASSED, passedMs);
    await answering(member);
    await member.renew();
    assert.deepEqual(await used(member, key), { requests: 0, tokens: 20 });
  });

  it("correct in Redis a reservation that was made without it, once that was charged", async () => {
    const member = await start();
    const key = keyWith({
      tokens: { limit: 1000, windowMs: HOUR },
      budget: { limit: 1000, period: "month" },
    });
    await server.kill();
    const lease = await member.limiter.acquire([key], expecting(100));
    await server.restart();
    await answering(member);
    await member.renew();
    assert.deepEqual(await used(member, key), { tokens: 100, budget: 100 });
    lease.release(tokens(30));
    await member.renew();
    assert.deepEqual(await used(member, key), { tokens: 30, budget: 30 });
  });

  it("charge nothing twice that Redis may have counted before the connection broke", async () => {
    const clock = createPausedClock();
    const member = await start(clock);
    const key = keyWith({
      requests: { limit: 100, windowMs: HOUR },
      tokens: { limit: 1000, windowMs: HOUR },
    });
    await member.limiter.acquire([key], expecting(1));
    server.pause();
    clock.isPaused = true;
    const take = () => member.limiter.acquire([key], expecting(10));
    const sent = await Promise.all([take(), take(), take()]);
    const alone = [await take(), await take()]; // by now Redis is no longer asked
    for (const lease of [...sent, ...alone]) lease.release(tokens(11));
    clock.isPaused = false;
    await server.restart();
    await answering(member);
    await member.renew();
    assert.deepEqual(await used(member, key), { requests: 2, tokens: 2 * 11 + 3 });
    assert.equal(member.limiter.localDecisions, 5);
  });
});
