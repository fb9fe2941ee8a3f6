/**
 * Blocks of large limits that gateways reserve in Redis: admitted calls, charges, and returned
 * amounts.
 */
// runtimes: once
import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import fc from "fast-check";
import { checkHistory, type HistoricCall } from "../../scripts/fleet/history.ts";
import type { LimitSet } from "../../src/config/limit_set.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import {
  FREE_RESERVATION,
  type Lease,
  type LimitSubject,
  NO_AMOUNTS,
} from "../../src/limits/limiter.ts";
import { RedisLimiter } from "../../src/limits/redis/limiter.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { patientClock } from "../support/patient_clock.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { expecting, keyWith, tokens, usedOf } from "./limits_suite.ts";

const HOUR = 3_600_000;
/** A limit that is divided into blocks, and its largest block. */
const LIMIT = 1_000_000;
const BLOCK = LIMIT / 100;
/** The price of a token in 10^-9 of a currency. */
const PRICE = 250_000;
const hourly = { tokens: { limit: LIMIT, windowMs: HOUR } };

/** The limiters' clock. Tests move it, and it fires no timer. */
let passedMs = 0;
const moved: Clock = {
  ...systemClock,
  monotonic: () => systemClock.monotonic() + passedMs,
  timer: () => () => {},
};

interface Member {
  readonly client: RedisClient;
  readonly limiter: RedisLimiter;
  close(): Promise<void>;
}

