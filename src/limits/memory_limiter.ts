/**
 * Limits of a gateway key, and of a provider across all keys, counted in this process.
 *
 * Windows begin with their first request, budgets with the calendar's day or month (UTC). Tokens are charged when an
 * exchange is over, as the provider stated them, so exchanges that are under way can overshoot a limit of tokens.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { periodEnd } from "../config/units.ts";
import {
  ASK_AGAIN_MS,
  type Lease,
  type Limiter,
  limitsOf,
  type LimitSubject,
  SKEW_MS,
  type Standing,
} from "./limiter.ts";
import { toRateLimitHeaders } from "./rate_limit_headers.ts";
import { judge } from "./verdict.ts";
/** Limits that have a window, or a period of the calendar. */
const WINDOWED = ["requests", "tokens", "budget"] as const;

/** One moment: `now` is monotonic, for windows; `today` is wall clock, for budgets. Milliseconds. */
interface Times {
  readonly now: number;
  readonly today: number;
}

const timeOf = (name: typeof WINDOWED[number], { now, today }: Times): number => name === "budget" ? today : now;

/** Amount used in a window or period, which ends at a point in time. */
export interface Count {
  readonly used: number;
  /** End of the window or period: monotonic for windows, wall clock for budgets. Milliseconds. */
  readonly until: number;
}

/** Counts of one subject, for engines that store them, see {@link MemoryLimiter.counts}. */
export interface WindowCounts {
  readonly requests: Count;
  readonly tokens: Count;
  readonly budget: Count;
}

interface Counts extends Mutable<WindowCounts> {
  open: number;
  /** Exchanges whose provider stated no usage. */
  unmetered: number;
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

const NOTHING: Count = { used: 0, until: 0 };

/** Tokens spent of one budget, to be kept beyond the end of the process, see {@link MemoryLimiter.budgets}. */
export interface Spent {
  /** Name of the subject. */
  readonly subject: string;
  readonly used: number;
  /** End of its period, milliseconds since 1970. */
  readonly until: number;
}

/** Number of subjects checked with each lease, to forget those that have nothing left to remember. */
const SWEPT_AT_ONCE = 2;

/** Limiter of one process, which counts in memory. */
export class MemoryLimiter implements Limiter {
  readonly #clock: Clock;
  readonly #share: () => number;
  readonly #counts = new Map<string, Counts>();
  #sweep: Iterator<[string, Counts]> = this.#counts.entries();

  /**
   * @param clock Source of its times
   * @param share Number by which each limit is divided, where several limiters share it
   */
  constructor(clock: Clock, share: () => number = () => 1) {
    this.#clock = clock;
    this.#share = share;
  }

  take(subjects: readonly LimitSubject[]): Lease {
    const times = this.#times();
    this.#forget(times);
    const standings: Mutable<Standing>[] = [];
    for (const subject of subjects) this.#stand(subject, times, standings);
    const observed = judge(standings.filter(({ limit, used }) => used >= limit), standings);
    for (const subject of subjects) {
      const counts = this.#countsOf(subject.name);
      for (const name of WINDOWED) counts[name] = this.#windowOf(name, subject, times);
      counts.requests = { used: counts.requests.used + 1, until: counts.requests.until };
    }
    for (const standing of standings) {
      if (standing.name === "requests" || standing.name === "concurrency") standing.used++;
    }
    return { headers: toRateLimitHeaders(standings), observed, release: this.hold(subjects) };
  }

  /**
   * Counts an exchange as open without a decision, such as one that was admitted by a limiter that has since forgotten
   * it.
   *
   * @param subjects Subjects to count against
   * @returns Releases the exchange, as {@link Lease.release} does
   */
  hold(subjects: readonly LimitSubject[]): Lease["release"] {
    for (const { name } of subjects) this.#countsOf(name).open++;
    let isHeld = true;
    return (tokens) => {
      if (!isHeld) return;
      isHeld = false;
      for (const subject of subjects) this.#charge(subject, tokens);
    };
  }

  standing(subject: LimitSubject): Standing[] {
    const standings: Standing[] = [];
    this.#stand(subject, this.#times(), standings);
    return standings;
  }

  /** Number of subjects that are remembered. */
  get size(): number {
    return this.#counts.size;
  }

