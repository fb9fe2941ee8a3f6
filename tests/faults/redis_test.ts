/** Faults of the Redis that gateways share. */
// runtimes: all
// alone: it measures deadlines of tens of milliseconds
import assert from "node:assert/strict";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { createKey } from "../../src/keys/lifecycle.ts";
import { RedisKeyStore } from "../../src/keys/redis/key_store.ts";
import type { LimitSubject } from "../../src/limits/limiter.ts";
import { RedisLimiter } from "../../src/limits/redis/limiter.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { LimitSet } from "../../src/config/limit_set.ts";
import { runtimeParts } from "../../src/serve/compose.ts";
import { answerPlain, chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import {
  callRaw,
  openRaw,
  parseAnswer,
  type RawAnswer,
  toRawRequest,
} from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const HOUR = 3_600_000;
/** Time that a fault can add to a call. Milliseconds. */
const MAX_ADDED_MS = 100;
/** Longest time of a call on an idle machine. Milliseconds. */
const HANG_MS = 1500;
const { digest } = runtimeParts();
/** Deadlines that a busy machine meets too, for faults that need no short ones. */
const patient: Clock = { ...systemClock, timer: (ms, fire) => systemClock.timer(10 * ms, fire) };

/** A gateway whose keys and limits are in Redis. */
interface Gateway extends UnderTest {
  readonly client: RedisClient;
  readonly keys: RedisKeyStore;
  readonly limiter: RedisLimiter;
  /** Lines for the operator. */
  readonly reports: string[];
}

/** A proxy between a gateway and Redis. */
interface Link {
  readonly url: string;
  /** The fault of bytes on their way back. */
  fault: { delayMs: number } | "nonsense";
  close(): Promise<void>;
}

/** The usage event of a stream: as much as a plain call uses. */
const USAGE =
  'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}\n\n';
const NONSENSE = "*1\r\n$4\r\nnone\r\n";

async function startLink(target: number): Promise<Link> {
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect({ port: target, host: "127.0.0.1" });
    for (const socket of [near, far]) {
      sockets.add(socket.setNoDelay(true));
      socket.on("error", () => {});
    }
    near.on("data", (data) => {
      if (link.fault !== "nonsense") return far.write(data);
      const commands = data.toString("latin1").match(/(?:^|\r\n)\*\d+\r\n/g) ?? [];
      near.write(NONSENSE.repeat(commands.length));
    });
    let written = Promise.resolve();
    far.on("data", (data) => {
      const due = performance.now() + (link.fault === "nonsense" ? 0 : link.fault.delayMs);
      written = written.then(async () => {
        const left = due - performance.now();
        if (left > 0) await new Promise((resolve) => setTimeout(resolve, left));
        if (near.writable) near.write(data);
      });
    });
    near.on("close", () => far.destroy());
    far.on("close", () => near.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const link: Link = {
    url: `redis://127.0.0.1:${port}`,
    fault: { delayMs: 0 },
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
  return link;
}

/** One answer, with the gateway's code if it is an error. */
interface Told extends RawAnswer {
  readonly code: string | undefined;
  readonly startedAt: number;
  readonly ms: number;
}

/** Interval at which a process that is not busy gets a turn. Milliseconds. */
const TICK_MS = 5;

/**
 * The times at which this process, which runs callers, gateways and provider, got no turn: a busy
 * machine, and not a fault.
 */
class Standstills {
  readonly #all: { readonly from: number; readonly to: number }[] = [];
  #last = performance.now();
  readonly #timer = setInterval(() => {
    const now = performance.now();
    if (now > this.#last + 2 * TICK_MS) this.#all.push({ from: this.#last + TICK_MS, to: now });
    this.#last = now;
  }, TICK_MS);

  /** The part of a call during which the process had no turn. Milliseconds. */
  within({ startedAt, ms }: Told): number {
    const overlaps = this.#all.map(({ from, to }) =>
      Math.min(to, startedAt + ms) - Math.max(from, startedAt)
    );
    return overlaps.reduce((sum, overlap) => sum + Math.max(0, overlap), 0);
  }

  end(): void {
    clearInterval(this.#timer);
  }
}

async function call(gateway: Gateway, key: string, body = GOOD_BODY): Promise<Told> {
  const startedAt = performance.now();
  const answer = await callRaw(gateway.a, {
    headers: { ...gateway.headers, "gateway-auth": `Bearer ${key}` },
    body,
  });
  const ms = performance.now() - startedAt;
  return {
    ...answer,
    startedAt,
    ms,
    code: answer.status === 200 ? undefined : JSON.parse(answer.body).error.code,
  };
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;

withRedis.describe("faults of Redis", () => {
  const closing: (() => Promise<unknown>)[] = [];
  let redis: RedisServer;
  let provider: Provider;
  let raw: Redis;
  let standstills: Standstills;
  beforeEach(async () => {
    standstills = new Standstills();
    redis = await startRedis();
    raw = new Redis(redis.url, { retryStrategy: () => 20 });
    raw.on("error", () => {});
    provider = await startProvider((response, { body }) => {
      if (!body.toString().includes('"stream":true')) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a"));
      finish = () => response.end(stream("b").replace("data: [DONE]", `${USAGE}data: [DONE]`));
    });
  });
  afterEach(async () => {
    // If a test fails, closing can fail too. Everything else must still be closed.
    const faults: unknown[] = [];
    standstills.end();
    for (const close of closing.splice(0).reverse()) {
      await close().catch((fault: unknown) => faults.push(fault));
    }
    raw.disconnect();
    await provider.close();
    await redis.stop();
    assert.deepEqual(faults, []);
  });
  let finish = (): void => {};
  /**
   * No call takes much longer than calls without a fault. On a busy machine those are slow already,
   * and one call in twenty can be slow for other reasons.
   */
  const assertQuick = async (calls: readonly Told[], normal: readonly Told[]): Promise<void> => {
    await new Promise((resolve) => setTimeout(resolve, 2 * TICK_MS)); // standstills are recorded
    const usual = median(normal.map(({ ms }) => ms));
    const times = calls.map((call) => Math.round(call.ms - standstills.within(call)));
    const slow = times.filter((ms) => ms > MAX_ADDED_MS + 2 * usual);
    assert.ok(slow.length <= calls.length / 20, `usually ${usual} ms, now ${times}`);
    assert.ok(Math.max(...times) < HANG_MS + 10 * usual, `it hangs: ${times}`);
  };

  const startGateway = async (clientClock: Clock, url = redis.url): Promise<Gateway> => {
    const reports: string[] = [];
    const client = new RedisClient(url, clientClock, (text) => reports.push(text));
    await client.ready();
    const keys = new RedisKeyStore(client, systemClock);
    // Gateways exchange membership and debts every few seconds. The tests do not wait for that.
    const clock: Clock = { ...systemClock, timer: (ms, fire) => systemClock.timer(ms / 30, fire) };
    const limiter = new RedisLimiter(client, clock);
    await limiter.start();
    const under = await startUnderTest({
      upstreams: { a: provider.url },
      parts: { keys, limiter },
    });
    const closeEngines = async () => {
      await Promise.all([keys.close(), limiter.close()]).finally(() => client.close());
    };
    closing.push(closeEngines, () => under.close());
    return { ...under, client, keys, limiter, reports };
  };
  const makeKey = async (
    { keys }: Gateway,
    limits: LimitSet,
  ): Promise<{ key: string; subject: LimitSubject }> => {
    const { key, record } = createKey({ limits }, { digest, now: Date.now() });
    await keys.change(record.id, () => record);
    return { key, subject: { name: `key:${record.id}`, limits } };
  };
  /** Every gateway renews its membership. */
  const allRenew = async () => {
    const scoreOf = async (id: string) => Number(await raw.zscore("sallyport:gateways", id));
    const ids = await raw.zrange("sallyport:gateways", "0", "-1");
    const before = await Promise.all(ids.map(scoreOf));
    for (const [index, id] of ids.entries()) {
      await until(async () => await scoreOf(id) > (before[index] ?? 0), "a gateway renews");
    }
  };
  /** Starts gateways that know of each other and of the key. */
  const startFleet = async (count: number, limits: LimitSet, clientClock = patient) => {
    const gateways: Gateway[] = [];
    for (let number = 0; number < count; number++) gateways.push(await startGateway(clientClock));
    const [first = assert.fail()] = gateways;
    const { key, subject } = await makeKey(first, limits);
    const normal: Told[] = [];
    for (const gateway of gateways) {
      for (let number = 0; number < 3; number++) normal.push(await call(gateway, key));
    }
    assert.deepEqual(normal.map(({ code }) => code), normal.map(() => undefined));
    // A gateway counts itself with its rate of the last renewal that all others have seen, so each
    // needs several renewals until its share includes these calls.
    for (let round = 0; round < 5; round++) await allRenew();
    return { gateways, first, key, subject, normal };
  };
  const callTimes = async (times: number, gateway: Gateway, key: string): Promise<Told[]> => {
    const told: Told[] = [];
    for (let number = 0; number < times; number++) told.push(await call(gateway, key));
    return told;
  };
  const codesOf = (told: readonly Told[]) => told.map(({ code = "ok" }) => code);
  const repeat = (times: number, code: string) => Array<string>(times).fill(code);
  const usedOf = async ({ limiter }: Gateway, subject: LimitSubject) =>
    Object.fromEntries((await limiter.status(subject)).map(({ name, used }) => [name, used]));
  /** Waits until Redis decides again, without a restart of the gateway. */
  const isBack = async (gateway: Gateway) =>
    await until(
      async () => {
        await gateway.limiter.status({ name: "key:nobody", limits: {} });
        return gateway.client.health.isUp;
      },
      "Redis decides again",
    );

  it("without Redis known keys work, unknown ones get 503, and each gateway enforces its share of the remaining limit [Redis fails]", async () => {
    const limits: LimitSet = {
      requests: { limit: 20, windowMs: HOUR },
      budget: { limit: 1e6, period: "month" },
    };
    const { gateways, first, key, subject, normal } = await startFleet(2, limits);
    // Six of twenty are used, and both gateways know it.
    for (const gateway of gateways) assert.equal((await usedOf(gateway, subject)).requests, 6);
    await redis.kill();
    const told: Told[] = [];
    for (const gateway of gateways) {
      const calls = await callTimes(10, gateway, key);
      assert.deepEqual(codesOf(calls), [...repeat(7, "ok"), ...repeat(3, "rate_limit_exceeded")]);
      told.push(...calls);
    }
    const strangers = await callTimes(5, first, generateGatewayKey());
    assert.deepEqual(codesOf(strangers), repeat(5, "key_store_unavailable"));
    assert.equal(strangers[0]?.status, 503);
    await assertQuick([...told, ...strangers], normal);
    for (const { reports } of gateways) assert.equal(reports.length, 1, reports.join("\n"));
    assert.match(first.reports[0] ?? "", /^Redis fails \(.+\): known keys stay valid for a while/);

    await redis.restart();
    for (const gateway of gateways) await isBack(gateway);
    // Redis has returned empty. Known keys stay valid. Nothing can be said about other keys.
    await until(
      async () => (await usedOf(first, subject)).requests === 14,
      "what was used meanwhile is charged",
    );
    assert.deepEqual(await usedOf(first, subject), { requests: 14, budget: 14 * 2 });
    for (let round = 0; round < 3; round++) await allRenew(); // each knows that both are back
    assert.deepEqual(codesOf(await callTimes(6, first, key)), repeat(6, "ok"));
    assert.deepEqual(codesOf(await callTimes(2, first, key)), repeat(2, "rate_limit_exceeded"));
    assert.deepEqual(
      codesOf(await callTimes(2, first, generateGatewayKey())),
      repeat(2, "key_store_unavailable"),
    );
    const { key: other } = await makeKey(first, { concurrency: 1 });
    assert.deepEqual(codesOf(await callTimes(2, first, other)), repeat(2, "ok"));
    assert.deepEqual(codesOf(await callTimes(1, first, generateGatewayKey())), [
      "key_store_unavailable",
    ]);
    assert.ok(
      first.reports.some((line) => line === "Redis answers again"),
      first.reports.join("\n"),
    );
    assert.ok(first.reports.length <= 3, first.reports.join("\n"));
  });

  it("a Redis that is paused under load delays no call, and afterwards the counts are exact [Redis fails]", async () => {
    const limits: LimitSet = { tokens: { limit: 1e6, windowMs: HOUR }, concurrency: 60 };
    const { first, key, subject, normal } = await startFleet(1, limits, systemClock);
    const open = openRaw(
      first.a,
      toRawRequest(first.a, {
        headers: { ...first.headers, "gateway-auth": `Bearer ${key}` },
        body: STREAM_BODY,
      }),
    );
    await until(() => open.received().includes("data: "), "a stream is open");
    let isLoading = true;
    const told: Told[] = [];
    const load = Array.from({ length: 8 }, async () => {
      while (isLoading) told.push(await call(first, key));
    });
    try {
      await until(() => told.length > 50, "the load runs");
      redis.pause();
      const before = told.length;
      await until(() => told.length > before + 200, "the load goes on");
      redis.resume();
      await isBack(first);
      const after = told.length;
      await until(() => told.length > after + 50, "the load goes on");
    } finally {
      isLoading = false;
      await Promise.all(load);
    }
    assert.deepEqual(codesOf(told), repeat(told.length, "ok"));
    await assertQuick(told, [...normal, ...told.slice(0, 50)]);
    assert.ok(first.limiter.localDecisions > 0);
    finish();
    assert.equal(parseAnswer(await open.closed).status, 200);
    const tokens = 2 * (normal.length + told.length + 1);
    await until(
      async () => (await usedOf(first, subject)).tokens === tokens,
      `${tokens} tokens are charged`,
    );
    assert.deepEqual(await usedOf(first, subject), { tokens, concurrency: 0 });
    await until(() => first.reports.length >= 2, "it is told");
    assert.deepEqual(first.reports.map((line) => line.split(" (")[0]), [
      "Redis fails",
      "Redis answers again",
    ]);
  });

  it("a Redis that returns empty receives the open calls, and keys stay valid meanwhile [Redis fails]", async () => {
    const { gateways, first, key, subject } = await startFleet(2, { concurrency: 2 });
    const [, second = assert.fail()] = gateways;
    const headers = { ...first.headers, "gateway-auth": `Bearer ${key}` };
    const open = openRaw(first.a, toRawRequest(first.a, { headers, body: STREAM_BODY }));
    await until(() => open.received().includes("data: "), "a stream is open");
    await redis.restart();
    for (const gateway of gateways) await isBack(gateway);
    await until(
      async () => (await usedOf(second, subject)).concurrency === 1,
      "the other one learns of it",
    );
    assert.deepEqual(codesOf(await callTimes(3, second, key)), repeat(3, "ok"));
    finish();
    await open.closed;
    await until(async () => (await usedOf(second, subject)).concurrency === 0, "and of its end");
  });

  it("errors of Redis for one key do not affect other keys; with errors for all, the gateway counts by itself [Redis fails]", async () => {
    const { first, key, subject, normal } = await startFleet(1, {
      requests: { limit: 100, windowMs: HOUR },
    });
    const { key: other, subject: sound } = await makeKey(first, {
      requests: { limit: 100, windowMs: HOUR },
    });
    await raw.set(`sallyport:{${subject.name}}:counts`, "not a hash");
    const told = [...await callTimes(5, first, key), ...await callTimes(5, first, other)];
    assert.deepEqual(codesOf(told), repeat(10, "ok"));
    assert.equal(first.limiter.localDecisions, 5);
    assert.equal(first.client.health.isUp, true);
    assert.deepEqual(await usedOf(first, sound), { requests: 5 });
    await raw.del(`sallyport:{${subject.name}}:counts`);
    assert.deepEqual(codesOf(await callTimes(1, first, key)), ["ok"]);
    // The five calls that were counted here count too, unless Redis has refused them already.
    const { requests = 0 } = await usedOf(first, subject);
    assert.ok(requests >= 1 && requests <= 6, `${requests} calls`);

    await raw.acl("SETUSER", "default", "-evalsha", "-eval");
    told.push(...await callTimes(10, first, other));
    await raw.acl("SETUSER", "default", "+@all");
    assert.equal(first.limiter.localDecisions, 15);
    assert.equal(first.reports.length, 1, first.reports.join("\n"));

    await raw.replicaof("127.0.0.1", 1);
    told.push(...await callTimes(10, first, other));
    assert.ok(first.limiter.localDecisions >= 16);
    await raw.replicaof("NO", "ONE");
    assert.deepEqual(codesOf(told), repeat(told.length, "ok"));
    await assertQuick(told, normal);
    await isBack(first);
    const { localDecisions } = first.limiter;
    assert.deepEqual(codesOf(await callTimes(3, first, other)), repeat(3, "ok"));
    assert.equal(first.limiter.localDecisions, localDecisions);
  });

  it("the gateway waits 50 ms for Redis; a slower one counts as down, and so do invalid replies [Redis fails]", async () => {
    const link = await startLink(redis.port);
    closing.push(() => link.close());
    const gateway = await startGateway(systemClock, link.url);
    const { key, subject } = await makeKey(gateway, { requests: { limit: 1000, windowMs: HOUR } });
    const { key: narrow } = await makeKey(gateway, {
      concurrency: 9,
      requests: { limit: 10, windowMs: HOUR },
    });
    const normal = [...await callTimes(10, gateway, key), ...await callTimes(1, gateway, narrow)];
    link.fault = { delayMs: 15 };
    await until(
      async () => {
        const { localDecisions } = gateway.limiter;
        await assertQuick(await callTimes(10, gateway, key), normal);
        return gateway.limiter.localDecisions === localDecisions;
      },
      "ten calls in a row for which it is waited",
    );
    for (const fault of [{ delayMs: 200 }, { delayMs: 2000 }, "nonsense"] as const) {
      link.fault = fault;
      const { localDecisions } = gateway.limiter;
      const told = [
        ...await callTimes(25, gateway, key),
        ...await callTimes(5, gateway, generateGatewayKey()),
      ];
      assert.deepEqual(codesOf(told), [...repeat(25, "ok"), ...repeat(5, "key_store_unavailable")]);
      await assertQuick(told, normal);
      assert.ok(gateway.limiter.localDecisions - localDecisions >= 20, JSON.stringify(fault));
      if (fault === "nonsense") {
        // The number of gateways in the reply does not matter.
        const { failures } = gateway.client.health;
        await until(
          () => gateway.client.health.failures >= failures + 3,
          "it says so again and again",
        );
        const counted = codesOf(await callTimes(11, gateway, narrow));
        assert.equal(counted.at(-1), "rate_limit_exceeded", counted.join());
      }
      link.fault = { delayMs: 0 };
      await isBack(gateway);
    }
    // Leases that Redis took too late are released.
    await until(
      async () => await raw.zcard(`sallyport:{${subject.name}}:open`) === 0,
      "nothing is held",
    );
    const failures = gateway.reports.filter((line) => line.startsWith("Redis fails"));
    assert.equal(failures.length, 1, gateway.reports.join("\n"));
    assert.ok(gateway.reports.length <= 2, gateway.reports.join("\n"));
  });
});
