/**
 * A gateway's share of a large limit of requests: blocks that it takes in advance and spends on its own until the window
 * is over. What is left of a block then was taken in vain, so that the limit is never exceeded.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import type { Standing } from "./limiter.ts";
import type { Plan, Taken } from "./redis_plan.ts";

/** Smallest limit that is divided into blocks. */
const MIN_LIMIT = 1000;
/** Parts of the limit of which a block is at most one. */
const PARTS = 100;
/** Times that a block should last: a shorter one is doubled, a longer one halved. Milliseconds. */
const [TOO_SHORT_MS, TOO_LONG_MS] = [100, 400];

/** Takes requests in advance: as many as are wanted or as there is room for. */
export type Borrow = (wanted: number) => Promise<{ readonly granted: number; readonly taken: Taken }>;

/**
 * Returns whether a subject's limit is divided into blocks: a large one of requests alone, of a provider.
 *
 * @param plan The plan of the subject
 */
export function isBorrowed({ isCounter, counted: [requests], subject: { name } }: Plan): boolean {
  return isCounter && requests !== undefined && requests.limit >= MIN_LIMIT && name.startsWith("provider:");
}

/** Share of one limit. */
export class BorrowedShare {
  readonly #clock: Clock;
  readonly #borrow: Borrow;
  readonly #largest: number;
  #size = 1;
  #left = 0;
  /** Requests that all gateways had taken when the block was. */
  #used = 0;
  #limit: Standing | undefined;
  #borrowedAt = -Infinity;
  #endsAt = -Infinity;
  #borrowing: Promise<Taken> | undefined;

  /**
   * @param plan The plan of the subject
   * @param clock Source of its times
   * @param borrow Takes requests in advance
   */
  constructor({ counted: [requests] }: Plan, clock: Clock, borrow: Borrow) {
    this.#clock = clock;
    this.#borrow = borrow;
    this.#largest = Math.floor((requests?.limit ?? 0) / PARTS);
  }

  /** Takes one request of the block, or returns `undefined` if there is none left. */
  take(): Taken | undefined {
    const now = this.#clock.monotonic();
    if (this.#left === 0 || now >= this.#endsAt || this.#limit === undefined) return undefined;
    const standing = { ...this.#limit, used: this.#used - this.#left, resetMs: Math.max(1, this.#endsAt - now) };
    this.#left--;
    return { isAdmitted: true, standings: [standing], ends: [], begun: [] };
  }

  /** Takes one request of the next block, for which all who wait share one call. */
  async takeNext(): Promise<Taken> {
    for (;;) {
      const taken = this.take();
      if (taken !== undefined) return taken;
      this.#borrowing ??= this.#fill().finally(() => this.#borrowing = undefined);
      const refused = await this.#borrowing;
      if (!refused.isAdmitted) return refused;
    }
  }

  /** Gives a request back that was taken in vain. */
  giveBack(): void {
    this.#left++;
  }

  async #fill(): Promise<Taken> {
    const askedAt = this.#clock.monotonic();
    const lastedMs = askedAt - this.#borrowedAt;
    if (lastedMs < TOO_SHORT_MS) this.#size = Math.min(2 * this.#size, this.#largest);
    else if (lastedMs > TOO_LONG_MS) this.#size = Math.max(1, this.#size >> 1);
    const { granted, taken } = await this.#borrow(this.#size);
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
}
