/** Tests of every limiter, in memory and in Redis alike. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { parseList } from "structured-headers";
import type { LimitName } from "../../src/config/limit_kinds.ts";
import {
  type Amounts,
  FREE_RESERVATION,
  type Lease,
  type Limiter,
  type LimitSubject,
  NO_AMOUNTS,
  NO_RESERVATION,
  type Reservation,
  SKEW_MS,
} from "../../src/limits/limiter.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import type { LimitSet } from "../../src/config/limit_set.ts";
import { periodEnd, PERIODS } from "../../src/config/units.ts";
import { until } from "../support/until.ts";

/** A limiter, and a way to let time pass. */
export interface LimiterUnderTest {
  readonly limiter: Limiter;
  /** Wall clock, milliseconds since 1970. */
  now(): number;
  /** Moves on by the given milliseconds, without waiting. */
  pass(ms: number): Promise<void> | void;
  close(): Promise<void> | void;
}

/** Time that a test can take in addition to its limiter's time. Milliseconds. */
const NOISE_MS = 5000;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

let made = 0;
/** Makes a subject without counts. */
export function keyWith(limits: LimitSet): LimitSubject {
  return { name: `key:${++made}`, limits };
}
function providerWith(limits: LimitSet): LimitSubject {
  return { name: `provider:${++made}`, limits };
}

/** Amounts of a call that used the given tokens, and no money. */
export const tokens = (count = 0): Amounts => ({ tokens: count, spend: 0 });
/** Amounts of a call with the given cost. */
const spend = (amount: number): Amounts => ({ tokens: 0, spend: amount });
/** Reserves the expected usage of a call. Its largest possible usage is ten times as much. */
export const expecting = (expected: Amounts): Reservation => ({
  expected,
  most: { tokens: 10 * expected.tokens, spend: 10 * expected.spend },
});

/** Returns the error of a refusal. Fails if the call is not refused. */
export async function refusalOf(take: () => unknown): Promise<GatewayError> {
  try {
    await take();
  } catch (error) {
    return GatewayError.is(error) ? error : assert.fail(String(error));
  }
  assert.fail("it was not refused");
}

/** The used amount of each limit. */
export async function usedOf(
  limiter: Limiter,
  subject: LimitSubject,
): Promise<Partial<Record<LimitName, number>>> {
  return Object.fromEntries((await limiter.status(subject)).map(({ name, used }) => [name, used]));
}

function assertNear(actual: number | undefined, expected: number, what: string): void {
  const isNear = actual !== undefined && actual <= expected && actual > expected - NOISE_MS;
  assert.ok(isNear, `${what}: ${actual} is not ${expected} or shortly before`);
}

interface Item {
  readonly name: string;
  readonly parameters: Record<string, unknown>;
}

/** A list of structured fields. Its items must be strings. */
function parseItems(field: string | undefined): Item[] {
  return parseList(field ?? assert.fail("no field")).map(([name, parameters]) => {
    assert.equal(typeof name, "string");
    return { name: String(name), parameters: Object.fromEntries(parameters) };
  });
}

/** Runs the suite. */
export function describeLimiter(
  engine: string,
  open: () => Promise<LimiterUnderTest> | LimiterUnderTest,
): void {
  let under: LimiterUnderTest;
  let limiter: Limiter;
  const start = async () => {
    under = await open();
    ({ limiter } = under);
  };
  const stop = async () => void await under.close();
  const getUnder = () => under;
  const take = async (...subjects: LimitSubject[]): Promise<Lease> =>
    await limiter.acquire(subjects, NO_RESERVATION);
  const reserve: Reserve = async (expected, ...subjects) =>
    await limiter.acquire(subjects, expecting(expected));
  const takeTimes = async (times: number, ...subjects: LimitSubject[]) => {
    for (let number = 0; number < times; number++) (await take(...subjects)).release(tokens(0));
  };

  describe(`windows ${engine}`, () => {
    beforeEach(start);
    afterEach(stop);
    describeWindows(getUnder, take, takeTimes);
    describeTokens(getUnder, take);
    describeReservations(getUnder, reserve);
  });
  describe(`budgets and concurrency ${engine}`, () => {
    beforeEach(start);
    afterEach(stop);
    describeBudgets(getUnder, take);
    describeConcurrency(getUnder, take);
  });
  describe(`several limits ${engine}`, () => {
    beforeEach(start);
    afterEach(stop);
    describeSubjects(getUnder, take, takeTimes);
  });
  describe(`headers and accounts ${engine}`, () => {
    beforeEach(start);
    afterEach(stop);
    describeHeaders(getUnder, take);
    describeAccounts(getUnder);
  });
}

