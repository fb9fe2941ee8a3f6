/**
 * Limits of gateway keys, teams and providers, counted in this process.
 *
 * Windows begin with their first request, budgets with the calendar's day, week or month (UTC). Tokens
 * and money are reserved when an exchange is admitted. Its end settles them, in the same window.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import type { LimitSet } from "../config/limit_set.ts";
import { periodEnd } from "../config/units.ts";
import {
  BUDGET_NAMES,
  type BudgetName,
  isBudget,
  isOfCalls,
  isWindowed,
  LIMIT_NAMES,
  WINDOWED_LIMITS,
  type WindowedLimit,
} from "../config/limit_kinds.ts";
import {
  type Amounts,
  ASK_AGAIN_MS,
  type Correction,
  isCountedByFirstLease,
  type Lease,
  type Limiter,
  limitOf,
  type LimitStatus,
  type LimitSubject,
  type Reservation,
  reservedOf,
  SKEW_MS,
  toChargedReservation,
  unitOf,
} from "./limiter.ts";
import { enforce, toLease } from "./verdict.ts";

/** Amount used in a window or period, which ends at a point in time. */
export interface Count {
  readonly used: number;
  /** End of the window or period: monotonic for windows, wall clock for budgets. Milliseconds. */
  readonly until: number;
}

/** Counts of one subject, for engines that store them, see {@link MemoryLimiter.counts}. */
export type WindowCounts = Readonly<Record<WindowedLimit, Count>>;

interface SubjectCounts extends Mutable<WindowCounts> {
  open: number;
}

/**
 * The time of each limit's clock, read once per call. Reading clocks cost 2 % of a call
 * (2026-11-22, CPU profile).
 */
type Now = Readonly<Record<WindowedLimit, number>>;

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

const NOTHING: Count = { used: 0, until: 0 };

/** An amount that was reserved in a window. */
interface ReservedAmount {
  readonly subject: LimitSubject;
  readonly name: WindowedLimit;
  readonly amount: number;
  /** End of the window or period in which it was reserved; 0 if that is over. */
  readonly until: number;
}

/**
 * Releases an exchange, as {@link Lease.release} does. If usage is unknown, the reservation
 * stays charged.
 */
export type Release = (used?: Amounts, isUndone?: boolean) => void;

/** Prefixes of the names of budgets in {@link UsedBudget}. */
const PREFIXES: Readonly<Record<BudgetName, string>> = { budget: "", spend: "spend:" };

/** The used part of one budget, which outlives the process, see {@link MemoryLimiter.budgets}. */
export interface UsedBudget {
  /** Name of the subject, with the prefix `spend:` for its budget of money. */
  readonly subject: string;
  readonly used: number;
  /** End of its period, milliseconds since 1970. */
  readonly until: number;
}

/** Number of subjects to check at each lease. Subjects without open counts are forgotten. */
const SWEPT_AT_ONCE = 2;

