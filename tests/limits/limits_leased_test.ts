/**
 * Limits that another process counts: the suite of all limiters, leases of gateways that vanish,
 * and a counting process that is away.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { createSend } from "../../src/cloudflare/bindings.ts";
import { LEASE_MS as LEASES, NO_RESERVATION } from "../../src/limits/limiter.ts";
import { MemoryLimiter, type WindowCounts } from "../../src/limits/memory_limiter.ts";
import { RemoteLimiter, type SendToLimiter } from "../../src/limits/remote_limiter.ts";
import { LimiterServer } from "../../src/limits/limiter_server.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import type { Clock } from "../../src/exchange/clock.ts";
import { GOOD_BODY, startUnderTest } from "../support/gateway.ts";
import { answerPlain, startProvider } from "../support/provider.ts";
import { callRaw, type RawCall } from "../support/tcp_peer.ts";
import { describeLimiter, expecting, keyWith, refusalOf, tokens, usedOf } from "./limits_suite.ts";

const BEGIN = Date.UTC(2026, 1, 27, 23, 0);
const MINUTE = 60_000;
const LEASE_MS = LEASES.server;

/** A clock that stands still. Timers fire when it is moved. */
function createClock() {
  const timers = new Map<() => void, number>();
  let passed = 0;
  const clock: Clock = {
    now: () => BEGIN + passed,
    monotonic: () => passed,
    timer(ms, fire) {
      timers.set(fire, passed + ms);
      return () => void timers.delete(fire);
    },
  };
  const pass = (ms: number) => {
    const end = passed + ms;
    for (;;) {
      const [next] = Array.from(timers).filter(([, dueAt]) => dueAt <= end).sort((
        [, one],
        [, other],
      ) => one - other);
      if (next === undefined) break;
      const [fire, dueAt] = next;
      timers.delete(fire);
      passed = dueAt;
      fire();
    }
    passed = end;
  };
  return { clock, pass };
}

/** The process that counts, its stored counts, and gateways that ask it. */
function createPlace() {
  const { clock, pass } = createClock();
  const kept = new Map<string, WindowCounts>();
  const create = () =>
    new LimiterServer(new MemoryLimiter({ ...clock, monotonic: clock.now }), clock.now, {
      get: (subject) => kept.get(subject),
      put: (subject, counts) => void kept.set(subject, structuredClone(counts)),
    });
  const place = { shared: create() };
  const send: SendToLimiter = (message) =>
    Promise.resolve(place.shared.handle(structuredClone(message)));
  // A gateway with its own clock can vanish, because its timers are not moved.
  const join = (own: Clock = clock, through = send) => new RemoteLimiter(through, own);
  return { clock, pass, place, create, join, send };
}

describeLimiter("a call away", () => {
  const { clock, pass, join } = createPlace();
  return { limiter: join(), now: clock.now, pass, close() {} };
});