type Take = (...subjects: LimitSubject[]) => Promise<Lease>;
type Reserve = (expected: Amounts, ...subjects: LimitSubject[]) => Promise<Lease>;
type TakeTimes = (times: number, ...subjects: LimitSubject[]) => Promise<void>;

function describeWindows(getUnder: () => LimiterUnderTest, take: Take, takeTimes: TakeTimes): void {
  it("accepts exactly the limit, states when to retry, and then starts again", async () => {
    const key = keyWith({ requests: { limit: 5, windowMs: MINUTE } });
    await takeTimes(5, key);
    const refusal = await refusalOf(() => take(key));
    assert.equal(refusal.code, "rate_limit_exceeded");
    assert.match(refusal.message, /5\/min requests for this gateway key$/);
    assertNear(refusal.retryAfterMs, MINUTE, "retry");
    await getUnder().pass(MINUTE - NOISE_MS);
    const last = await refusalOf(() => take(key));
    assertNear(last.retryAfterMs, NOISE_MS, "retry at the end");
    await getUnder().pass(last.retryAfterMs ?? 0);
    await takeTimes(5, key);
    await refusalOf(() => take(key));
  });

  it("begins a window with its first request: no look-up, no refusal and no release begins one", async () => {
    const { limiter, pass } = getUnder();
    const key = keyWith({ requests: { limit: 2, windowMs: MINUTE }, concurrency: 1 });
    const requests = async () =>
      (await limiter.status(key)).find(({ name }) => name === "requests");
    assertNear((await requests())?.resetMs, MINUTE, "a window that has not begun");
    await pass(MINUTE / 2);
    const held = await take(key);
    assertNear((await requests())?.resetMs, MINUTE, "after the first request");
    await pass(2 * MINUTE);
    assert.equal((await refusalOf(() => take(key))).code, "concurrency_limit_exceeded");
    await pass(MINUTE / 2);
    held.release(tokens(7));
    await pass(MINUTE / 2);
    assert.equal((await requests())?.used, 0);
    await takeTimes(1, key);
    assertNear((await requests())?.resetMs, MINUTE, "after the next request");
    assert.equal((await requests())?.used, 1);
  });

  // Otherwise a key that was changed from 1000/h to 10/min would be refused for up to an hour,
  // although its headers say otherwise.
  it("starts again when the limit gets a shorter window", async () => {
    const { name, limits: { requests } } = keyWith({ requests: { limit: 20, windowMs: HOUR } });
    const wide = { name, limits: { requests, tokens: { limit: 100, windowMs: HOUR } } };
    const narrow = {
      name,
      limits: { requests: { limit: 10, windowMs: MINUTE }, tokens: { limit: 9, windowMs: MINUTE } },
    };
    for (let number = 0; number < 20; number++) (await take(wide)).release(tokens(1));
    const lease = await take(narrow);
    assert.deepEqual(await usedOf(getUnder().limiter, narrow), { requests: 1, tokens: 0 });
    lease.release(tokens(3));
    await takeTimes(9, narrow);
    assertNear((await refusalOf(() => take(narrow))).retryAfterMs, MINUTE, "retry");
    assert.ok(SKEW_MS < MINUTE);
  });
}