/** Limiter of one process, which counts in memory. */
export class MemoryLimiter implements Limiter {
  readonly #clock: Clock;
  readonly #counts = new Map<string, SubjectCounts>();
  #sweep: Iterator<[string, SubjectCounts]> = this.#counts.entries();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  acquire(subjects: readonly LimitSubject[], reservation: Reservation): Lease {
    const now = this.#now();
    const terms = enforce(this.statuses(subjects, now), reservation);
    return toLease(terms, this.count(subjects, reservation, now));
  }

  correct(subjects: readonly LimitSubject[], { charged, used, ageMs }: Correction): void {
    this.countAgain(subjects, toChargedReservation(charged), ageMs)(used);
  }

  // deno-lint-ignore require-await -- an error rejects the promise
  async status(subject: LimitSubject): Promise<LimitStatus[]> {
    return this.statuses([subject]);
  }

  /** Returns the status of the limits of several subjects, in their order. */
  statuses(subjects: readonly LimitSubject[], now: Now = this.#now()): LimitStatus[] {
    const statuses: LimitStatus[] = [];
    for (const subject of subjects) {
      const counts = this.#counts.get(subject.name);
      for (const name of LIMIT_NAMES) {
        const limit = limitOf(subject, name);
        if (limit === undefined) continue;
        if (isWindowed(name)) {
          const { used, until } = windowOf(name, counts, subject.limits, now[name]);
          statuses.push({ subject, name, limit, used, resetMs: until - now[name] });
        } else {
          statuses.push({ subject, name, limit, used: counts?.open ?? 0, resetMs: ASK_AGAIN_MS });
        }
      }
    }
    return statuses;
  }

  /** Counts an exchange, regardless of its limits. */
  count(
    subjects: readonly LimitSubject[],
    reservation: Reservation,
    now: Now = this.#now(),
  ): Release {
    this.#forgetUnused(now);
    const reserved: ReservedAmount[] = [];
    for (const subject of subjects) {
      const { limits } = subject;
      const counts = this.#countsOf(subject.name);
      if (!isCountedByFirstLease(subject, reservation)) counts.open++;
      for (const name of WINDOWED_LIMITS) {
        const limit = limitOf(subject, name);
        if (limit === undefined) continue;
        const { used, until } = windowOf(name, counts, limits, now[name]);
        const amount = reservedOf({ subject, name, limit }, reservation);
        counts[name] = { used: used + amount, until };
        reserved.push({ subject, name, amount, until });
      }
    }
    return this.#releaseOf(subjects, reservation, reserved);
  }

  /**
   * Counts an exchange as open again that was admitted earlier, by a limiter that has forgotten it.
   *
   * @param ageMs Time since its amounts were reserved. No amount is reserved in a window that began later
   */
  countAgain(subjects: readonly LimitSubject[], reservation: Reservation, ageMs: number): Release {
    const now = this.#now();
    const reserved: ReservedAmount[] = [];
    for (const subject of subjects) {
      const counts = this.#countsOf(subject.name);
      if (!isCountedByFirstLease(subject, reservation)) counts.open++;
      for (const name of WINDOWED_LIMITS) {
        const limit = limitOf(subject, name);
        if (limit === undefined) continue;
        const { until } = windowOf(name, counts, subject.limits, now[name]);
        const isSame = until <= endOf(name, subject.limits, now[name] - ageMs);
        const amount = reservedOf({ subject, name, limit }, reservation);
        reserved.push({ subject, name, amount, until: isSame ? until : 0 });
      }
    }
    return this.#releaseOf(subjects, reservation, reserved);
  }

  /** Number of subjects that are remembered. */
  get size(): number {
    return this.#counts.size;
  }

  /**
   * Returns the counts of a subject, or `undefined` if there are none. Monotonic times in them are
   * valid only for the same clock.
   */
  counts(subject: string): WindowCounts | undefined {
    const counts = this.#counts.get(subject);
    return counts &&
      {
        requests: counts.requests,
        tokens: counts.tokens,
        budget: counts.budget,
        spend: counts.spend,
      };
  }

  /** Restores the result of {@link counts}. */
  restoreCounts(subject: string, counts: WindowCounts): void {
    Object.assign(this.#countsOf(subject), counts);
  }

  /** Lists the used part of each budget, to store it beyond the end of the process. */
  *budgets(): Iterable<UsedBudget> {
    for (const [subject, counts] of this.#counts) {
      for (const name of BUDGET_NAMES) {
        if (counts[name].used > 0) yield { subject: PREFIXES[name] + subject, ...counts[name] };
      }
    }
  }

  /** Restores the result of {@link budgets}, unless more was counted since. */
  restoreBudgets(spent: Iterable<UsedBudget>): void {
    for (const { subject: named, used, until } of spent) {
      const hasPrefix = (name: BudgetName) =>
        PREFIXES[name] !== "" && named.startsWith(PREFIXES[name]);
      const name = BUDGET_NAMES.find(hasPrefix) ?? "budget";
      const subject = named.slice(PREFIXES[name].length);
      const count = this.#counts.get(subject)?.[name] ?? NOTHING;
      const isMore = until > count.until || (until === count.until && used > count.used);
      if (isMore && until > this.#clock.now()) this.#countsOf(subject)[name] = { used, until };
    }
  }

  #countsOf(name: string): SubjectCounts {
    const known = this.#counts.get(name);
    if (known !== undefined) return known;
    const counts = { requests: NOTHING, tokens: NOTHING, budget: NOTHING, spend: NOTHING, open: 0 };
    this.#counts.set(name, counts);
    return counts;
  }

  /** Reads the clocks: the monotonic clock for windows, and the wall clock for budgets. */
  #now(): Now {
    const monotonic = this.#clock.monotonic();
    const wall = this.#clock.now();
    return { requests: monotonic, tokens: monotonic, budget: wall, spend: wall };
  }

  #releaseOf(
    subjects: readonly LimitSubject[],
    reservation: Reservation,
    reserved: readonly ReservedAmount[],
  ): Release {
    let isOpen = true;
    return (used, isUndone) => {
      if (!isOpen) return;
      isOpen = false;
      for (const subject of subjects) {
        if (!isCountedByFirstLease(subject, reservation)) this.#countsOf(subject.name).open--;
      }
      if (used === undefined) return;
      for (const one of reserved) {
        if (!isOfCalls(one.name)) this.#settle(one, used[unitOf(one.name)]);
        else if (isUndone) this.#settle(one, 0);
      }
    };
  }

  /**
   * Replaces a reserved amount by the used one. If its window is over, only the excess counts, in
   * the current window.
   */
  #settle({ subject, name, amount, until }: ReservedAmount, used: number): void {
    const counts = this.#countsOf(subject.name);
    const now = isBudget(name) ? this.#clock.now() : this.#clock.monotonic();
    const running = counts[name];
    // The limits can have changed since. A running window stays, also if new ones are shorter.
    const current = running.until > now ? running : windowOf(name, counts, subject.limits, now);
    const change = used - amount;
    if (until === current.until || change > 0) {
      counts[name] = { used: Math.max(0, current.used + change), until: current.until };
    }
  }

  #forgetUnused(now: Now): void {
    for (let looked = 0; looked < SWEPT_AT_ONCE; looked++) {
      const next = this.#sweep.next();
      if (next.done === true) return void (this.#sweep = this.#counts.entries());
      const [subject, counts] = next.value;
      if (counts.open === 0 && WINDOWED_LIMITS.every((name) => counts[name].until <= now[name])) {
        this.#counts.delete(subject);
      }
    }
  }
}

/**
 * Returns the current window of a subject. A window that is over is replaced by a new one, which
 * begins now.
 */
function windowOf(
  name: WindowedLimit,
  counts: SubjectCounts | undefined,
  limits: LimitSet,
  now: number,
): Count {
  const count = counts?.[name] ?? NOTHING;
  const end = endOf(name, limits, now);
  return count.until <= now || count.until > end + SKEW_MS ? { used: 0, until: end } : count;
}

/** Returns the end of a window that begins now, or of the budget's current period. */
function endOf(name: WindowedLimit, limits: LimitSet, now: number): number {
  const limit = limits[name];
  if (limit === undefined) throw new Error("Cannot count: the subject has no such limit");
  return "windowMs" in limit ? now + limit.windowMs : periodEnd(limit.period, now);
}
