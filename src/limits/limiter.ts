/**
 * Port: the limiter of gateway keys, of teams, and of providers across all keys. Requests are
 * counted when a call is admitted. Tokens and money are reserved then, and settled when the call is
 * over.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import type { Exchange } from "../exchange/exchange.ts";
import { withDeadline } from "../exchange/deadline.ts";
import type { LimitSet } from "../config/limit_set.ts";
import {
  CALL_LIMITS,
  hasAmountLimit,
  hasOpenLimit,
  isOfCalls,
  LIMIT_KINDS,
  LIMIT_NAMES,
  type LimitName,
  type SettledLimit,
} from "../config/limit_kinds.ts";

/** Amounts that limits count in addition to requests. Whole numbers. */
export interface Amounts {
  /** Tokens, of input and output together. */
  readonly tokens: number;
  /** Money, in 10^-9 of the currency. */
  readonly spend: number;
}

/** Amounts of a call that uses nothing. */
export const NO_AMOUNTS: Amounts = { tokens: 0, spend: 0 };

/** Amounts to reserve for a call. */
export interface Reservation {
  /** Amounts that it will probably use. */
  readonly expected: Amounts;
  /** The most that it could use, for strict limits. */
  readonly most: Amounts;
  /**
   * Only for the second lease of an exchange: name of the subject whose request and slot the first
   * lease already counts.
   */
  readonly firstLeaseSubject?: string | undefined;
  /** True for amounts that were charged at the end of an exchange: they can exceed a limit. */
  readonly isCharged?: boolean | undefined;
  /**
   * Only for the first of two leases: name of the last subject of the exchange, which selects the
   * server that counts both leases.
   */
  readonly lastSubject?: string | undefined;
  /** True for a call that costs nothing. A used-up limit of tokens or money does not refuse it. */
  readonly isFree?: boolean | undefined;
}

/** Reservation of no tokens and no money, for a call that can nevertheless cost some. */
export const NO_RESERVATION: Reservation = { expected: NO_AMOUNTS, most: NO_AMOUNTS };
/** Reservation of a call that costs nothing. */
export const FREE_RESERVATION: Reservation = { ...NO_RESERVATION, isFree: true };

/** Subject of limits: one key, one team, or one provider. */
export interface LimitSubject {
  /** Name of the subject, such as `key:x`, `team:search` or `provider:a`. */
  readonly name: string;
  /** Limits of the subject. */
  readonly limits: LimitSet;
}

/** Status of one limit of one subject. */
export interface LimitStatus {
  /** Subject that the limit belongs to. */
  readonly subject: LimitSubject;
  /** Name of the limit. */
  readonly name: LimitName;
  /** Maximum amount: in one window or period, or at once for `concurrency`. */
  readonly limit: number;
  /** Amount used. */
  readonly used: number;
  /**
   * Time until the limit resets, milliseconds; for `concurrency`, which has no window, the time
   * after which to retry.
   */
  readonly resetMs: number;
}

/** Lease of an admitted exchange. */
export interface Lease {
  /** `RateLimit` and `RateLimit-Policy` headers for the answer. */
  readonly headers: Readonly<Record<string, string>>;
  /**
   * The first reached limit, if all reached limits are in observe mode. An enforced limit would
   * have refused the exchange.
   */
  readonly observed: LimitName | undefined;
  /** Status of all limits without this exchange. If left out, the use of budgets is not shown. */
  readonly statuses?: readonly LimitStatus[] | undefined;
  /**
   * Ends the lease, and charges the used amounts instead of the reserved ones. Only the first call
   * has an effect.
   *
   * @param used Amounts that the call has used
   * @param isUndone True if no call was made after all. Its request is then returned too
   */
  release(used: Amounts, isUndone?: boolean): void;
}