function describeTokens(getUnder: () => LimiterUnderTest, take: Take): void {
  it("charges usage beyond the reservation when an exchange is over", async () => {
    const key = keyWith({ tokens: { limit: 100, windowMs: HOUR } });
    const { limiter, pass } = getUnder();
    const under = [await take(key), await take(key)];
    assert.deepEqual(await usedOf(limiter, key), { tokens: 0 });
    under[0]?.release(tokens(99));
    const third = await take(key);
    under[1]?.release(tokens(1));
    const refusal = await refusalOf(() => take(key));
    assert.equal(refusal.code, "rate_limit_exceeded");
    assert.match(refusal.message, /100\/h tokens for this gateway key$/);
    assertNear(refusal.retryAfterMs, HOUR, "retry");
    third.release(tokens(1000));
    assert.deepEqual(await usedOf(limiter, key), { tokens: 1100 });
    await pass(HOUR);
    assert.deepEqual(await usedOf(limiter, key), { tokens: 0 });
    await take(key);
  });

  it("charges an exchange that ends after its window to the next window", async () => {
    const key = keyWith({ tokens: { limit: 100, windowMs: MINUTE } });
    const { limiter, pass } = getUnder();
    const lease = await take(key);
    await pass(5 * MINUTE);
    lease.release(tokens(150));
    const [status] = await limiter.status(key);
    assert.equal(status?.used, 150);
    assertNear(status?.resetMs, MINUTE, "the window of the charge");
    assert.equal((await refusalOf(() => take(key))).code, "rate_limit_exceeded");
  });
}

