/** Limits that are counted a call away: the suite of all limiters, what is held by gateways that vanish, and a place that is away. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { LEASE_MS, LeaseBook } from "../../src/limits/shared_limiter.ts";
import type { WindowCounts } from "../../src/limits/memory_limiter.ts";
import { LeasedLimiter, type RemoteBook } from "../../src/limits/remote_limiter.ts";
import type { Clock } from "../../src/exchange/clock.ts";
import { describeLimiter, keyWith, refusalOf, usedOf } from "./limits_suite.ts";

const BEGIN = Date.UTC(2026, 1, 27, 23, 0);
const MINUTE = 60_000;

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
    new LeaseBook(clock.now, {
      get: (subject) => kept.get(subject),
      put: (subject, counts) => void kept.set(subject, structuredClone(counts)),
    });
  const place: { book: RemoteBook } = { book: create() };
  // A gateway of its own clock is one that can vanish: nobody moves its timers.
  const join = (own: Clock = clock) =>
    new LeasedLimiter({ bookOf: () => place.book, clock: own, keepAlive: (work) => void work });
  return { clock, pass, place, create, join };
}

describeLimiter("a call away", () => {
  const { clock, pass, create, place, join } = createPlace();
  const book = create();
  place.book = book;
  return { limiter: join(), now: clock.now, pass, unmetered: (subject) => book.unmetered(subject), close() {} };
});

describe("limits a call away", () => {
  it("what a gateway held that vanished is free again after a while, and not before", async () => {
    const { pass, join } = createPlace();
    const subject = keyWith({ concurrency: 1 });
    const vanished = join(createClock().clock);
    await vanished.take([subject]);
    const other = join();
    pass(LEASE_MS - 1);
    assert.equal((await refusalOf(() => other.take([subject]))).code, "concurrency_limit_exceeded");
    pass(1);
    await other.take([subject]);
  });

  it("an exchange that goes on holds its place, also where what counts was begun anew", async () => {
    const { pass, join, place, create } = createPlace();
    const subject = keyWith({ concurrency: 1 });
    const limiter = join();
    const lease = await limiter.take([subject]);
    pass(10 * LEASE_MS);
    await refusalOf(() => limiter.take([subject]));
    place.book = create();
    pass(LEASE_MS / 2);
    await refusalOf(() => limiter.take([subject]));
    lease.release(0);
    (await limiter.take([subject])).release(0);
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
    (await limiter.take([subject])).release(5);
    place.book = create();
    assert.deepEqual(await usedOf(limiter, subject), { requests: 1, tokens: 5, budget: 5 });
    (await limiter.take([subject])).release(5);
    place.book = create();
    assert.deepEqual(await usedOf(limiter, subject), { requests: 2, tokens: 10, budget: 10 });
    pass(60 * MINUTE);
    assert.deepEqual(await usedOf(limiter, subject), { requests: 0, tokens: 0, budget: 10 });
  });

  it("while the place is away each gateway counts alone, and charges when it is back", async () => {
    const { join, place, create } = createPlace();
    const subject = keyWith({ requests: { limit: 2, windowMs: MINUTE }, budget: { limit: 100, period: "day" } });
    const limiter = join();
    let isAway = true;
    const book = create();
    const orFail = <Given extends unknown[], Gives>(verb: (...given: Given) => Gives) => (...given: Given): Gives => {
      if (isAway) throw new Error("away");
      return verb(...given);
    };
    place.book = {
      take: orFail((...given) => book.take(...given)),
      release: orFail((...given) => book.release(...given)),
      renew: orFail((...given) => book.renew(...given)),
      standing: orFail((...given) => book.standing(...given)),
    };
    const first = await limiter.take([subject]);
    await limiter.take([subject]);
    assert.equal((await refusalOf(() => limiter.take([subject]))).code, "rate_limit_exceeded");
    isAway = false;
    first.release(7);
    assert.deepEqual(await usedOf(limiter, subject), { requests: 0, budget: 7 });
  });

  it("a place that does not answer is not waited for, and what it took late is given back", async () => {
    const { join, place, create, pass } = createPlace();
    const subject = keyWith({ concurrency: 1 });
    const limiter = join();
    const book = create();
    let answer = (): void => {};
    place.book = {
      take: (...given) => new Promise((resolve) => answer = () => resolve(book.take(...given))),
      release: (...given) => book.release(...given),
      renew: (...given) => book.renew(...given),
      standing: (...given) => book.standing(...given),
    };
    const taking = limiter.take([subject]);
    pass(2000);
    const lease = await taking;
    answer();
    assert.deepEqual(await usedOf(limiter, subject), { concurrency: 1 });
    lease.release(0);
    assert.deepEqual(await usedOf(limiter, subject), { concurrency: 0 });
  });
});
