/**
 * How much a gateway key may take, and all keys together of one provider: counted before the work, charged after it.
 *
 * Windows begin with their first request, budgets with the calendar's day or month (UTC). Tokens are charged when an
 * exchange is over, as the provider stated them; so those that are under way can overshoot a limit of tokens.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { isPromise } from "../exchange/observer.ts";
import type { Exchange } from "../exchange/exchange.ts";
import type { LimitSet } from "../config/key.ts";
import { waitFor } from "../exchange/deadline.ts";
import { formatBudget, formatRate, periodEnd } from "../config/units.ts";

/** What is limited, in the order in which engines report it. */
export type LimitName = "requests" | "tokens" | "budget" | "concurrency";

/** Who is limited: one key, or one provider. */
export interface LimitSubject {
  /** Such as `key:x` or `provider:a`. */
  readonly name: string;
  /** How much it may take. */
  readonly limits: LimitSet;
}

/** How one limit of one subject stands. */
export interface Standing {
  /** Whose it is. */
  readonly subject: LimitSubject;
  /** Which one it is. */
  readonly name: LimitName;
  /** How much there is to take. */
  readonly limit: number;
  /** What is taken of it, the exchange included that asked. */
  readonly used: number;
  /** When it begins anew, milliseconds from now; for `concurrency`, which has no window, when to ask again. */
  readonly resetMs: number;
}

/** What an admitted exchange holds. */
export interface Lease {
  /** `RateLimit` and `RateLimit-Policy` for the answer. */
  readonly headers: Readonly<Record<string, string>>;
  /** A limit that only observes and would have refused. */
  readonly observed: LimitName | undefined;
  /**
   * Gives back what was held and charges what was used. Only the first call counts.
   *
   * @param tokens As the provider stated them; `undefined` where it should have and did not
   */
  release(tokens: number | undefined): void;
}

/** Port: who counts. */
export interface Limiter {
  /**
   * Admits an exchange to all subjects, or to none.
   *
   * @param subjects Who is limited
   * @returns What the exchange holds from now on
   * @throws {GatewayError} `rate_limit_exceeded`, `concurrency_limit_exceeded`, `budget_exceeded`
   */
  take(subjects: readonly LimitSubject[]): Lease | Promise<Lease>;
  /** How the limits of a subject stand, without taking anything. */
  standing(subject: LimitSubject): Standing[] | Promise<Standing[]>;
}

/**
 * Takes a lease, and waits for it no longer than its exchange lasts: one that comes later is given back.
 *
 * @param limiter Who counts
 * @param subjects Who is limited
 * @param options On whose behalf, and where times come from
 * @returns What the exchange holds from now on
 * @throws {GatewayError} As {@link Limiter.take} does; `internal_error` for a limiter that never answers
 */
export function takeLease(
  limiter: Limiter,
  subjects: readonly LimitSubject[],
  { exchange, clock }: { exchange: Exchange; clock: Clock },
): Lease | Promise<Lease> {
  const lease = limiter.take(subjects);
  if (!isPromise(lease)) return lease;
  const refuse = () => new GatewayError("internal_error", { cause: new Error("Cannot count: the limiter is silent") });
  return waitFor(lease, { exchange, clock, refuse, late: (held) => held.release(0) });
}

/** A limiter's word for "not before": concurrency has no end that could be foretold. Milliseconds. */
export const ASK_AGAIN_MS = 1000;

/**
 * The limits that a subject has, in the order of {@link LimitName}.
 *
 * @param subject Who is limited
 * @returns Each limit that is set
 */
export function limitsOf({ limits }: LimitSubject): [name: LimitName, limit: number][] {
  const all: [LimitName, number][] = [];
  if (limits.requests !== undefined) all.push(["requests", limits.requests.limit]);
  if (limits.tokens !== undefined) all.push(["tokens", limits.tokens.limit]);
  if (limits.budget !== undefined) all.push(["budget", limits.budget.limit]);
  if (limits.concurrency !== undefined) all.push(["concurrency", limits.concurrency]);
  return all;
}

/** Structured fields hold integers of 15 digits at most (RFC 9651 §3.3.1). */
const MAX_FIELD_INTEGER = 999_999_999_999_999;
const toInteger = (count: number): number => Math.min(count, MAX_FIELD_INTEGER);

const CODES = {
  requests: "rate_limit_exceeded",
  tokens: "rate_limit_exceeded",
  budget: "budget_exceeded",
  concurrency: "concurrency_limit_exceeded",
} as const;

/** A limit as its owner wrote it. */
function describe({ subject: { name, limits }, name: limited, limit }: Standing): string {
  const owner = name.startsWith("key:") ? "this gateway key" : "this provider, for all keys";
  const { requests, tokens, budget } = limits;
  if (limited === "requests" && requests) return `${formatRate(requests)} requests for ${owner}`;
  if (limited === "tokens" && tokens) return `${formatRate(tokens)} tokens for ${owner}`;
  if (limited === "budget" && budget) return `${formatBudget(budget)} tokens for ${owner}`;
  return `${limit} at once for ${owner}`;
}

/** What a limit goes by in headers, log and metrics. */
function policyOf({ subject, name }: Pick<Standing, "subject" | "name">): string {
  return subject.name.startsWith("key:") ? name : `provider-${name}`;
}

/**
 * The two fields of draft-ietf-httpapi-ratelimit-headers-10, which do not collide with a provider's `x-ratelimit-*`.
 *
 * @param standings How the limits stand
 * @returns `ratelimit-policy` and `ratelimit`, or nothing where nothing is limited
 */
