/** Round trips to Redis for one call, whose key, team and provider all have limits. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { type LimitSubject, NO_RESERVATION } from "../../src/limits/limiter.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { withRedis } from "../support/redis.ts";
import { type LimiterMember, quiet, RedisLimiters } from "../support/redis_limiters.ts";
import { type RedisLink, startLink } from "../support/redis_link.ts";
import { keyWith, refusalOf, tokens, usedOf } from "./limits_suite.ts";

const HOUR = 3_600_000;
/** Deadlines that a busy machine meets too. */
const patient: Clock = {
  ...systemClock,
  timer: (ms, fire) => systemClock.timer(20 * ms, fire),
};

withRedis.describe("the subjects of a call", () => {
  let limiters: RedisLimiters;
  let link: RedisLink;
  let member: LimiterMember<RedisClient>;
  let passedMs = 0;
  const clock: Clock = { ...quiet, monotonic: () => passedMs };
  const team: LimitSubject = { name: "team:a", limits: { concurrency: 9 } };
  const provider: LimitSubject = {
    name: "provider:a",
    limits: { requests: { limit: 900, windowMs: HOUR } },
  };
  beforeEach(async () => {
    limiters = await RedisLimiters.start(patient);
    link = await startLink(limiters.server.port);
    limiters.closing.push(() => link.close());
    member = await limiters.join(RedisClient, { url: link.url, clock });
  });
  afterEach(() => limiters.stop());

  const acquire = (key: LimitSubject) =>
    member.limiter.acquire([key, team, provider], NO_RESERVATION);
  const used = async () => {
    const [ofTeam, ofProvider] = [
      await usedOf(member.limiter, team),
      await usedOf(member.limiter, provider),
    ];
    return { ...ofTeam, ...ofProvider };
  };

  it("are asked in one round trip", async () => {
    const key = keyWith({ tokens: { limit: 500, windowMs: HOUR } });
    (await acquire(key)).release(tokens(0)); // Redis does not know the scripts yet
    assert.deepEqual(await used(), { concurrency: 0, requests: 1 });
    const before = link.packets;
    const lease = await acquire(key);
    assert.equal(link.packets - before, 1);
    lease.release(tokens(1));
  });

  it("use nothing if one of them refuses", async () => {
    const key = keyWith({ concurrency: 1 });
    const open = await acquire(key);
    assert.equal((await refusalOf(() => acquire(key))).code, "concurrency_limit_exceeded");
    assert.deepEqual(await used(), { concurrency: 1, requests: 1 });
    open.release(tokens(0));
    assert.deepEqual(await used(), { concurrency: 0, requests: 1 });
  });

  it("are not asked together with a key that refused within a second, so that its calls cannot crowd out others", async () => {
    const key = keyWith({ concurrency: 1 });
    const open = await acquire(key);
    await refusalOf(() => acquire(key));
    await used();
    const slotsTaken = async () => {
      const stats = await limiters.raw.info("commandstats");
      return Number(/cmdstat_zadd:calls=(\d+)/.exec(stats)?.[1] ?? 0);
    };
    const before = await slotsTaken();
    for (let calls = 0; calls < 20; calls++) await refusalOf(() => acquire(key));
    assert.equal(await slotsTaken(), before, "a refused call took a slot of its team");
    passedMs += 1001;
    await refusalOf(() => acquire(key));
    assert.equal(await slotsTaken(), before + 1);
    open.release(tokens(0));
    passedMs += 1001;
    (await acquire(key)).release(tokens(0));
  });
});
