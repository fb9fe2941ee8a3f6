/**
 * Limits during and after outages of Redis: the calls that each gateway accepts alone, and the
 * final charges.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import type { Redis } from "ioredis";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { Membership } from "../../src/limits/redis/membership.ts";
import { KnownWindows } from "../../src/limits/redis/known_windows.ts";
import type { Lease, LimitSubject } from "../../src/limits/limiter.ts";
import { layoutOf } from "../../src/limits/redis/subject_layout.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { type RedisServer, withRedis } from "../support/redis.ts";
import { type LimiterMember, quiet, RedisLimiters } from "../support/redis_limiters.ts";
import { startLink } from "../support/redis_link.ts";
import { until } from "../support/until.ts";
import { expecting, keyWith, refusalOf, tokens, usedOf } from "./limits_suite.ts";

const HOUR = 3_600_000;
const BACKGROUND_MS = 1000;
/** Delay of answers on a slow link. Milliseconds. */
const CUT_MS = 600;
/** Deadlines without a waiting caller are longer, for a busy machine. */
const patient: Clock = {
  ...systemClock,
  timer: (ms, fire) => systemClock.timer(ms === BACKGROUND_MS ? 20 * ms : ms, fire),
};
/** Tokens that a call reserves. */
const CALL = 100;
/** Amounts of a call that reserves and uses the same tokens. */
const exactly = (count: number) => ({ expected: tokens(count), most: tokens(count) });

/** Name in Redis of the time that a test lets pass. Milliseconds. */
const PASSED = "test:passed";

/** A connection whose scripts add that time to the clock of the server. */
class Timed extends RedisClient {
  override script(name: string, lua: string): ReturnType<RedisClient["script"]> {
    const passed = `now = tonumber(redis.call('GET', '${PASSED}') or 0) + time[1] * 1000`;
    return super.script(name, lua.replace("now = time[1] * 1000", passed));
  }
}

/** A connection that can hold back the answers to a settlement of two calls. */
class Gated extends Timed {
  gate: Promise<void> | undefined;

  override script(name: string, lua: string): ReturnType<RedisClient["script"]> {
    const call = super.script(name, lua);
    if (name !== "sallyportSettle") return call;
    return async (redis, keys, args) => {
      const answer = await call(redis, keys, args);
      if (args.includes(2 * CALL)) await this.gate;
      return answer;
    };
  }
}

type Member = LimiterMember<Gated>;