export function toRateLimitHeaders(standings: readonly Standing[]): Record<string, string> {
  if (standings.length === 0) return {};
  let policies = "";
  let rests = "";
  for (const { subject, name, limit, used, resetMs } of standings) {
    const policy = `${policies === "" ? "" : ", "}"${policyOf({ subject, name })}"`;
    const window = name === "requests"
      ? subject.limits.requests
      : name === "tokens"
      ? subject.limits.tokens
      : undefined;
    const unit = name === "requests" ? "" : `;qu="${name === "concurrency" ? "concurrent-requests" : "tokens"}"`;
    const every = window === undefined ? "" : `;w=${Math.ceil(window.windowMs / 1000)}`;
    policies += `${policy};q=${toInteger(limit)}${unit}${every}`;
    const reset = name === "concurrency" ? "" : `;t=${Math.ceil(resetMs / 1000)}`;
    rests += `${policy};r=${toInteger(Math.max(0, limit - used))}${reset}`;
  }
  return { "ratelimit-policy": policies, ratelimit: rests };
}

/**
 * The refusal, for the limit that takes longest to begin anew.
 *
 * @param exceeded Limits that are reached, at least one
 * @param standings How all limits stand
 * @returns What is thrown
 */
export function toRefusal(exceeded: readonly Standing[], standings: readonly Standing[]): GatewayError {
  const worst = exceeded.reduce((one, other) => other.resetMs > one.resetMs ? other : one);
  return new GatewayError(CODES[worst.name], {
    detail: describe(worst),
    retryAfterMs: Math.max(1, worst.resetMs),
    limit: policyOf(worst),
    headers: toRateLimitHeaders(standings),
  });
}

/**
 * What the limits that are reached mean: refusal, or a note where they only observe.
 *
 * @param reached Limits that are reached
 * @param standings How all limits stand
 * @returns The first that only observes
 * @throws {GatewayError} For one that is enforced
 */
export function judge(reached: readonly Standing[], standings: readonly Standing[]): LimitName | undefined {
  const enforced = reached.filter(({ subject }) => subject.limits.mode !== "observe");
  if (enforced.length > 0) throw toRefusal(enforced, standings);
  return reached[0]?.name;
}

/** What has a window, or a period of the calendar. */
const WINDOWED = ["requests", "tokens", "budget"] as const;

/**
 * A count that ends later than its window allows was begun under another limit, or before the clock was set back: it
 * begins anew. So much later may be the clock of another server. Milliseconds.
 */
export const SKEW_MS = 1000;

/** One moment: monotonic for windows, wall clock for budgets; milliseconds. */
interface Times {
  readonly now: number;
  readonly today: number;
}

const timeOf = (name: typeof WINDOWED[number], { now, today }: Times): number => name === "budget" ? today : now;

/** What is counted until a point in time. */
export interface Count {
  readonly used: number;
  /** Monotonic for windows, wall clock for budgets; milliseconds. */
  readonly until: number;
}

/** What is counted of one subject, for engines that keep it, see {@link MemoryLimiter.counts}. */
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

/** What a budget has spent: what outlives the process, see {@link MemoryLimiter.budgets}. */
export interface Spent {
  /** Name of the subject. */
  readonly subject: string;
  readonly used: number;
  /** When its period ends, milliseconds since 1970. */
  readonly until: number;
}

/** So many subjects are looked at with each lease, to forget those that have nothing left to remember. */
const SWEPT_AT_ONCE = 2;

/** Limits of one process. */
export class MemoryLimiter implements Limiter {
  readonly #clock: Clock;
  readonly #share: () => number;
  readonly #counts = new Map<string, Counts>();
  #sweep: Iterator<[string, Counts]> = this.#counts.entries();

  /**
   * @param clock Where its times come from
   * @param share By how many a limit is divided, where this is one of several that share it
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
   * Counts an exchange as open without a decision: one that was admitted by a limiter that has since forgotten it.
   *
   * @param subjects Who is limited
   * @returns As {@link Lease.release}
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

  /** How many subjects are remembered. */
  get size(): number {
    return this.#counts.size;
  }

  /** Exchanges of a subject whose provider stated no usage, for as long as anything of it is remembered. */
  unmetered(subject: string): number {
    return this.#counts.get(subject)?.unmetered ?? 0;
  }

  /** What is counted of a subject, where anything is; monotonic times are for who makes the same clock again. */
  counts(subject: string): WindowCounts | undefined {
    const counts = this.#counts.get(subject);
    return counts && { requests: counts.requests, tokens: counts.tokens, budget: counts.budget };
  }

  /** Puts back what {@link counts} gave. */
  putBack(subject: string, counts: WindowCounts): void {
    Object.assign(this.#countsOf(subject), counts);
  }

  /** What budgets have spent, to be kept beyond the end of the process. */
  *budgets(): Iterable<Spent> {
    for (const [subject, { budget }] of this.#counts) if (budget.used > 0) yield { subject, ...budget };
  }

  /** Puts back what {@link budgets} gave, where no more was counted since. */
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

  /** When what begins now would end. */
  #endOf(name: typeof WINDOWED[number], { limits }: LimitSubject, times: Times): number {
    const now = timeOf(name, times);
    if (name !== "budget") return now + (limits[name]?.windowMs ?? 0);
    return limits.budget === undefined ? now : periodEnd(limits.budget.period, now);
  }

  /** A window of a subject as it is now. One that is over begins now, once something is taken. */
  #windowOf(name: typeof WINDOWED[number], subject: LimitSubject, times: Times): Count {
    if (subject.limits[name] === undefined) return NOTHING;
    const count = this.#counts.get(subject.name)?.[name] ?? NOTHING;
    const end = this.#endOf(name, subject, times);
    return count.until <= timeOf(name, times) || count.until > end + SKEW_MS ? { used: 0, until: end } : count;
  }

  /** Adds how the limits of a subject stand. */
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
