/**
 * A block of one limit: an amount that a gateway has taken from Redis in advance, for one window.
 * It is as large as what the gateway needs in some tenths of a second, and becomes smaller towards
 * the end of the limit.
 *
 * @module
 */

/**
 * Parts of what is left of the limit of which the blocks of all gateways are about one: they become
 * smaller towards its end, so that gateways that are all in use leave nothing (guided
 * self-scheduling: Polychronopoulos and Kuck, 1987).
 */
const PARTS_LEFT = 4;
/** Times that a block should last: a shorter one is doubled, a longer one halved. Milliseconds. */
const [TOO_SHORT_MS, TOO_LONG_MS] = [100, 400];

/** State of a limit when a block of it was lent. */
export interface Lent {
  /** Amount that all gateways had taken before. */
  readonly used: number;
  /** End of the window by the clock of Redis. */
  readonly ends: number;
  /** The same by the clock of this gateway; never before this time, and never after that. */
  readonly endsAt: number;
  readonly latestEnd: number;
  readonly askedAt: number;
}

/** A block of one limit. */
export class Block {
  readonly #limit: number;
  readonly #parts: number;
  #left = 0;
  #used = 0;
  #ends = 0;
  #endsAt = -Infinity;
  #latestEnd = -Infinity;
  #size = 1;
  #borrowedAt = -Infinity;

  /** @param parts Number of its parts of which a block is at most one */
  constructor(limit: number, parts: number) {
    this.#limit = limit;
    this.#parts = parts;
  }

  /** End of its window, by the clock of Redis. */
  get ends(): number {
    return this.#ends;
  }

  /**
   * Amount that was used of the limit when the block was lent, without what is left of the block.
   */
  get used(): number {
    return this.#used - this.#left;
  }

  /** Returns the time after which its window is certainly over. Whole milliseconds. */
  resetMs(now: number): number {
    return Math.max(1, Math.ceil(this.#latestEnd - now));
  }

  /** Returns whether its window is not over. */
  isLive(now: number): boolean {
    return now < this.#endsAt;
  }

  /** Returns whether so much is left. */
  hasRoom(amount: number, now: number): boolean {
    return this.#left >= amount && now < this.#endsAt;
  }

  /** Returns whether the limit had too little left for an amount when the block was lent. */
  isReached(amount: number, now: number): boolean {
    return this.used + amount > this.#limit && now < this.#endsAt;
  }

  /** Takes an amount, and returns the end of the window. */
  take(amount: number): number {
    this.#left -= amount;
    return this.#ends;
  }

  /** Corrects what was taken. @returns What is owed, since the block has too little left */
  correct(change: number): number {
    const owed = Math.max(0, change - this.#left);
    this.#left += owed - change;
    this.#used += owed;
    return owed;
  }

  /** Gives back what is left beyond an amount. @returns What goes back */
  reduce(most: number): number {
    const beyond = Math.max(0, this.#left - most);
    this.#left -= beyond;
    this.#used -= beyond;
    return beyond;
  }

  /** Returns the size of the largest block that may be taken. */
  largest(gateways: number, now: number): number {
    const left = this.isLive(now) ? Math.max(0, this.#limit - this.#used) : this.#limit;
    return Math.floor(Math.min(this.#limit / this.#parts, left / (PARTS_LEFT * gateways)));
  }

  /** Returns the size of the next block, by the time for which the last one has lasted. */
  #nextSize(now: number): number {
    const lastedMs = now - this.#borrowedAt;
    if (lastedMs < TOO_SHORT_MS) return 2 * this.#size;
    return lastedMs > TOO_LONG_MS ? this.#size / 2 : this.#size;
  }

  /**
   * Returns the amount to ask for.
   *
   * @param rooms Room that exchanges wait for
   * @returns The least with which one of them can go on, and the most that is wanted
   */
  want(
    rooms: readonly number[],
    now: number,
    gateways: number,
  ): { readonly least: number; readonly most: number } {
    const left = this.isLive(now) ? this.#left : 0;
    let [smallest, sum] = [Infinity, 0];
    for (const room of rooms) {
      smallest = Math.min(smallest, room);
      sum += room;
    }
    if (sum <= left) return { least: 0, most: 0 };
    const size = Math.floor(Math.min(this.#nextSize(now), this.largest(gateways, now)));
    // Each waiting exchange would have asked for its own amount.
    const most = Math.max(1, size, sum - left);
    this.#size = most;
    return { least: Math.max(0, smallest - left), most };
  }

  /** Adds what was lent. */
  add(granted: number, lent: Lent): void {
    if (lent.ends !== this.#ends) this.#left = 0;
    this.#left += granted;
    this.#used = lent.used + granted;
    this.#ends = lent.ends;
    this.#endsAt = lent.endsAt;
    this.#latestEnd = lent.latestEnd;
    if (granted > 0) this.#borrowedAt = lent.askedAt;
  }
}