withRedis.describe("blocks of large limits in Redis", () => {
  let server: RedisServer;
  let members: Member[] = [];
  beforeAll(async () => {
    server = await startRedis();
    members = await Promise.all([join(), join(), join()]);
    for (const { limiter } of members) await limiter.start(); // now each knows all others
  });
  afterAll(async () => {
    for (const member of members) await member.close();
    await server.stop();
  });

  async function join(): Promise<Member> {
    const client = new RedisClient(server.url, patientClock, () => {});
    await client.ready();
    const limiter = new RedisLimiter(client, moved);
    await limiter.start();
    return { client, limiter, close: () => limiter.close().finally(() => client.close()) };
  }
  const one = (): RedisLimiter => members[0]?.limiter ?? assert.fail();
  const other = (): RedisLimiter => members[1]?.limiter ?? assert.fail();
  /** Lets time pass until gateways return the amounts that they do not use. */
  const rest = async () => {
    passedMs += 3000;
    for (const { limiter } of members) await limiter.start();
  };
  const scriptsFor = async (act: () => Promise<unknown>): Promise<number> => {
    const count = () =>
      members[2]?.client.ask(
        (redis) => redis.info("commandstats"),
        (text) => Number(/cmdstat_evalsha:calls=(\d+)/.exec(String(text))?.[1] ?? 0),
      ) ?? 0;
    const before = await count();
    await act();
    return await count() - before;
  };

  /** Calls of one key at three gateways, at random, until some of them are refused. */
  async function runCalls(
    key: LimitSubject,
    beside: LimitSubject,
    seed: readonly Call[],
  ): Promise<HistoricCall[]> {
    const calls: HistoricCall[] = [];
    const queue = [...seed];
    const settlements: Promise<void>[] = [];
    let now = 0;
    // A call counts as open until Redis knows its usage. One connection keeps the order.
    const settle = async (call: { endedAt: number }, client?: RedisClient) => {
      await new Promise(setImmediate);
      await client?.ask((redis) => redis.ping(), () => {});
      call.endedAt = now++;
    };
    const caller = async (gateway: number) => {
      for (let call = queue.pop(); call !== undefined; call = queue.pop()) {
        const begunAt = now++;
        const { expected, actual, isBeside, turns } = call;
        const reserved = { tokens: expected, spend: expected * PRICE };
        const subjects = isBeside ? [key, beside] : [key];
        let lease: Lease | undefined;
        try {
          lease = await members[gateway]?.limiter.acquire(subjects, {
            expected: reserved,
            most: reserved,
          });
        } catch (error) {
          assert.ok(GatewayError.is(error));
          if (error.limit === "team-requests") continue; // by the other subject
        }
        for (let turn = 0; lease !== undefined && turn < turns; turn++) {
          await new Promise(setImmediate);
        }
        const used = lease === undefined
          ? 0
          : key.limits.mode === "strict"
          ? Math.min(actual, expected)
          : actual;
        const made = {
          gateway: String(gateway),
          key: "k",
          begunAt,
          endedAt: now++,
          answer: lease === undefined ? "429" : "200",
          isRefused: lease === undefined,
          actual: used,
          reserved: { least: expected, most: expected },
        };
        calls.push(made);
        lease?.release({ tokens: used, spend: used * PRICE });
        if (lease !== undefined) settlements.push(settle(made, members[gateway]?.client));
      }
    };
    await Promise.all(members.flatMap((_, gateway) => [0, 1, 2, 3].map(() => caller(gateway))));
    await Promise.all(settlements);
    return calls;
  }

  interface Call {
    readonly expected: number;
    readonly actual: number;
    readonly isBeside: boolean;
    readonly turns: number;
  }
  const call: fc.Arbitrary<Call> = fc.record({
    expected: fc.oneof(fc.nat(6000), fc.constant(0)),
    actual: fc.oneof(fc.nat(6000), fc.nat(20_000), fc.constant(0)),
    isBeside: fc.boolean(),
    turns: fc.nat(3),
  });

  it("charge the real usage, and never exceed a limit by more than the stated bound, whatever callers do", async () => {
    let [passed, refused, scripts] = [0, 0, 0];
    await fc.assert(
      fc.asyncProperty(
        fc.array(call, { minLength: 400, maxLength: 600, size: "max" }),
        fc.constantFrom("enforce" as const, "strict" as const),
        fc.constantFrom("tokens" as const, "spend" as const, "budget" as const),
        async (seed, mode, kind) => {
          const spend = { limit: LIMIT * PRICE, period: "month" as const, currency: "USD" };
          const limits: Record<string, LimitSet> = {
            tokens: { ...hourly, requests: { limit: 1e6, windowMs: HOUR } },
            spend: { ...hourly, spend },
            budget: { budget: { limit: LIMIT, period: "month" }, spend },
          };
          const key = keyWith({ ...limits[kind], mode });
          const beside = {
            name: key.name.replace("key:", "team:"),
            limits: { requests: { limit: 60, windowMs: HOUR } },
          };
          let calls: HistoricCall[] = [];
          scripts += await scriptsFor(async () => calls = await runCalls(key, beside, seed));
          const limit = { key: "k", tokens: LIMIT, isStrict: mode === "strict", excused: 0 };
          assert.deepEqual(checkHistory(calls, limit, true).violations, []);
          // Two other gateways can have a block each.
          const lent = { ...limit, tokens: LIMIT - 2 * BLOCK, excused: Infinity };
          assert.deepEqual(checkHistory(calls, lent).violations, []);
          await rest();
          const sum = calls.reduce((all, { actual }) => all + actual, 0);
          const admitted = calls.filter(({ isRefused }) => !isRefused).length;
          const all = {
            tokens: sum,
            budget: sum,
            spend: sum * PRICE,
            requests: admitted,
            concurrency: 0,
          };
          for (const [name, used] of Object.entries(await usedOf(one(), key))) {
            assert.equal(used, all[name as keyof typeof all], `${name} is not the truth`);
          }
          passed += admitted;
          refused += calls.length - admitted;
        },
      ),
      { numRuns: 30 },
    );
    assert.ok(refused > 100, `only ${refused} were refused`);
    assert.ok(scripts < 2 * (passed + refused), `${scripts} scripts for ${passed + refused} calls`);
    for (const { limiter } of members) {
      assert.equal(limiter.localDecisions, 0, "Redis was not asked");
    }
  });

  it("ask Redis for few of many calls, and leave nothing of a limit that busy gateways share", async () => {
    const key = keyWith({ tokens: { limit: 10 * LIMIT, windowMs: HOUR } });
    let [sum, refused] = [0, 0];
    const caller = async ({ limiter }: Member) => {
      for (let number = 0; number < 1500; number++) {
        try {
          (await limiter.acquire([key], expecting(tokens(1500)))).release(tokens(1000));
          sum += 1000;
        } catch {
          refused++;
        }
      }
    };
    const scripts = await scriptsFor(() =>
      Promise.all(members.flatMap((member) => [0, 1, 2].map(() => caller(member))))
    );
    assert.ok(sum <= 10 * LIMIT && sum > 10 * LIMIT - 1500, `${sum} tokens passed`);
    const admitted = sum / 1000;
    assert.ok(
      scripts - refused < admitted / 4,
      `${scripts - refused} scripts for ${admitted} calls`,
    );
    await rest();
    assert.deepEqual(await usedOf(one(), key), { tokens: sum });
  });

  it("admit a call that costs nothing when the limit is used up", async () => {
    const key = keyWith(hourly);
    (await one().acquire([key], expecting(tokens(1)))).release(tokens(LIMIT + 5));
    for (const limiter of [one(), other()]) {
      await until(async () => (await usedOf(limiter, key)).tokens === LIMIT + 5, "it is settled");
      await assert.rejects(async () => await limiter.acquire([key], expecting(tokens(1))));
      (await limiter.acquire([key], FREE_RESERVATION)).release(NO_AMOUNTS);
    }
    assert.deepEqual(await usedOf(one(), key), { tokens: LIMIT + 5 });
  });

  it("return unused amounts when a gateway is idle, stops, or its limits change", async () => {
    const key = keyWith(hourly);
    const spent = async () => (await usedOf(other(), key)).tokens ?? 0;
    const use = async (limiter: RedisLimiter, subject = key) => {
      for (let number = 0; number < 30; number++) {
        (await limiter.acquire([subject], expecting(tokens(500)))).release(tokens(100));
      }
    };
    await use(one());
    assert.ok(await spent() > 3000, "a block is lent");
    await rest();
    assert.equal(await spent(), 3000);
    const leaving = await join();
    await use(leaving.limiter);
    assert.ok(await spent() > 6000, "a block is lent");
    await leaving.close();
    assert.equal(await spent(), 6000);
    await use(one());
    await use(one(), { name: key.name, limits: { tokens: { limit: 2 * LIMIT, windowMs: HOUR } } });
    await rest();
    assert.equal(await spent(), 12_000);
  });

  it("cost at most a hundredth of the limit if a gateway dies with its block", async () => {
    const key = keyWith(hourly);
    const dying = await join();
    for (let number = 0; number < 100; number++) {
      (await dying.limiter.acquire([key], expecting(tokens(100)))).release(tokens(100));
    }
    dying.client.close();
    const { tokens: used = NaN } = await usedOf(one(), key);
    assert.ok(used > 10_000 && used <= 10_000 + BLOCK, `${used} tokens`);
  });

  it("settle in a later window only usage beyond the reservation", async () => {
    const key = keyWith({ tokens: { limit: LIMIT, windowMs: 300 } });
    const leases = await Promise.all(
      [1, 2].map(() => one().acquire([key], expecting(tokens(1000)))),
    );
    await until(async () => (await usedOf(one(), key)).tokens === 0, "the window is over");
    leases[0]?.release(tokens(400));
    assert.deepEqual(await usedOf(one(), key), { tokens: 0 });
    leases[1]?.release(tokens(1700));
    const { tokens: used } = await usedOf(one(), key);
    assert.ok(used === 700 || used === 0, `${used} tokens`); // the next window can be over too
  });

  it("never state a retry time before the end of the window, however late Redis receives the question", async () => {
    const key = keyWith({ tokens: { limit: LIMIT, windowMs: 1000 } });
    const use = async (amount: number) => {
      const reserved = tokens(amount);
      (await one().acquire([key], expecting(reserved))).release(reserved);
    };
    await use(LIMIT);
    server.pause();
    const refusing = use(1).then(() => assert.fail("it passes"), (error) => error);
    await new Promise((resolve) => setTimeout(resolve, 50));
    server.resume();
    const refusal = await refusing;
    assert.ok(GatewayError.is(refusal));
    const endsAt = performance.now() + (refusal.retryAfterMs ?? assert.fail());
    while (performance.now() < endsAt) await new Promise((resolve) => setTimeout(resolve, 1));
    await use(1);
  });

  it("report the refusals of observed limits, and refuse nothing", async () => {
    const key = keyWith({ ...hourly, mode: "observe" });
    const take = async () => (await one().acquire([key], expecting(tokens(300_000)))).observed;
    assert.deepEqual([await take(), await take(), await take(), await take()], [
      undefined,
      undefined,
      undefined,
      "tokens",
    ]);
    assert.deepEqual(await usedOf(one(), key), { tokens: 1_200_000 });
  });

  it("continue without Redis with the rest of the blocks, and charge additional usage when Redis is back", async () => {
    const own = await startRedis();
    const client = new RedisClient(own.url, systemClock, () => {});
    await client.ready();
    const limiter = new RedisLimiter(client, moved);
    await limiter.start();
    try {
      const key = keyWith(hourly);
      const call = async () =>
        (await limiter.acquire([key], expecting(tokens(100)))).release(tokens(100));
      for (let number = 0; number < 50; number++) await call();
      own.pause();
      for (let number = 0; number < 200; number++) await call();
      assert.ok(
        limiter.localDecisions > 0 && limiter.localDecisions < 200,
        `${limiter.localDecisions} decisions without Redis`,
      );
      own.resume();
      await until(() => client.health.isUp, "Redis answers again");
      passedMs += 3000;
      await until(async () => {
        await limiter.start();
        return (await usedOf(limiter, key)).tokens === 25_000;
      }, "all is charged once");
    } finally {
      await limiter.close();
      client.close();
      await own.stop();
    }
  });
});