function describeReservations(getUnder: () => LimiterUnderTest, reserve: Reserve): void {
  const limits: LimitSet = {
    tokens: { limit: 100, windowMs: HOUR },
    budget: { limit: 1000, period: "month" },
    spend: { limit: 500, period: "day", currency: "USD" },
  };

  it("reserves the expected usage of a call at once, and corrects it by the real usage", async () => {
    const { limiter } = getUnder();
    const key = keyWith(limits);
    const lease = await reserve({ tokens: 60, spend: 7 }, key);
    assert.deepEqual(
      parseItems(lease.headers["ratelimit"]).map(({ parameters }) => parameters["r"]),
      [40, 940, 493],
    );
    assert.deepEqual(await usedOf(limiter, key), { tokens: 60, budget: 60, spend: 7 });
    assert.equal((await refusalOf(() => reserve(tokens(41), key))).code, "rate_limit_exceeded");
    const second = await reserve(tokens(40), key);
    lease.release({ tokens: 10, spend: 9 });
    assert.deepEqual(await usedOf(limiter, key), { tokens: 50, budget: 50, spend: 9 });
    second.release(tokens(90));
    second.release(tokens(1));
    assert.deepEqual(await usedOf(limiter, key), { tokens: 100, budget: 100, spend: 9 });
    assert.equal((await refusalOf(() => reserve(tokens(0), key))).code, "rate_limit_exceeded");
  });

  it("refuses amounts for which a money budget has no room", async () => {
    const { limiter } = getUnder();
    const key = keyWith({ spend: { limit: 50_000_000_000, period: "month", currency: "USD" } });
    (await reserve(spend(49_000_000_000), key)).release(spend(49_999_999_999));
    const refusal = await refusalOf(() => reserve(spend(2), key));
    assert.equal(refusal.code, "budget_exceeded");
    assert.equal(refusal.limit, "spend");
    assert.match(refusal.message, /50 USD\/month for this gateway key$/);
    assert.deepEqual(await usedOf(limiter, key), { spend: 49_999_999_999 });
    (await reserve(spend(1), key)).release(spend(1));
    await refusalOf(() => reserve(spend(0), key));
  });

  it("admits a call that costs nothing when tokens and money are used up", async () => {
    const { limiter } = getUnder();
    const key = keyWith({
      requests: { limit: 2, windowMs: HOUR },
      tokens: { limit: 100, windowMs: HOUR },
      spend: { limit: 100, period: "month", currency: "USD" },
    });
    const used = { tokens: 120, spend: 120 };
    (await reserve({ tokens: 1, spend: 1 }, key)).release(used);
    assert.equal((await refusalOf(() => reserve(NO_AMOUNTS, key))).code, "budget_exceeded");
    (await limiter.acquire([key], FREE_RESERVATION)).release(NO_AMOUNTS);
    assert.deepEqual(await usedOf(limiter, key), { requests: 2, ...used });
    for (const time of ["first", "second"]) {
      const refusal = await refusalOf(() => limiter.acquire([key], FREE_RESERVATION));
      assert.equal(refusal.limit, "requests", `its requests are limited, ${time} refusal`);
    }
  });

  it("grants a whole unused limit to a call that is expected to need more", async () => {
    const { limiter } = getUnder();
    const key = keyWith(limits);
    const lease = await reserve(tokens(5000), key);
    assert.deepEqual(await usedOf(limiter, key), { tokens: 100, budget: 1000, spend: 0 });
    await refusalOf(() => reserve(tokens(1), key));
    lease.release(tokens(30));
    assert.deepEqual(await usedOf(limiter, key), { tokens: 30, budget: 30, spend: 0 });
    await refusalOf(() => reserve(tokens(5000), key));
    (await reserve(tokens(70), key)).release(tokens(0));
  });

  it("reserves the largest possible usage of a call if limits are strict", async () => {
    const { limiter } = getUnder();
    const key = keyWith({ ...limits, mode: "strict" });
    const lease = await reserve(tokens(4), key);
    assert.deepEqual(await usedOf(limiter, key), { tokens: 40, budget: 40, spend: 0 });
    assert.equal((await refusalOf(() => reserve(tokens(7), key))).code, "rate_limit_exceeded");
    const never = await refusalOf(() => reserve(tokens(11), key));
    assert.equal(never.code, "request_exceeds_limit");
    assert.equal(never.retryAfterMs, undefined);
    lease.release(tokens(5));
    assert.deepEqual(await usedOf(limiter, key), { tokens: 5, budget: 5, spend: 0 });
  });

  it("uses nothing of any subject for a call that is refused", async () => {
    const { limiter } = getUnder();
    const key = keyWith({ requests: { limit: 9, windowMs: HOUR }, ...limits, concurrency: 9 });
    const team = { name: key.name.replace("key", "team"), limits };
    const provider = providerWith({ tokens: { limit: 50, windowMs: HOUR } });
    (await reserve(tokens(0), provider)).release(tokens(45));
    const refusal = await refusalOf(() => reserve(tokens(6), key, team, provider));
    assert.equal(refusal.limit, "provider-tokens");
    assert.deepEqual(await usedOf(limiter, key), {
      requests: 0,
      tokens: 0,
      budget: 0,
      spend: 0,
      concurrency: 0,
    });
    assert.deepEqual(await usedOf(limiter, team), { tokens: 0, budget: 0, spend: 0 });
    assert.deepEqual(await usedOf(limiter, provider), { tokens: 45 });
    (await reserve(tokens(5), key, team, provider)).release(tokens(5));
    assert.deepEqual(await usedOf(limiter, team), { tokens: 5, budget: 5, spend: 0 });
    const ofTeam = await refusalOf(() => reserve(tokens(96), team));
    assert.equal(ofTeam.limit, "team-tokens");
    assert.match(ofTeam.message, /100\/h tokens for the team of this gateway key$/);
  });

  const CALLS_A_HOUR = { limit: 2, windowMs: HOUR };
  const CALLS: LimitSet = { requests: CALLS_A_HOUR, concurrency: 1 };

  it("counts the request and concurrency of an exchange once, in the first of its two leases", async () => {
    const { limiter } = getUnder();
    const key = keyWith({ ...CALLS, ...limits });
    const provider = providerWith({ tokens: { limit: 1000, windowMs: HOUR }, ...CALLS });
    for (const requests of [1, 2]) {
      const first = await reserve(tokens(0), key);
      const both = { ...expecting(tokens(20)), firstLeaseSubject: key.name };
      assert.deepEqual(await usedOf(limiter, provider), {
        requests: requests - 1,
        tokens: 7 * (requests - 1),
        concurrency: 0,
      });
      const second = await limiter.acquire([key, provider], both);
      assert.equal((await usedOf(limiter, key)).concurrency, 1);
      assert.equal((await usedOf(limiter, provider)).concurrency, 1);
      const rest = parseItems(second.headers["ratelimit"]).map((
        { name, parameters },
      ) => [name, parameters["r"]]);
      assert.deepEqual(rest.slice(0, 2), [["requests", 2 - requests], [
        "tokens",
        80 - 7 * (requests - 1),
      ]]);
      assert.deepEqual(rest.slice(4), [
        ["concurrency", 0],
        ["provider-requests", 2 - requests],
        ["provider-tokens", 980 - 7 * (requests - 1)],
        ["provider-concurrency", 0],
      ]);
      second.release(tokens(7));
      first.release(tokens(0));
      assert.deepEqual(await usedOf(limiter, key), {
        ...{ requests, tokens: 7 * requests, budget: 7 * requests, spend: 0, concurrency: 0 },
      });
    }
    const refusal = await refusalOf(() =>
      limiter.acquire([key], { ...expecting(tokens(90)), firstLeaseSubject: key.name })
    );
    assert.equal(refusal.limit, "tokens");
  });

  it("grants a second lease for the request of the first one, also after other refusals", async () => {
    const { limiter } = getUnder();
    const key = keyWith({
      requests: { limit: 3, windowMs: HOUR },
      tokens: { limit: 1000, windowMs: HOUR },
    });
    const provider = providerWith({ requests: { limit: 9, windowMs: HOUR } });
    for (let number = 0; number < 3; number++) await reserve(tokens(0), key);
    const refused = () => refusalOf(() => reserve(tokens(0), key));
    assert.equal((await refused()).limit, "requests");
    for (let number = 0; number < 3; number++) {
      await limiter.acquire([key, provider], {
        ...expecting(tokens(10)),
        firstLeaseSubject: key.name,
      });
      assert.equal((await refused()).limit, "requests");
    }
    assert.deepEqual(await usedOf(limiter, key), { requests: 3, tokens: 30 });
    assert.deepEqual(await usedOf(limiter, provider), { requests: 3 });
  });

  it("refuses no call because of a request that a call without enough tokens has returned", async () => {
    const { limiter } = getUnder();
    const key = keyWith({ requests: CALLS_A_HOUR, ...limits });
    const held = (count: number) =>
      limiter.acquire([key], { ...expecting(tokens(count)), firstLeaseSubject: key.name });
    await reserve(tokens(0), key);
    await held(90);
    const first = await reserve(tokens(0), key);
    assert.equal((await refusalOf(() => held(50))).limit, "tokens");
    first.release(tokens(0), true);
    await reserve(tokens(0), key);
    assert.deepEqual((await usedOf(limiter, key)).requests, 2);
  });

  it("returns the amounts of a second lease, but none of the first", async () => {
    const { limiter } = getUnder();
    const [key, provider] = [
      keyWith({ requests: CALLS_A_HOUR }),
      providerWith({ requests: CALLS_A_HOUR }),
    ];
    await reserve(tokens(0), key);
    const second = await limiter.acquire([key, provider], {
      ...expecting(tokens(0)),
      firstLeaseSubject: key.name,
    });
    second.release(tokens(0), true);
    assert.deepEqual([await usedOf(limiter, key), await usedOf(limiter, provider)], [{
      requests: 1,
    }, { requests: 0 }]);
  });

  it("returns the request of an exchange that did not happen, and of no other one", async () => {
    const { limiter } = getUnder();
    const counted = keyWith({ requests: { limit: 2, windowMs: HOUR } });
    const key = keyWith({ ...CALLS, ...limits });
    const kept = await reserve(tokens(0), counted);
    const undone = await reserve(tokens(0), key, counted);
    assert.deepEqual([(await usedOf(limiter, key)).requests, await usedOf(limiter, counted)], [1, {
      requests: 2,
    }]);
    undone.release(tokens(0), true);
    undone.release(tokens(0), true);
    kept.release(tokens(0));
    assert.deepEqual(await usedOf(limiter, key), {
      requests: 0,
      tokens: 0,
      budget: 0,
      spend: 0,
      concurrency: 0,
    });
    assert.deepEqual(await usedOf(limiter, counted), { requests: 1 });
    const alone = await reserve(tokens(0), counted);
    alone.release(tokens(0), true);
    assert.deepEqual(await usedOf(limiter, counted), { requests: 1 });
  });

  it("replaces the charged amounts of an exchange that is over; in a later window only the excess counts", async () => {
    const { limiter, pass } = getUnder();
    const key = keyWith({ tokens: { limit: 1000, windowMs: HOUR } });
    (await reserve(tokens(400), key)).release(tokens(400));
    const correct = (charged: number, used: number, ageMs: number) =>
      limiter.correct?.([key], { charged: tokens(charged), used: tokens(used), ageMs });
    const uses = (count: number) =>
      until(async () => (await usedOf(limiter, key)).tokens === count, `it uses ${count}`);
    correct(400, 150, 0);
    await uses(150);
    correct(150, 170, 0);
    await uses(170);
    await pass(HOUR + 2 * SKEW_MS);
    (await reserve(tokens(90), key)).release(tokens(90));
    correct(170, 20, HOUR + 2 * SKEW_MS);
    correct(20, 60, HOUR + 2 * SKEW_MS);
    await uses(130);
  });

  it("replaces a charge that is larger than its limit", async () => {
    const { limiter } = getUnder();
    const key = keyWith({ tokens: { limit: 100, windowMs: HOUR } });
    (await reserve(tokens(50), key)).release(tokens(900));
    const uses = (count: number) =>
      until(async () => (await usedOf(limiter, key)).tokens === count, `it uses ${count}`);
    await uses(900);
    await limiter.correct?.([key], { charged: tokens(900), used: tokens(150), ageMs: 0 });
    await uses(150);
  });

  it("corrects nothing in a later window: there, only usage beyond the reservation counts", async () => {
    const { limiter, pass } = getUnder();
    const key = keyWith({ tokens: { limit: 100, windowMs: MINUTE } });
    const [less, more] = [await reserve(tokens(30), key), await reserve(tokens(30), key)];
    await pass(MINUTE);
    (await reserve(tokens(0), key)).release(tokens(50));
    less.release(tokens(10));
    assert.deepEqual(await usedOf(limiter, key), { tokens: 50 });
    more.release(tokens(37));
    assert.deepEqual(await usedOf(limiter, key), { tokens: 57 });
  });
}