/**
 * Port: the limiter, which counts usage and admits exchanges.
 *
 * @example Admit one exchange at a time, of all callers together
 * ```ts
 * import { createGateway, GatewayError, type Lease, type Limiter, parseConfig } from "sallyport";
 *
 * let isBusy = false;
 * const limiter: Limiter = {
 *   acquire(): Promise<Lease> {
 *     if (isBusy) return Promise.reject(new GatewayError("concurrency_limit_exceeded", { retryAfterMs: 1000 }));
 *     isBusy = true;
 *     return Promise.resolve({ headers: {}, observed: undefined, release: () => void (isBusy = false) });
 *   },
 *   status: () => Promise.resolve([]),
 * };
 * const keys = [{ id: "me", key: "a-key-of-your-own", limits: { concurrency: 1 } }];
 * const gateway = createGateway(parseConfig({ providers: { a: { upstream: "openai" } }, keys }), { limiter });
 * ```
 */
export interface Limiter {
  /**
   * Admits an exchange to all subjects, or to none. Each limit counts the amount that
   * {@link reservedOf} returns.
   *
   * A call with a body can acquire two leases. The first, before its body is read, counts its request
   * and its slot in the limits of its key. The second, with `firstLeaseSubject`, counts the rest:
   * amounts, its team, its provider.
   *
   * @param subjects Subjects to count against
   * @param reservation Amounts to reserve
   * @returns The lease of the exchange, or its promise
   * @throws {GatewayError} `rate_limit_exceeded`, `concurrency_limit_exceeded`, `budget_exceeded`,
   * `request_exceeds_limit`
   */
  acquire(subjects: readonly LimitSubject[], reservation: Reservation): Lease | Promise<Lease>;
  /** Returns the status of a subject's limits, without acquiring anything. */
  status(subject: LimitSubject): Promise<LimitStatus[]>;
  /**
   * Replaces the amounts that an exchange was charged at its end. In a window that is over, only
   * the excess counts, in the current window. If it is left out, the charged amounts stay.
   *
   * @throws If the counts cannot be changed now. The charged amounts of all subjects stay, unless
   * the answer of another process was lost
   */
  correct?(subjects: readonly LimitSubject[], correction: Correction): void | Promise<void>;
}

/** Replaces the amounts that an exchange was charged. */
export interface Correction {
  /** Amounts that were charged. */
  readonly charged: Amounts;
  /** Amounts that the exchange has used. */
  readonly used: Amounts;
  /** Time since it was admitted. Milliseconds. */
  readonly ageMs: number;
}

/** Returns the reservation of an exchange that was charged some amounts. */
export const toChargedReservation = (charged: Amounts): Reservation => ({
  expected: charged,
  most: charged,
  isCharged: true,
});

/**
 * Acquires a lease, and waits for it no longer than its exchange lasts. A lease that arrives later
 * is released.
 *
 * @throws {GatewayError} As {@link Limiter.acquire} does; `internal_error` for a limiter that never
 * answers
 */
export function acquireLease(
  limiter: Limiter,
  subjects: readonly LimitSubject[],
  reservation: Reservation,
  { exchange, clock }: { exchange: Exchange; clock: Clock },
): Lease | Promise<Lease> {
  const toError = () =>
    new GatewayError("internal_error", { cause: new Error("Cannot count: the limiter is silent") });
  return withDeadline(limiter.acquire(subjects, reservation), {
    exchange,
    clock,
    toError,
    onLate: undoLease,
  });
}

/** Ends a lease whose call is not made. Its request is returned too. */
export const undoLease = (lease: Lease): void => lease.release(NO_AMOUNTS, true);

/**
 * Time after which to retry if the limit of concurrency is reached, because the next free slot
 * cannot be predicted. Milliseconds.
 */
export const ASK_AGAIN_MS = 1000;

/**
 * Tolerance for a count that ends later than its window allows, because the clocks of servers
 * differ. A count that ends even later was begun under another limit, or before the clock was set
 * back. It is reset. Milliseconds.
 */
export const SKEW_MS = 1000;