withRedis.describe("outages of Redis", () => {
  let server: RedisServer;
  let raw: Redis;
  let limiters: RedisLimiters;
  beforeEach(async () => {
    passedMs = 0;
    limiters = await RedisLimiters.start(patient);
    ({ server, raw } = limiters);
  });
  afterEach(() => limiters.stop());

  /** The time that a test has let pass, for gateways and for Redis. Milliseconds. */
  let passedMs = 0;
  const clock: Clock = { ...quiet, monotonic: () => quiet.monotonic() + passedMs };
  const passFor = async (ms: number) => void await raw.set(PASSED, passedMs += ms);
  const start = (url?: string) => limiters.join(Gated, { url, clock });
  /** Starts gateways that know each other. */
  async function startTwo(url?: string): Promise<[Member, Member]> {
    const both: [Member, Member] = [await start(), await start(url)];
    await knowEachOther(both);
    return both;
  }
  /**
   * Renews the membership of gateways, as they do every few seconds, until each knows all others.
   */
  async function knowEachOther(members: readonly Member[]): Promise<void> {
    for (let round = 0; round < 2; round++) {
      for (const { renew } of members) {
        await passFor(3000 / members.length);
        await renew();
      }
    }
  }
  const isUp = async ({ client }: Member) =>
    await until(() => client.health.isUp, "Redis decides again");
  async function tryAcquire(
    { limiter }: Member,
    subject: LimitSubject,
    amount: number,
  ): Promise<Lease | undefined> {
    try {
      return await limiter.acquire([subject], exactly(amount));
    } catch (error) {
      assert.ok(GatewayError.is(error));
      return undefined;
    }
  }
  /** Calls with the given tokens until one is refused. @returns The number of calls that passed */
  async function passedOf(member: Member, subject: LimitSubject, amount = 1): Promise<number> {
    for (let passed = 0;; passed++) {
      const lease = await tryAcquire(member, subject, amount);
      if (lease === undefined) return passed;
      lease.release(tokens(amount));
    }
  }

  it("keep a used-up limit used up, of every kind", async () => {
    const both = await startTwo();
    const [one] = both;
    const [limit, windowMs] = [10, HOUR];
    const keys = [
      keyWith({ requests: { limit, windowMs } }),
      keyWith({ tokens: { limit, windowMs } }),
      keyWith({ budget: { limit, period: "day" } }),
      keyWith({ tokens: { limit, windowMs }, concurrency: 5, mode: "strict" }),
    ];
    for (const key of keys) {
      assert.equal(await passedOf(one, key), 10);
      for (const { limiter } of both) await limiter.status(key);
    }
    for (let outage = 0; outage < 2; outage++) {
      server.pause();
      for (const key of keys) {
        for (const member of both) assert.equal(await passedOf(member, key), 0, key.name);
      }
      server.resume();
      for (const member of both) await isUp(member);
    }
    assert.ok(one.limiter.localDecisions > 0);
  });

  // A limit of ten million is reserved from Redis in blocks.
  for (const scale of [1, 10_000]) {
    it(`divide the rest of ${scale * 1000} tokens once, however many outages follow`, async () => {
      const both = await startTwo();
      const key = keyWith({ tokens: { limit: 1000 * scale, windowMs: HOUR } });
      (await both[0].limiter.acquire([key], exactly(400 * scale))).release(tokens(400 * scale));
      for (const { limiter } of both) await limiter.status(key);
      let passed = 0;
      for (let outage = 0; outage < 4; outage++) {
        server.pause();
        // Each gateway uses a part of its share in each outage, and all of it in the last one.
        for (const member of both) {
          for (let calls = 0; calls < (outage < 3 ? 5 : 100); calls++) {
            const lease = await tryAcquire(member, key, 20 * scale);
            lease?.release(tokens(20 * scale));
            if (lease !== undefined) passed += 20;
          }
        }
        server.resume();
        for (const member of both) await isUp(member);
      }
      assert.equal(passed, 600);
      for (let round = 0; round < 3; round++) for (const member of both) await member.renew();
      assert.deepEqual(await usedOf(both[0].limiter, key), { tokens: 1000 * scale });
      assert.equal(await passedOf(both[1], key, scale), 0);
    });
  }

  it("keep a budget used up at a gateway that read it long before others used it up", async () => {
    const both = await startTwo();
    const key = keyWith({ budget: { limit: 1000, period: "month" } });
    const [one, other] = both;
    (await other.limiter.acquire([key], exactly(10))).release(tokens(10));
    assert.equal(await passedOf(one, key, 10), 99);
    await passFor(3000);
    for (const { renew } of both) await renew();
    await server.kill();
    for (const member of both) assert.equal(await passedOf(member, key, 10), 0);
  });

  it("admit calls under a strict limit only if its window is known", async () => {
    const both = await startTwo();
    const [one, other] = both;
    const limits = { tokens: { limit: 1000, windowMs: HOUR }, mode: "strict" } as const;
    const [known, unknown, lax] = [
      keyWith(limits),
      keyWith(limits),
      keyWith({ tokens: limits.tokens }),
    ];
    for (const key of [known, unknown, lax]) {
      (await one.limiter.acquire([key], exactly(200))).release(tokens(200));
    }
    await other.limiter.status(known);
    await server.kill();
    // First gateway: half of the whole limit, minus the 200 that it has used. Second: half of the
    // rest.
    assert.deepEqual([await passedOf(one, known, 100), await passedOf(other, known, 100)], [3, 4]);
    assert.deepEqual([await passedOf(one, unknown, 100), await passedOf(other, unknown, 100)], [
      3,
      0,
    ]);
    assert.deepEqual([await passedOf(one, lax, 100), await passedOf(other, lax, 100)], [4, 5]);
    // Half of the limit is not the whole limit: a larger call is refused for now, and not forever.
    assert.equal(
      (await refusalOf(() => one.limiter.acquire([known], exactly(600)))).code,
      "rate_limit_exceeded",
    );
    assert.equal(
      (await refusalOf(() => one.limiter.acquire([known], exactly(1001)))).code,
      "request_exceeds_limit",
    );
  });

  it("keep the share of a gateway that is still away when another one is back", async () => {
    const link = await startLink(server.port);
    limiters.closing.push(() => link.close());
    const [one, other] = await startTwo(link.url);
    const key = keyWith({ tokens: { limit: 1000, windowMs: HOUR }, mode: "strict" });
    for (const { limiter } of [one, other]) {
      (await limiter.acquire([key], exactly(100))).release(tokens(100));
      await limiter.status(key);
    }
    await one.limiter.status(key);
    server.pause();
    assert.equal(await passedOf(one, key, 100), 4);
    for (let calls = 0; calls < 2; calls++) {
      (await other.limiter.acquire([key], exactly(100))).release(tokens(100));
    }
    link.rtt = CUT_MS;
    server.resume();
    await isUp(one);
    for (let round = 0; round < 3; round++) await one.renew();
    assert.equal(await passedOf(one, key, 100), 0, "the other one may still let 200 through");
    (await other.limiter.acquire([key], exactly(100))).release(tokens(100));
    link.rtt = 0;
    await isUp(other);
    for (let round = 0; round < 2; round++) for (const { renew } of [other, one]) await renew();
    assert.equal(await passedOf(one, key, 100), 1);
    assert.deepEqual(await usedOf(one.limiter, key), { tokens: 1000 });
  });

  it("charge calls that are admitted, and settle calls that end, while an earlier debt is being paid", async () => {
    const member = await start();
    const { client, limiter } = member;
    const key = keyWith({
      requests: { limit: 1000, windowMs: HOUR },
      tokens: { limit: 1e5, windowMs: HOUR },
    });
    const counts = `sallyport:{${key.name}}:counts`;
    const take = async (count: number) => {
      const leases: Lease[] = [];
      for (let number = 0; number < count; number++) {
        leases.push(await limiter.acquire([key], expecting(tokens(CALL))));
      }
      return leases;
    };
    server.pause();
    const [first, second] = await take(2);
    const { promise, resolve: open } = Promise.withResolvers<void>();
    client.gate = promise;
    server.resume();
    await isUp(member);
    await until(
      async () => await raw.hget(counts, "t") === String(2 * CALL),
      "the bill is in Redis",
    );
    server.pause();
    const later = await take(50);
    first?.release(tokens(30));
    for (const lease of later.slice(1)) lease.release(tokens(100));
    client.gate = undefined;
    open();
    server.resume();
    await isUp(member);
    await until(async () => {
      await member.renew();
      return await raw.hget(counts, "t") === String(30 + 100 + 50 * 100);
    }, "all is charged once");
    for (const lease of [second, later[0]]) lease?.release(tokens(40));
    await member.renew();
    assert.deepEqual(await usedOf(limiter, key), { requests: 52, tokens: 30 + 40 + 40 + 49 * 100 });
  });

  it("count a call of two leases once, among the decisions without Redis and for the shares of gateways", async () => {
    const { limiter, client, renew } = await start();
    const key = keyWith({
      requests: { limit: 100, windowMs: HOUR },
      concurrency: 10,
      tokens: { limit: 1e4, windowMs: HOUR },
    });
    const call = async () => {
      const first = await limiter.acquire([key], expecting(tokens(0)));
      (await limiter.acquire([key], { ...expecting(tokens(10)), firstLeaseSubject: key.name }))
        .release(
          tokens(10),
        );
      first.release(tokens(0));
    };
    await call();
    await renew();
    const [rate] = await client.run(
      (redis) => redis.hvals("{sallyport:gateways}:rates"),
      (answer) => answer as string[],
    );
    assert.equal(rate, "1");
    server.pause();
    for (const calls of [1, 2]) {
      await call();
      assert.equal(limiter.localDecisions, calls);
    }
    server.resume();
  });

  it("assign an even share to a gateway that joined just before, and none of a strict limit", async () => {
    await start();
    const member = await start();
    const requests = { limit: 100, windowMs: HOUR };
    const [lax, strict] = [keyWith({ requests }), keyWith({ requests, mode: "strict" })];
    await server.kill();
    assert.deepEqual([await passedOf(member, lax), await passedOf(member, strict)], [50, 0]);
  });

  it("assign none of a strict limit to a gateway until each other one has renewed since it joined", async () => {
    const first = await start();
    const newcomer = await start();
    await newcomer.renew(); // the first one is late, and assumes that it is alone
    const limits = { requests: { limit: 100, windowMs: HOUR }, mode: "strict" } as const;
    const both = [first, newcomer];
    const passedAlone = async () => {
      const key = keyWith(limits);
      for (const { limiter } of both) await limiter.status(key);
      server.pause();
      const passed = [await passedOf(first, key), await passedOf(newcomer, key)] as const;
      server.resume();
      for (const member of both) await isUp(member);
      return passed;
    };
    assert.deepEqual(await passedAlone(), [100, 0]);
    await knowEachOther(both);
    const [ofFirst, ofNewcomer] = await passedAlone();
    assert.ok(ofNewcomer > 0, "it has a part once the other one knows it");
    assert.ok(ofFirst + ofNewcomer <= 100, `${ofFirst} and ${ofNewcomer} of 100`);
  });

  describe("give a gateway no part of a strict limit while another one may have forgotten it", () => {
    let now: number;
    let gateways: readonly [Membership, Membership];
    beforeEach(async () => {
      now = 0;
      const clock: Clock = { ...systemClock, monotonic: () => now };
      const client = new Timed(server.url, patient, () => {});
      limiters.closing.push(() => Promise.resolve(client.close()));
      await client.ready();
      gateways = [new Membership(client, clock, "one"), new Membership(client, clock, "two")];
    });
    const pass = async (ms: number) => {
      now += ms;
      await raw.set(PASSED, now);
    };
    const renewAll = async () => {
      for (const gateway of gateways) {
        await pass(1000);
        await gateway.renew();
      }
    };

    it("because its membership has lapsed before the other one knew it", async () => {
      const [first, second] = gateways;
      await first.renew();
      await renewAll();
      assert.equal(second.divisor, Infinity);
      await pass(12_000);
      await renewAll();
      assert.equal(second.divisor, Infinity, "the first one has not renewed since");
      await renewAll();
      assert.ok(second.divisor < Infinity);
    });

    it("because it was cut off", async () => {
      const [first, second] = gateways;
      for (let round = 0; round < 4; round++) await renewAll();
      assert.ok(second.divisor < Infinity);
      for (let round = 0; round < 60; round++) {
        await pass(3000);
        await first.renew();
      }
      await second.renew();
      assert.equal(second.divisor, Infinity);
    });

    it("and no larger part for two renewals at once", async () => {
      const [first, second] = gateways;
      for (let round = 0; round < 4; round++) await renewAll();
      for (let call = 0; call < 100; call++) first.countCall();
      await renewAll();
      await pass(1000);
      await first.renew();
      await pass(2000);
      for (let call = 0; call < 300; call++) second.countCall();
      await Promise.all([second.renew(), second.renew()]);
      const sum = 1 / first.divisor + 1 / second.divisor;
      assert.ok(sum <= 1 + 1e-9, `the parts add up to ${sum}`);
    });
  });

  it("divide limits into parts that add up to one limit at most, however fast traffic grows or falls", async () => {
    let now = 0;
    const clock: Clock = { ...systemClock, monotonic: () => now };
    const gateways: Membership[] = [];
    const client = new Timed(server.url, patient, () => {});
    limiters.closing.push(() => Promise.resolve(client.close()));
    await client.ready();
    let most = 0;
    for (let second = 0; second < 300; second++) {
      now += 1000;
      await raw.set(PASSED, now);
      if (second % 60 === 0 && gateways.length < 4) {
        gateways.push(new Membership(client, clock, `gateway-${second}`));
      }
      for (const [index, gateway] of gateways.entries()) {
        // Traffic doubles every few seconds, falls to nothing, and moves from one gateway to
        // another.
        const wave = (second + 17 * index) % 50;
        const calls = wave < 40 ? Math.floor(2 ** (wave / 4)) : 0;
        for (let call = 0; call < calls; call++) gateway.countCall();
        // Sometimes a gateway is late: it misses a renewal, or two.
        const isLate = (second + 37 * index) % 30 < 4;
        if ((second + index) % 3 === 0 && !isLate) await gateway.renew();
      }
      const joined = gateways.filter(({ gateways: count }) => count < 10);
      most = Math.max(most, joined.reduce((sum, { divisor }) => sum + 1 / divisor, 0));
    }
    assert.ok(most <= 1 + 1e-9, `the parts add up to ${most}`);
    assert.ok(most > 0.9, `the parts add up to ${most} at most`);
  });
});

describe("the memory of windows", () => {
  it("keeps a bounded number of the last used windows", () => {
    const known = new KnownWindows(systemClock);
    const limits = { requests: { limit: 10, windowMs: HOUR } };
    const see = (number: number) => {
      const layout = layoutOf({ name: `key:${number}`, limits: { ...limits } });
      known.learn(layout, {
        isAdmitted: true,
        statuses: [{
          subject: layout.subject,
          name: "requests",
          limit: 10,
          used: number % 10,
          resetMs: HOUR,
        }],
        ends: [1],
        begun: [false],
      }, [1]);
    };
    for (let number = 0; number < 110_000; number++) {
      see(number);
      if (number % 40_000 === 0) assert.ok(known.find("key:0") !== undefined, `after ${number}`);
    }
    for (const forgotten of [1, 2, 9000]) assert.equal(known.find(`key:${forgotten}`), undefined);
    for (const kept of [60_000, 109_999]) assert.ok(known.find(`key:${kept}`) !== undefined);
    assert.equal(known.find("key:109999")?.windows.requests?.used, 10);
  });
});
