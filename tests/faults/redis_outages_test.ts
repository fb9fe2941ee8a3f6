/**
 * Several outages of Redis within one window, and the number of calls that pass in all of them
 * together. Row 40 of the list.
 */
// runtimes: bun, node
// alone: gateways have to learn of each other at an even pace
import assert from "node:assert/strict";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { LimitSubject } from "../../src/limits/limiter.ts";
import { RedisLimiter } from "../../src/limits/redis/limiter.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const OUTAGES = 4;
/** Interval at which a gateway renews its membership. Milliseconds. */
const RENEW_MS = 3000;
/** Tokens of a call: of its input and of its output. */
const [INPUT, OUTPUT] = [40, 60] as const;
const USED = INPUT + OUTPUT;
/** The price of a token, USD: a call costs 0.01 USD. */
const PRICE = 0.01 / USED;
const BUDGET = "0.60 USD/day";
const MOST_PAID = 60;
const STRICT_TOKENS = 10_000;
const body = JSON.stringify({
  model: "m",
  max_tokens: OUTPUT,
  messages: [{ role: "user", content: "Hi" }],
});

interface Member extends UnderTest {
  readonly client: RedisClient;
  readonly limiter: RedisLimiter;
  /** Returns how often it has renewed its membership. */
  renewals(): number;
}

withRedis.describe("outages of Redis within one window", () => {
  const closing: (() => Promise<unknown>)[] = [];
  let redis: RedisServer;
  let provider: Provider;
  let members: Member[];
  const keys = [
    { id: "paying", key: generateGatewayKey(), limits: { budget: BUDGET } },
    {
      id: "strict",
      key: generateGatewayKey(),
      limits: { tokens: `${STRICT_TOKENS}/h`, mode: "strict" },
    },
  ] as const;
  const [paying, strict] = keys;

  beforeEach(async () => {
    redis = await startRedis();
    provider = await startProvider((response) => {
      const usage = { prompt_tokens: INPUT, completion_tokens: OUTPUT, total_tokens: USED };
      const choices = [{
        index: 0,
        message: { role: "assistant", content: "Hi" },
        finish_reason: "stop",
      }];
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ object: "chat.completion", model: "m", choices, usage }));
    });
    members = [await startMember(), await startMember()];
  });
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
    await provider.close();
    await redis.stop();
  });

  async function startMember(): Promise<Member> {
    const client = new RedisClient(redis.url, systemClock, () => {});
    await client.ready();
    // Gateways exchange membership and debts every few seconds. The test runs this ten times as
    // fast.
    let renewals = 0;
    const clock: Clock = {
      ...systemClock,
      timer(ms, fire) {
        if (ms === RENEW_MS) renewals++; // it is set again after each renewal
        return systemClock.timer(ms / 10, fire);
      },
    };
    const limiter = new RedisLimiter(client, clock);
    await limiter.start();
    const price = { input: PRICE * 1e6, output: PRICE * 1e6 };
    const under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { maxOutput: OUTPUT },
      config: { prices: { m: price }, currency: "USD", keys },
      parts: { limiter },
    });
    closing.push(() => limiter.close().finally(() => client.close()), () => under.close());
    return { ...under, client, limiter, renewals: () => renewals };
  }
  /**
   * Waits until each gateway knows the other one, and has sent it its rate twice. Before that, the
   * first gateway assumes that it is the only one.
   */
  async function knowEachOther(): Promise<void> {
    const before = members.map(({ renewals }) => renewals());
    await until(
      () => members.every(({ renewals }, index) => renewals() >= (before[index] ?? 0) + 2),
      "they know each other",
    );
  }
  const passes = async (member: Member, key: string): Promise<boolean> => {
    const headers = { ...member.headers, "gateway-auth": `Bearer ${key}` };
    const answer = await callRaw(member.a, { headers, body });
    if (answer.status === 200) return true;
    assert.equal(answer.status, 429, answer.body);
    return false;
  };
  /**
   * Calls through both gateways in turn, until both refuse. @returns The number of calls that
   * passed
   */
  async function callUntilRefused(
    { key }: { readonly key: string },
    most = Infinity,
  ): Promise<number> {
    let passed = 0;
    for (let refused = 0; refused < 2 && passed < most;) {
      refused = 0;
      for (const member of members) {
        if (await passes(member, key)) passed++;
        else refused++;
      }
    }
    return passed;
  }
  const usedOf = async (member: Member, subject: LimitSubject) =>
    (await member.limiter.status(subject)).map(({ used }) => used)[0] ?? NaN;

  it("spend a budget of money and a strict limit only once, however many there are [Redis fails]", async () => {
    const day = { limit: 0.6e9, period: "day", currency: "USD" } as const;
    const subjects: LimitSubject[] = [
      { name: "key:paying", limits: { spend: day } },
      {
        name: "key:strict",
        limits: { tokens: { limit: STRICT_TOKENS, windowMs: 3_600_000 }, mode: "strict" },
      },
    ];
    await knowEachOther();
    let paid = await callUntilRefused(paying, 10);
    let taken = await callUntilRefused(strict, 10);
    for (let outage = 0; outage < OUTAGES; outage++) {
      const { localDecisions } = members[0]?.limiter ?? assert.fail();
      redis.pause();
      // One outage is too short to use the rest of the strict limit.
      paid += await callUntilRefused(paying);
      taken += await callUntilRefused(strict, outage === 0 ? 20 : Infinity);
      assert.ok((members[0]?.limiter.localDecisions ?? 0) > localDecisions, "Redis was not paused");
      redis.resume();
      for (const { client } of members) {
        await until(() => client.health.isUp, "Redis decides again");
      }
      // The gateway that reconnects first does not yet see the usage of the other one.
      paid += await callUntilRefused(paying);
      taken += await callUntilRefused(strict, outage === 0 ? 4 : Infinity);
    }
    // On a busy machine no gateway rejoins between two outages, and each has only its share.
    await until(
      async () => {
        paid += await callUntilRefused(paying);
        taken += await callUntilRefused(strict);
        return paid > MOST_PAID / 2 && taken * USED > STRICT_TOKENS / 2;
      },
      "both gateways can use the rest of the limits",
    );
    for (const [index, truth] of [paid * 1e9 * 0.01, taken * USED].entries()) {
      const subject = subjects[index] ?? assert.fail();
      await until(
        async () => Math.abs(await usedOf(members[0] ?? assert.fail(), subject) - truth) < 1,
        "all is charged",
      );
    }
    // Calls go through both gateways in turn. One call is open at a time, and exceeds its
    // reservation by less than its cost.
    assert.ok(paid <= MOST_PAID + 1, `${paid} calls of ${MOST_PAID} were paid`);
    assert.ok(taken * USED <= STRICT_TOKENS, `${taken * USED} of ${STRICT_TOKENS} tokens`);
  });
});