/**
 * Time after which an exchange no longer counts as open unless its gateway renews it. Gateways
 * renew at intervals of a third of that time, so that two renewals can be lost. Milliseconds.
 *
 * In Redis it is short, so that a killed gateway does not block callers for long. One call renews
 * all exchanges of a gateway. At a {@link LimiterServer} each exchange is renewed by a separate
 * message, and an exchange of a Worker can send only a few (Cloudflare, "Limits": 50 or 1000
 * subrequests).
 */
export const LEASE_MS = { redis: 10_000, server: 30_000 } as const;

/** Returns whether a subject limits tokens or money. */
export function limitsAmounts({ limits }: LimitSubject): boolean {
  return hasAmountLimit(limits);
}

/** Returns whether the end of an exchange must be counted. Requests were counted at its start. */
export function countsAtEnd(subjects: readonly LimitSubject[]): boolean {
  return subjects.some((subject) => hasOpenLimit(subject.limits) || limitsAmounts(subject));
}

/** Returns whether a strict limit of a subject counts tokens or money. */
export function limitsStrictly(subject: LimitSubject): boolean {
  return subject.limits.mode === "strict" && limitsAmounts(subject);
}

/** Returns whether a subject limits money. */
export function limitsSpend({ limits }: LimitSubject): boolean {
  return limits.spend !== undefined;
}

/** Returns whether a subject limits requests or concurrency. */
export function limitsCalls({ limits }: LimitSubject): boolean {
  return CALL_LIMITS.some((name) => limits[name] !== undefined);
}

/** Returns the maximum of a limit; `undefined` if it is not set. */
export function limitOf({ limits }: LimitSubject, name: LimitName): number | undefined {
  const limit = limits[name];
  return typeof limit === "number" ? limit : limit?.limit;
}

/** Returns whether the first lease of an exchange already counts its request and slot of a subject. */
export const isCountedByFirstLease = (
  { name }: LimitSubject,
  { firstLeaseSubject }: Reservation,
): boolean => name === firstLeaseSubject;

/** Returns whether a reservation is that of the second lease of an exchange. */
export const isSecondLease = ({ firstLeaseSubject }: Reservation): boolean =>
  firstLeaseSubject !== undefined;

/** Returns whether an exchange needs a slot of a subject that the first lease has not counted. */
export const needsSlot = (subject: LimitSubject, reservation: Reservation): boolean =>
  hasOpenLimit(subject.limits) && !isCountedByFirstLease(subject, reservation);

/** Unit in which a limit is counted. */
export const unitOf = (name: SettledLimit): keyof Amounts => LIMIT_KINDS[name].unit;

/**
 * Returns the amount that an exchange reserves of a limit when it is admitted. A call that is
 * expected to need more than the whole limit reserves all of it, so it is admitted only in an
 * unused window. Strict limits reserve the most that the call could use.
 *
 * @param limit The limit: its subject, name, and maximum
 */
export function reservedOf(
  { subject, name, limit }: Pick<LimitStatus, "subject" | "name" | "limit">,
  reservation: Reservation,
): number {
  if (isOfCalls(name)) return isCountedByFirstLease(subject, reservation) ? 0 : 1;
  const { expected, most, isCharged = false } = reservation;
  const unit = unitOf(name);
  const isUncapped = isCharged || subject.limits.mode === "strict";
  return isUncapped ? most[unit] : Math.min(expected[unit], limit);
}

/**
 * Returns the room that an exchange needs in a limit. A limit of tokens or money that is used up has
 * no room even for a call that reserves nothing, unless the call is free.
 */
export function roomFor(
  limit: Pick<LimitStatus, "subject" | "name" | "limit">,
  reservation: Reservation,
): number {
  const reserved = reservedOf(limit, reservation);
  return isOfCalls(limit.name) || reservation.isFree === true ? reserved : Math.max(1, reserved);
}

/** Lists the limits of a subject that are set, in the order of {@link LIMIT_NAMES}. */
export function limitsOf(subject: LimitSubject): [name: LimitName, limit: number][] {
  const all: [LimitName, number][] = [];
  for (const name of LIMIT_NAMES) {
    const limit = limitOf(subject, name);
    if (limit !== undefined) all.push([name, limit]);
  }
  return all;
}