function describeBudgets(getUnder: () => LimiterUnderTest, take: Take): void {
  for (const period of PERIODS) {
    it(`refuses usage beyond the budget of a ${period} until the next one`, async () => {
      const key = keyWith({ budget: { limit: 1000, period } });
      const { limiter, now, pass } = getUnder();
      (await take(key)).release(tokens(999));
      (await take(key)).release(tokens(2));
      const left = periodEnd(period, now()) - now();
      const refusal = await refusalOf(() => take(key));
      assert.equal(refusal.code, "budget_exceeded");
      assert.match(refusal.message, new RegExp(`1k/${period} tokens for this gateway key$`));
      // A test that runs past midnight finds a new day.
      assert.ok(
        Math.abs((refusal.retryAfterMs ?? 0) - left) < NOISE_MS,
        `${refusal.retryAfterMs} is not ${left}`,
      );
      await pass(refusal.retryAfterMs ?? 0);
      const lease = await take(key);
      assert.deepEqual(await usedOf(limiter, key), { budget: 0 });
      lease.release(tokens(3));
      assert.deepEqual(await usedOf(limiter, key), { budget: 3 });
    });
  }
}

function describeConcurrency(getUnder: () => LimiterUnderTest, take: Take): void {
  it("allows the given number at once, and releases each exactly once", async () => {
    const key = keyWith({ concurrency: 2 });
    const { limiter } = getUnder();
    const [first, second] = [await take(key), await take(key)];
    const refusal = await refusalOf(() => take(key));
    assert.equal(refusal.code, "concurrency_limit_exceeded");
    assert.equal(refusal.retryAfterMs, 1000);
    assert.match(refusal.message, /2 at once for this gateway key$/);
    for (let times = 0; times < 3; times++) first.release(tokens(0));
    assert.deepEqual(await usedOf(limiter, key), { concurrency: 1 });
    const third = await take(key);
    await refusalOf(() => take(key));
    second.release(tokens(0));
    third.release(tokens(1));
    assert.deepEqual(await usedOf(limiter, key), { concurrency: 0 });
  });
}

