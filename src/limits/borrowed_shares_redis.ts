/**
 * A gateway's share of a large limit of requests: blocks that it takes in advance and spends on its own until the window
 * is over. What is left of a block then was taken in vain, so that the limit is never exceeded.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { type RedisClient, RedisFailed } from "../storage/redis_client.ts";
import { gather } from "../storage/redis_gather.ts";
import type { LimitSubject, Standing } from "./limiter.ts";
import { type Plan, readTaken, type Taken, toCountArguments } from "./redis_plan.ts";
import { type Settlements, toUndoing } from "./settlements_redis.ts";

/** Smallest limit that is divided into blocks. */
const MIN_LIMIT = 1000;
/** Parts of the limit of which a block is at most one. */
const PARTS = 100;
/**
 * Parts of what is left of the limit of which the blocks of all gateways are about one: they become smaller towards its
 * end, so that gateways that are all in use leave nothing (guided self-scheduling: Polychronopoulos and Kuck, 1987).
 */
const PARTS_LEFT = 4;
/** Times that a block should last: a shorter one is doubled, a longer one halved. Milliseconds. */
const [TOO_SHORT_MS, TOO_LONG_MS] = [100, 400];

/** Parts of a limiter that shares use. */
export interface Lender {
  readonly client: RedisClient;
  readonly clock: Clock;
  /** The script that counts requests. */
  readonly count: ReturnType<RedisClient["script"]>;
  /** Number of gateways that share the limits. */
  readonly gateways: () => number;
  readonly settlements: Settlements;
}

/**
 * Returns whether a subject's limit is divided into blocks: a large one of requests alone.
 *
 * @param plan The plan of the subject
 */
export function isBorrowed({ isCounter, counted: [requests] }: Plan): boolean {
  return isCounter && requests !== undefined && requests.limit >= MIN_LIMIT;
}

/** Share of one limit. */
export class BorrowedShare {
  /** The plan of the subject. Keys that are read anew have a new one, with the same limit. */
  plan: Plan;
  readonly #lender: Lender;
  #size = 1;
  #left = 0;
  /** Number of exchanges that wait for the next block. */
  #waiting = 0;
  /** Requests that all gateways had taken when the block was. */
  #used = 0;
  #limit: Standing | undefined;
  #borrowedAt = -Infinity;
  #endsAt = -Infinity;
  #borrowing: Promise<Taken> | undefined;

  /**
   * @param plan The plan of the subject
   * @param lender Source of its requests
   */
  constructor(plan: Plan, lender: Lender) {
    this.plan = plan;
    this.#lender = lender;
  }

  /** Takes one request of the block, or returns `undefined` if there is none left. */
  take(): Taken | undefined {
    const now = this.#lender.clock.monotonic();
    if (this.#left <= 0 || now >= this.#endsAt || this.#limit === undefined) return undefined;
    const standing = { ...this.#limit, used: this.#used - this.#left, resetMs: Math.max(1, this.#endsAt - now) };
    this.#left--;
    return { isAdmitted: true, standings: [standing], ends: [], begun: [] };
  }

  /** Takes one request of the next block, for which all who wait share one call. */
  async takeNext(): Promise<Taken> {
    this.#waiting++;
    try {
      for (;;) {
        const taken = this.take();
        if (taken !== undefined) return taken;
        this.#borrowing ??= this.#fill().finally(() => this.#borrowing = undefined);
        const refused = await this.#borrowing;
        if (!refused.isAdmitted) return refused;
      }
    } finally {
      this.#waiting--;
    }
  }

  /** Gives a request back that was taken in vain. */
  giveBack(): void {
    this.#left++;
  }

  async #fill(): Promise<Taken> {
    const { clock, gateways } = this.#lender;
    const askedAt = clock.monotonic();
    const lastedMs = askedAt - this.#borrowedAt;
    const limit = this.plan.counted[0]?.limit ?? 0;
    const left = askedAt < this.#endsAt ? limit - this.#used : limit;
    const largest = Math.floor(Math.min(limit / PARTS, left / (PARTS_LEFT * gateways())));
    if (lastedMs < TOO_SHORT_MS) this.#size *= 2;
    else if (lastedMs > TOO_LONG_MS) this.#size >>= 1;
    this.#size = Math.max(1, Math.min(this.#size, largest));
    // Those who wait would each have asked for one.
    const { granted, taken } = await this.#borrow(Math.max(this.#size, this.#waiting));
    const [standing] = taken.standings;
    if (standing === undefined || granted === 0) return taken;
    this.#limit = standing;
    this.#borrowedAt = askedAt;
    this.#left = granted;
    this.#used = standing.used + granted;
    // By the time of asking: the window ends a little later in truth, never earlier.
    this.#endsAt = askedAt + standing.resetMs;
    return taken;
  }

  /** Takes requests in advance: as many as are wanted or as there is room for. Those that come too late are given back. */
  async #borrow(wanted: number): Promise<{ granted: number; taken: Taken }> {
    const { plan } = this;
    const { client, count, settlements } = this.#lender;
    const read = (answer: unknown) => ({ granted: Number((answer as unknown[])[0]), taken: readTaken(answer, plan) });
    try {
      return await client.run((redis) => {
        gather(redis);
        return count(redis, [plan.countsKey], toCountArguments(plan, wanted));
      }, read);
    } catch (error) {
      const late = error instanceof RedisFailed ? error.late : undefined;
      late?.then(read).then(({ granted, taken }) => {
        if (granted > 0) settlements.add(plan, undefined, toUndoing(plan, taken, [granted]));
      }).catch(() => {});
      throw error;
    }
  }
}

function isSameLimit({ counted: [one], isObserved }: Plan, other: Plan): boolean {
  const [limit] = other.counted;
  return one?.limit === limit?.limit && one?.window === limit?.window && isObserved === other.isObserved;
}

/** Maximum number of shares that are kept for sure, those of the subjects that were asked for last. */
const MAX_SHARES = 5000;

/** Shares of all subjects. Those that are not used for long are dropped, with what is left of their blocks. */
export class BorrowedShares {
  readonly #lender: Lender;
  #young = new Map<string, BorrowedShare>();
  #old = new Map<string, BorrowedShare>();

  /** @param lender Source of their requests */
  constructor(lender: Lender) {
    this.#lender = lender;
  }

  /**
   * Returns the share of a subject.
   *
   * @param plan The plan of the subject
   */
  of(plan: Plan): BorrowedShare {
    const known = this.#young.get(plan.subject.name);
    if (known !== undefined && isSameLimit(known.plan, plan)) {
      known.plan = plan;
      return known;
    }
    const share = new BorrowedShare(plan, this.#lender);
    this.#keep(plan.subject.name, share);
    return share;
  }

  /** Returns the share of a subject; `undefined` if there is none, or only one of other limits. */
  find({ name, limits }: LimitSubject): BorrowedShare | undefined {
    let known = this.#young.get(name);
    if (known === undefined && this.#old.size > 0) {
      known = this.#old.get(name);
      if (known !== undefined) this.#keep(name, known);
    }
    return known?.plan.subject.limits === limits ? known : undefined;
  }

  #keep(name: string, share: BorrowedShare): void {
    if (this.#young.size >= MAX_SHARES && !this.#young.has(name)) [this.#old, this.#young] = [this.#young, new Map()];
    this.#young.set(name, share);
  }
}
