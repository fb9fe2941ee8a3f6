/** Limits that are counted a call away: the suite of all limiters, what is held by gateways that vanish, and a place that is away. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { createSend } from "../../src/cloudflare/bindings.ts";
import { LEASE_MS as LEASES, NO_RESERVATION } from "../../src/limits/limiter.ts";
import { MemoryLimiter, type WindowCounts } from "../../src/limits/memory_limiter.ts";
import { RemoteLimiter, type SendToLimiter } from "../../src/limits/remote_limiter.ts";
import { SharedLimiter } from "../../src/limits/shared_limiter.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import type { Clock } from "../../src/exchange/clock.ts";
import { describeLimiter, keyWith, refusalOf, tokens, usedOf } from "./limits_suite.ts";

const BEGIN = Date.UTC(2026, 1, 27, 23, 0);
const MINUTE = 60_000;
const LEASE_MS = LEASES.shared;

/** A clock that stands still, and timers that fire as it is moved. */
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
      const [next] = Array.from(timers).filter(([, dueAt]) => dueAt <= end).sort(([, one], [, other]) => one - other);
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

/** A place that counts, what it has put down, and gateways that ask it. */
function createPlace() {
  const { clock, pass } = createClock();
  const kept = new Map<string, WindowCounts>();
  const create = () =>
    new SharedLimiter(new MemoryLimiter({ ...clock, monotonic: clock.now }), clock.now, {
      get: (subject) => kept.get(subject),
      put: (subject, counts) => void kept.set(subject, structuredClone(counts)),
    });
  const place = { shared: create() };
  const send: SendToLimiter = (message) => Promise.resolve(place.shared.handle(structuredClone(message)));
  // A gateway of its own clock is one that can vanish: nobody moves its timers.
  const join = (own: Clock = clock, through = send) => new RemoteLimiter(through, own);
  return { clock, pass, place, create, join, send };
}

describeLimiter("a call away", () => {
  const { clock, pass, join } = createPlace();
  return { limiter: join(), now: clock.now, pass, close() {} };
});

describe("limits a call away", () => {
  it("what a gateway held that vanished is free again after a while, and not before", async () => {
    const { pass, join } = createPlace();
    const subject = keyWith({ concurrency: 1 });
    const vanished = join(createClock().clock);
    await vanished.acquire([subject], NO_RESERVATION);
    const other = join();
    pass(LEASE_MS - 1);
    assert.equal((await refusalOf(() => other.acquire([subject], NO_RESERVATION))).code, "concurrency_limit_exceeded");
    pass(1);
    await other.acquire([subject], NO_RESERVATION);
  });

  it("an exchange that goes on holds its place, also where what counts was begun anew", async () => {
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
    assert.deepEqual(await usedOf(limiter, subject), { concurrency: 0 }, "nobody renews what is over");
  });

  it("windows and budgets outlive what counts", async () => {
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

  it("while the place is away each gateway counts alone, and charges when it is back", async () => {
    const { join, send } = createPlace();
    const subject = keyWith({ requests: { limit: 2, windowMs: MINUTE }, budget: { limit: 100, period: "day" } });
    let isAway = true;
    const limiter = join(undefined, (message) => isAway ? Promise.reject(new Error("away")) : send(message));
    const first = await limiter.acquire([subject], NO_RESERVATION);
    await limiter.acquire([subject], NO_RESERVATION);
    assert.equal((await refusalOf(() => limiter.acquire([subject], NO_RESERVATION))).code, "rate_limit_exceeded");
    isAway = false;
    first.release(tokens(7));
    assert.deepEqual(await usedOf(limiter, subject), { requests: 0, budget: 7 });
  });

  it("a place that refuses while it is away is not counted around", async () => {
    const { join } = createPlace();
    const limiter = join(undefined, () => Promise.reject(new GatewayError("gateway_draining")));
    assert.equal(
      (await refusalOf(() => limiter.acquire([keyWith({ concurrency: 1 })], NO_RESERVATION))).code,
      "gateway_draining",
    );
  });

  it("an answer that lacks a limit is none: the gateway counts alone", async () => {
    const { join } = createPlace();
    const limiter = join(undefined, () => Promise.resolve([]));
    const subject = keyWith({ concurrency: 1 });
    await limiter.acquire([subject], NO_RESERVATION);
    assert.equal(
      (await refusalOf(() => limiter.acquire([subject], NO_RESERVATION))).code,
      "concurrency_limit_exceeded",
    );
  });

  it("a gateway that is known to have gone holds nothing, and the others what they held", async () => {
    const { place, join } = createPlace();
    const [one, other] = ["one", "other"].map((gateway) =>
      join(undefined, (message) => Promise.resolve(place.shared.handle(message, gateway)))
    );
    const subject = keyWith({ concurrency: 2 });
    const gone = await one?.acquire([subject], NO_RESERVATION);
    const held = await other?.acquire([subject], NO_RESERVATION);
    place.shared.leave("one");
    assert.deepEqual(await usedOf(other ?? assert.fail(), subject), { concurrency: 1 });
    held?.release(tokens(0));
    assert.deepEqual(await usedOf(other ?? assert.fail(), subject), { concurrency: 0 });
    assert.ok(gone !== undefined);
  });

  it("a Durable Object that does not answer is not waited for, and what it admitted late is given back", async () => {
    const { clock, join, send, pass } = createPlace();
    const subject = keyWith({ concurrency: 1 });
    let answer = (): void => {};
    const handle: SendToLimiter = (message) =>
      message.type === "acquire" ? new Promise((resolve) => answer = () => resolve(send(message))) : send(message);
    const limiter = join(undefined, createSend(() => ({ handle }), { clock, keepAlive: (work) => void work }));
    const acquiring = limiter.acquire([subject], NO_RESERVATION);
    pass(2000);
    const lease = await acquiring;
    answer();
    assert.deepEqual(await usedOf(limiter, subject), { concurrency: 1 });
    lease.release(tokens(0));
    assert.deepEqual(await usedOf(limiter, subject), { concurrency: 0 });
  });
});