describe("limits that another process counts", () => {
  it("leases of a vanished gateway are free again after a while, and not before", async () => {
    const { pass, join } = createPlace();
    const subject = keyWith({ concurrency: 1 });
    const vanished = join(createClock().clock);
    await vanished.acquire([subject], NO_RESERVATION);
    const other = join();
    pass(LEASE_MS - 1);
    assert.equal(
      (await refusalOf(() => other.acquire([subject], NO_RESERVATION))).code,
      "concurrency_limit_exceeded",
    );
    pass(1);
    await other.acquire([subject], NO_RESERVATION);
  });

  it("an open exchange keeps its place, also after the counts started again", async () => {
    const { pass, join, place, create } = createPlace();
    const subject = keyWith({ concurrency: 1 });
    const limiter = join();
    const lease = await limiter.acquire([subject], NO_RESERVATION);
    pass(10 * LEASE_MS);
    await refusalOf(() => limiter.acquire([subject], NO_RESERVATION));
    place.shared = create();
    pass(LEASE_MS / 2);
    await refusalOf(() => limiter.acquire([subject], NO_RESERVATION));
    lease.release(tokens(0));
    (await limiter.acquire([subject], NO_RESERVATION)).release(tokens(0));
    pass(LEASE_MS);
    assert.deepEqual(
      await usedOf(limiter, subject),
      { concurrency: 0 },
      "an ended lease is not renewed",
    );
  });

  it("windows and budgets survive a restart of the counting process", async () => {
    const { join, place, create, pass } = createPlace();
    const subject = keyWith({
      requests: { limit: 9, windowMs: 60 * MINUTE },
      tokens: { limit: 900, windowMs: 60 * MINUTE },
      budget: { limit: 9000, period: "month" },
    });
    const limiter = join();
    (await limiter.acquire([subject], NO_RESERVATION)).release(tokens(5));
    place.shared = create();
    assert.deepEqual(await usedOf(limiter, subject), { requests: 1, tokens: 5, budget: 5 });
    (await limiter.acquire([subject], NO_RESERVATION)).release(tokens(5));
    place.shared = create();
    assert.deepEqual(await usedOf(limiter, subject), { requests: 2, tokens: 10, budget: 10 });
    pass(60 * MINUTE);
    assert.deepEqual(await usedOf(limiter, subject), { requests: 0, tokens: 0, budget: 10 });
  });

  it("while the counting process is away each gateway counts alone, and charges when it is back", async () => {
    const { join, send } = createPlace();
    const subject = keyWith({
      requests: { limit: 2, windowMs: MINUTE },
      budget: { limit: 100, period: "day" },
    });
    let isAway = true;
    const limiter = join(
      undefined,
      (message) => isAway ? Promise.reject(new Error("away")) : send(message),
    );
    const first = await limiter.acquire([subject], NO_RESERVATION);
    await limiter.acquire([subject], NO_RESERVATION);
    assert.equal(
      (await refusalOf(() => limiter.acquire([subject], NO_RESERVATION))).code,
      "rate_limit_exceeded",
    );
    isAway = false;
    first.release(tokens(7));
    assert.deepEqual(await usedOf(limiter, subject), { requests: 0, budget: 7 });
  });

  it("a second lease uses no concurrency and is not renewed, also if the store was away at its start", async () => {
    const { join, send, pass } = createPlace();
    const subject = keyWith({ concurrency: 2, tokens: { limit: 1000, windowMs: 60 * MINUTE } });
    const sent: string[] = [];
    let isAway = false;
    const limiter = join(undefined, (message) => {
      sent.push(message.type);
      return isAway ? Promise.reject(new Error("away")) : send(message);
    });
    const first = await limiter.acquire([subject], NO_RESERVATION);
    for (const away of [false, true]) {
      isAway = away;
      const second = await limiter.acquire([subject], {
        ...expecting(tokens(10)),
        firstLeaseSubject: subject.name,
      });
      isAway = false;
      sent.length = 0;
      pass(LEASE_MS / 3);
      assert.deepEqual(sent, ["renew"], "the first one");
      assert.equal((await usedOf(limiter, subject)).concurrency, 1);
      second.release(tokens(4));
      assert.equal((await usedOf(limiter, subject)).concurrency, 1);
    }
    first.release(tokens(0));
    assert.deepEqual(await usedOf(limiter, subject), { concurrency: 0, tokens: 8 });
  });

  it("a refusal by the counting process is not replaced by a local decision", async () => {
    const { join } = createPlace();
    const limiter = join(undefined, () => Promise.reject(new GatewayError("gateway_draining")));
    assert.equal(
      (await refusalOf(() => limiter.acquire([keyWith({ concurrency: 1 })], NO_RESERVATION))).code,
      "gateway_draining",
    );
  });

  it("an answer that lacks a limit is invalid: the gateway counts alone", async () => {
    const { join } = createPlace();
    const limiter = join(undefined, () => Promise.resolve([]));
    const subject = keyWith({ concurrency: 1 });
    await limiter.acquire([subject], NO_RESERVATION);
    assert.equal(
      (await refusalOf(() => limiter.acquire([subject], NO_RESERVATION))).code,
      "concurrency_limit_exceeded",
    );
  });

  it("a call is counted in the Durable Object of its team, before its body, after it and without one", async () => {
    const { clock, create } = createPlace();
    const objects = new Map<string, LimiterServer>();
    const objectOf = (name: string) => {
      const object = objects.get(name) ?? create();
      objects.set(name, object);
      return {
        handle: ((message) => Promise.resolve(object.handle(message))) satisfies SendToLimiter,
      };
    };
    const limiter = new RemoteLimiter(
      createSend(objectOf, { clock, keepAlive: (work) => void work }),
      clock,
    );
    const provider = await startProvider(answerPlain);
    const key = "a-gateway-key-of-a-team";
    const limits = { requests: "3/h", tokens: "1M/h" };
    const under = await startUnderTest({
      upstreams: { a: provider.url },
      config: {
        keys: [{ id: "one", key, team: "search", limits }],
        teams: { search: { limits: { budget: "1M/day" } } },
      },
      parts: { limiter },
    });
    const headers = { ...under.headers, "gateway-auth": `Bearer ${key}` };
    const models: RawCall = { method: "GET", path: "/v1/models", body: "" };
    const statuses: number[] = [];
    for (const call of [models, {}, {}, {}, models]) {
      statuses.push((await callRaw(under.a, { body: GOOD_BODY, ...call, headers })).status);
    }
    await under.close();
    await provider.close();
    assert.deepEqual(statuses, [200, 200, 200, 429, 429]);
    assert.deepEqual(Array.from(objects.keys()), ["team:search"]);
  });

  it("a Durable Object that does not answer is not waited for, and a late lease is returned", async () => {
    const { clock, join, send, pass } = createPlace();
    const subject = keyWith({ concurrency: 1 });
    let answer = (): void => {};
    const handle: SendToLimiter = (message) =>
      message.type === "acquire"
        ? new Promise((resolve) => answer = () => resolve(send(message)))
        : send(message);
    const limiter = join(
      undefined,
      createSend(() => ({ handle }), { clock, keepAlive: (work) => void work }),
    );
    const acquiring = limiter.acquire([subject], NO_RESERVATION);
    pass(2000);
    const lease = await acquiring;
    answer();
    assert.deepEqual(await usedOf(limiter, subject), { concurrency: 1 });
    lease.release(tokens(0));
    assert.deepEqual(await usedOf(limiter, subject), { concurrency: 0 });
  });

  it("the reservation of a vanished gateway stays charged, for strict limits too", async () => {
    for (const mode of ["enforce", "strict"] as const) {
      const { pass, join } = createPlace();
      const subject = keyWith({
        tokens: { limit: 100, windowMs: 60 * MINUTE },
        concurrency: 5,
        mode,
      });
      await join(createClock().clock).acquire([subject], {
        expected: tokens(30),
        most: tokens(90),
      });
      pass(LEASE_MS);
      const left = mode === "strict" ? 90 : 30;
      assert.deepEqual(await usedOf(join(), subject), { tokens: left, concurrency: 0 }, mode);
    }
  });

  it("an exchange longer than a lease is settled: a lease without concurrency is not renewed", async () => {
    const { pass, join } = createPlace();
    const subject = keyWith({ tokens: { limit: 100, windowMs: 60 * MINUTE }, mode: "strict" });
    const limiter = join();
    const lease = await limiter.acquire([subject], { expected: tokens(30), most: tokens(90) });
    pass(2 * LEASE_MS);
    assert.deepEqual(await usedOf(limiter, subject), { tokens: 90 });
    lease.release(tokens(40));
    assert.deepEqual(await usedOf(limiter, subject), { tokens: 40 });
  });

  it("the counts can start again between the start and the end of an exchange", async () => {
    const { join, place, create } = createPlace();
    const subject = keyWith({
      tokens: { limit: 100, windowMs: 60 * MINUTE },
      budget: { limit: 1000, period: "month" },
      spend: { limit: 1e9, period: "day", currency: "USD" },
    });
    const limiter = join();
    const lease = await limiter.acquire([subject], expecting({ tokens: 60, spend: 900 }));
    const other = await limiter.acquire([subject], expecting({ tokens: 20, spend: 50 }));
    place.shared = create();
    assert.deepEqual(await usedOf(limiter, subject), { tokens: 80, budget: 80, spend: 950 });
    lease.release({ tokens: 7, spend: 100 });
    assert.deepEqual(await usedOf(limiter, subject), { tokens: 27, budget: 27, spend: 150 });
    other.release({ tokens: 25, spend: 60 });
    assert.deepEqual(await usedOf(limiter, subject), { tokens: 32, budget: 32, spend: 160 });
  });

  it("a reservation of a past window is not returned in the next one, wherever it was forgotten", async () => {
    for (const isForgotten of [false, true]) {
      const { join, place, create, pass } = createPlace();
      const subject = keyWith({
        tokens: { limit: 100, windowMs: MINUTE / 2 },
        budget: { limit: 1000, period: "day" },
        concurrency: 5,
      });
      const limiter = join();
      const [less, more] = [
        await limiter.acquire([subject], expecting(tokens(40))),
        await limiter.acquire([subject], expecting(tokens(40))),
      ];
      pass(61 * MINUTE); // over midnight too
      await limiter.acquire([subject], expecting(tokens(50)));
      if (isForgotten) place.shared = create();
      less.release(tokens(1));
      assert.deepEqual(await usedOf(limiter, subject), {
        tokens: 50,
        budget: 50,
        concurrency: isForgotten ? 0 : 2,
      });
      more.release(tokens(45));
      const used = await usedOf(limiter, subject);
      assert.deepEqual(
        [used.tokens, used.budget],
        [55, 55],
        "only what exceeds the reservation counts",
      );
    }
  });

  it("an exchange that was admitted while the store was away is charged all its usage, and releases no other reservation", async () => {
    const { join, send } = createPlace();
    const subject = keyWith({ budget: { limit: 100, period: "day" }, concurrency: 5 });
    let isAway = false;
    const limiter = join(
      undefined,
      (message) => isAway ? Promise.reject(new Error("away")) : send(message),
    );
    await limiter.acquire([subject], expecting(tokens(30)));
    isAway = true;
    const lease = await limiter.acquire([subject], expecting(tokens(60)));
    isAway = false;
    lease.release(tokens(7));
    assert.deepEqual(await usedOf(limiter, subject), { budget: 37, concurrency: 1 });
  });

  it("a late reservation of the counting process is settled once", async () => {
    const { join, send } = createPlace();
    const subject = keyWith({ budget: { limit: 100, period: "day" }, concurrency: 5 });
    const limiter = join(undefined, async (message) => {
      const answer = await send(message);
      if (message.type === "acquire") throw new Error("it came too late");
      return answer;
    });
    const lease = await limiter.acquire([subject], expecting(tokens(60)));
    assert.deepEqual(await usedOf(limiter, subject), { budget: 60, concurrency: 1 });
    lease.release(tokens(7));
    assert.deepEqual(await usedOf(limiter, subject), { budget: 7, concurrency: 0 });
  });
});