function describeSubjects(
  getUnder: () => LimiterUnderTest,
  take: Take,
  takeTimes: TakeTimes,
): void {
  it("uses amounts of key and provider, or of neither", async () => {
    const { limiter } = getUnder();
    const key = keyWith({ requests: { limit: 3, windowMs: HOUR }, concurrency: 10 });
    const other = keyWith({ requests: { limit: 3, windowMs: HOUR } });
    const provider = providerWith({ requests: { limit: 4, windowMs: MINUTE }, concurrency: 10 });
    await takeTimes(3, key, provider);
    const ofKey = await refusalOf(() => take(key, provider));
    assert.match(ofKey.message, /3\/h requests for this gateway key$/);
    assert.deepEqual(await usedOf(limiter, provider), { requests: 3, concurrency: 0 });
    await takeTimes(1, other, provider);
    const ofProvider = await refusalOf(() => take(other, provider));
    assert.match(ofProvider.message, /4\/min requests for this provider, for all keys$/);
    assertNear(ofProvider.retryAfterMs, MINUTE, "retry");
    assert.deepEqual(await usedOf(limiter, other), { requests: 1 });
    assertNear(
      (await refusalOf(() => take(key, provider))).retryAfterMs,
      HOUR,
      "the later of both",
    );
    const [lease] = [await take(keyWith({ concurrency: 1 }))];
    lease?.release(tokens(0));
    assert.deepEqual(await usedOf(limiter, key), { requests: 3, concurrency: 0 });
  });

  it("only counts in observe mode, and reports the refusals it would have made", async () => {
    const { limiter } = getUnder();
    const key = keyWith({
      requests: { limit: 2, windowMs: HOUR },
      concurrency: 3,
      mode: "observe",
    });
    assert.equal((await take(key)).observed, undefined);
    assert.equal((await take(key)).observed, undefined);
    const third = await take(key);
    assert.equal(third.observed, "requests");
    assert.deepEqual(
      parseItems(third.headers["ratelimit"]).map(({ parameters }) => parameters["r"]),
      [0, 0],
    );
    assert.deepEqual(await usedOf(limiter, key), { requests: 3, concurrency: 3 });
    const strict = providerWith({ requests: { limit: 1, windowMs: HOUR } });
    await take(key, strict);
    assert.equal((await refusalOf(() => take(key, strict))).code, "rate_limit_exceeded");
    assert.deepEqual(await usedOf(limiter, key), { requests: 4, concurrency: 4 });
  });

  it("reads the status without using anything", async () => {
    const { limiter } = getUnder();
    const key = keyWith({
      requests: { limit: 1, windowMs: HOUR },
      budget: { limit: 1, period: "day" },
      concurrency: 1,
    });
    for (let number = 0; number < 3; number++) {
      assert.deepEqual(await usedOf(limiter, key), { requests: 0, budget: 0, concurrency: 0 });
    }
    await take(key);
    for (let number = 0; number < 3; number++) {
      assert.deepEqual(await usedOf(limiter, key), { requests: 1, budget: 0, concurrency: 1 });
    }
    assert.deepEqual(await limiter.status(keyWith({})), []);
  });
}