  /** Exchanges of a subject whose provider stated no usage, for as long as anything of it is remembered. */
  unmetered(subject: string): number {
    return this.#counts.get(subject)?.unmetered ?? 0;
  }

  /**
   * Returns the counts of a subject, or `undefined` if there are none. Monotonic times in them are valid only for the
   * same clock.
   */
  counts(subject: string): WindowCounts | undefined {
    const counts = this.#counts.get(subject);
    return counts && { requests: counts.requests, tokens: counts.tokens, budget: counts.budget };
  }

  /** Restores what {@link counts} returned. */
  putBack(subject: string, counts: WindowCounts): void {
    Object.assign(this.#countsOf(subject), counts);
  }

  /** Lists the tokens spent of each budget, to be kept beyond the end of the process. */
  *budgets(): Iterable<Spent> {
    for (const [subject, { budget }] of this.#counts) if (budget.used > 0) yield { subject, ...budget };
  }

  /** Restores what {@link budgets} returned, unless more was counted since. */
  restore(spent: Iterable<Spent>): void {
    for (const { subject, used, until } of spent) {
      const { budget = NOTHING } = this.#counts.get(subject) ?? {};
      const isMore = until > budget.until || (until === budget.until && used > budget.used);
      if (isMore && until > this.#clock.now()) this.#countsOf(subject).budget = { used, until };
    }
  }

  #countsOf(name: string): Counts {
    const counts = this.#counts.get(name) ??
      { requests: NOTHING, tokens: NOTHING, budget: NOTHING, open: 0, unmetered: 0 };
    this.#counts.set(name, counts);
    return counts;
  }

  #times(): Times {
    return { now: this.#clock.monotonic(), today: this.#clock.now() };
  }

  /** Returns the end of a window that begins now, or of the budget's current period. */
  #endOf(name: typeof WINDOWED[number], { limits }: LimitSubject, times: Times): number {
    const now = timeOf(name, times);
    if (name !== "budget") return now + (limits[name]?.windowMs ?? 0);
    return limits.budget === undefined ? now : periodEnd(limits.budget.period, now);
  }

  /** Returns the current window of a subject. One that is over is replaced by a new one, which begins now. */
  #windowOf(name: typeof WINDOWED[number], subject: LimitSubject, times: Times): Count {
    if (subject.limits[name] === undefined) return NOTHING;
    const count = this.#counts.get(subject.name)?.[name] ?? NOTHING;
    const end = this.#endOf(name, subject, times);
    return count.until <= timeOf(name, times) || count.until > end + SKEW_MS ? { used: 0, until: end } : count;
  }

  /** Adds the state of a subject's limits to `standings`. */
  #stand(subject: LimitSubject, times: Times, standings: Standing[]): void {
    for (const [name, whole] of limitsOf(subject)) {
      const limit = Math.ceil(whole / this.#share());
      if (name === "concurrency") {
        const used = this.#counts.get(subject.name)?.open ?? 0;
        standings.push({ subject, name, limit, used, resetMs: ASK_AGAIN_MS });
      } else {
        const { used, until } = this.#windowOf(name, subject, times);
        standings.push({ subject, name, limit, used, resetMs: until - timeOf(name, times) });
      }
    }
  }

  #charge(subject: LimitSubject, tokens: number | undefined): void {
    const counts = this.#countsOf(subject.name);
    counts.open--;
    if (tokens === undefined) counts.unmetered++;
    if (tokens === undefined || tokens === 0) return;
    const times = this.#times();
    for (const name of ["tokens", "budget"] as const) {
      if (subject.limits[name] === undefined) continue;
      const { used, until } = counts[name];
      counts[name] = until <= timeOf(name, times)
        ? { used: tokens, until: this.#endOf(name, subject, times) }
        : { used: used + tokens, until };
    }
  }

  #forget({ now, today }: Times): void {
    for (let looked = 0; looked < SWEPT_AT_ONCE; looked++) {
      const next = this.#sweep.next();
      if (next.done === true) return void (this.#sweep = this.#counts.entries());
      const [name, { requests, tokens, budget, open }] = next.value;
      if (open === 0 && requests.until <= now && tokens.until <= now && budget.until <= today) {
        this.#counts.delete(name);
      }
    }
  }
}