function describeHeaders(getUnder: () => LimiterUnderTest, take: Take): void {
  it("writes RateLimit and RateLimit-Policy as structured fields, including the exchange itself", async () => {
    const key = keyWith({
      requests: { limit: 600, windowMs: MINUTE },
      tokens: { limit: 1e15, windowMs: HOUR },
      budget: { limit: 5e6, period: "month" },
      concurrency: 20,
    });
    const provider = providerWith({ requests: { limit: 1, windowMs: 1500 } });
    (await take(key)).release(tokens(10));
    const { headers } = await take(key, provider);
    assert.deepEqual(Object.keys(headers).sort(), ["ratelimit", "ratelimit-policy"]);
    assert.deepEqual(parseItems(headers["ratelimit-policy"]), [
      { name: "requests", parameters: { q: 600, w: 60 } },
      { name: "tokens", parameters: { q: 999_999_999_999_999, qu: "tokens", w: 3600 } },
      { name: "budget", parameters: { q: 5_000_000, qu: "tokens" } },
      { name: "concurrency", parameters: { q: 20, qu: "concurrent-requests" } },
      { name: "provider-requests", parameters: { q: 1, w: 2 } },
    ]);
    const now = parseItems(headers["ratelimit"]);
    const left = now.map(({ name, parameters }) => [name, parameters["r"]]);
    const expected = {
      "requests": 598,
      "tokens": 999_999_999_999_990,
      "budget": 4_999_990,
      "concurrency": 19,
    };
    assert.deepEqual(left, Object.entries({ ...expected, "provider-requests": 0 }));
    const month = (periodEnd("month", getUnder().now()) - getUnder().now()) / 1000;
    for (const [index, reset] of [60, 3600, month, undefined, 2].entries()) {
      const { t } = now[index]?.parameters ?? {};
      if (reset === undefined) assert.equal(t, undefined);
      else {assert.ok(
          Number.isInteger(t) && Math.abs(Number(t) - reset) <= NOISE_MS / 1000,
          `${t} is not ${reset}`,
        );}
    }
    const refusal = await refusalOf(() => take(key, provider));
    assert.deepEqual(parseItems(refusal.headers["ratelimit"]).at(-1)?.parameters["r"], 0);
    assert.equal(refusal.headers["ratelimit-policy"], headers["ratelimit-policy"]);
    assert.deepEqual((await take(keyWith({}))).headers, {});
  });
}

function describeAccounts(getUnder: () => LimiterUnderTest): void {
  it("charges nothing for exchanges without usage", async () => {
    const { limiter } = getUnder();
    const key = keyWith({ tokens: { limit: 5, windowMs: HOUR } });
    for (const count of [0, 4, 0]) {
      (await limiter.acquire([key], NO_RESERVATION)).release(tokens(count));
    }
    assert.deepEqual(await usedOf(limiter, key), { tokens: 4 });
  });

  it("keeps exact accounts, however exchanges end, in any order", async () => {
    const ending = fc.record({
      used: fc.oneof(fc.nat(1000), fc.constant(0)),
      reserved: fc.oneof(fc.nat(1000), fc.constant(0)),
      releases: fc.integer({ min: 1, max: 3 }),
      order: fc.double({ min: 0, max: 1, noNaN: true }),
      isAlone: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(ending, { maxLength: 40 }), async (endings) => {
        const { limiter } = getUnder();
        const limits: LimitSet = {
          requests: { limit: 1000, windowMs: HOUR },
          tokens: { limit: 1e9, windowMs: HOUR },
          budget: { limit: 1e9, period: "month" },
          spend: { limit: 1e9, period: "month", currency: "USD" },
          concurrency: 100,
        };
        const [key, provider] = [keyWith(limits), providerWith(limits)];
        const leases = await Promise.all(
          endings.map(({ isAlone, reserved }) =>
            limiter.acquire(isAlone ? [provider] : [key, provider], expecting(tokens(reserved)))
          ),
        );
        const shared = endings.filter(({ isAlone }) => !isAlone);
        assert.equal((await usedOf(limiter, key)).concurrency, shared.length);
        assert.equal((await usedOf(limiter, provider)).concurrency, endings.length);
        const byOrder = Array.from(endings.entries()).sort(([, one], [, other]) =>
          one.order - other.order
        );
        for (const [index, { used, releases }] of byOrder) {
          for (let times = 0; times < releases; times++) {
            leases[index]?.release(tokens(times === 0 ? used : 77));
          }
        }
        for (const [subject, all] of [[key, shared], [provider, endings]] as const) {
          const sum = all.reduce((sum, { used }) => sum + used, 0);
          const expected = {
            requests: all.length,
            tokens: sum,
            budget: sum,
            spend: 0,
            concurrency: 0,
          };
          assert.deepEqual(await usedOf(limiter, subject), expected);
        }
      }),
      { numRuns: 100 },
    );
  });
}
