/**
 * A block of one limit: an amount that a gateway has reserved in Redis in advance, for one window.
 * Its size is the amount that the gateway needs in a few tenths of a second. Blocks become smaller
 * when the limit is nearly used up.
 *
 * @module
 */

/**
 * Divisor of the remaining amount: the blocks of all gateways together are about a quarter of it.
 * Blocks become smaller when the limit is nearly used up, so that busy gateways together use all of
 * it (guided self-scheduling: Polychronopoulos and Kuck, 1987).
 */
const PARTS_OF_REST = 4;
/**
 * Shortest and longest time that a block should last. The next block is doubled after a shorter
 * time, and halved after a longer one. Milliseconds.
 */
const [TOO_SHORT_MS, TOO_LONG_MS] = [100, 400];

/** A limit at the moment when a block of it was reserved. */
export interface Grant {
  /** Amount that all gateways had used before. */
  readonly used: number;
  /** End of the window by the clock of Redis. */
  readonly ends: number;
  /** The same by the clock of this gateway: not before `endsAt`, and not after `latestEnd`. */
  readonly endsAt: number;
  readonly latestEnd: number;
  readonly askedAt: number;
}

/** A block of one limit. */
export class Block {
  readonly #limit: number;
  readonly #perLimit: number;
  #left = 0;
  #used = 0;
  #ends = 0;
  #endsAt = -Infinity;
  #latestEnd = -Infinity;
  #size = 1;
  #reservedAt = -Infinity;

  /** @param perLimit Number of the largest blocks that add up to the limit */
  constructor(limit: number, perLimit: number) {
    this.#limit = limit;
    this.#perLimit = perLimit;
  }

  /** End of its window, by the clock of Redis. */
  get ends(): number {
    return this.#ends;
  }

  /** Amount of the limit that was used when the block was reserved, plus the used part of the block. */
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

  /** Returns whether an amount remains. */
  hasRoom(amount: number, now: number): boolean {
    return this.#left >= amount && now < this.#endsAt;
  }

  /** Returns whether the limit had too little left for an amount when the block was grant. */
  isReached(amount: number, now: number): boolean {
    return this.used + amount > this.#limit && now < this.#endsAt;
  }

  /** Uses an amount, and returns the end of the window. */
  use(amount: number): number {
    this.#left -= amount;
    return this.#ends;
  }

  /** Corrects the used amount. @returns The amount that the remaining block cannot cover */
  correct(change: number): number {
    const excess = Math.max(0, change - this.#left);
    this.#left += excess - change;
    this.#used += excess;
    return excess;
  }

  /** Shrinks the block to an amount. @returns The amount to return to Redis */
  shrink(most: number): number {
    const beyond = Math.max(0, this.#left - most);
    this.#left -= beyond;
    this.#used -= beyond;
    return beyond;
  }

  /** Returns the size of the largest allowed block. */
  largest(gateways: number, now: number): number {
    const left = this.isLive(now) ? Math.max(0, this.#limit - this.#used) : this.#limit;
    return Math.floor(Math.min(this.#limit / this.#perLimit, left / (PARTS_OF_REST * gateways)));
  }

  /** Returns the size of the next block, derived from the time that the last one has lasted. */
  #nextSize(now: number): number {
    const lastedMs = now - this.#reservedAt;
    if (lastedMs < TOO_SHORT_MS) return 2 * this.#size;
    return lastedMs > TOO_LONG_MS ? this.#size / 2 : this.#size;
  }

  /**
   * Returns the amount to ask for.
   *
   * @param rooms Amounts of room for which exchanges wait
   * @returns The smallest amount with which one of them can continue, and the largest useful amount
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
    // Without blocks, each queued exchange would have asked for its own amount.
    const most = Math.max(1, size, sum - left);
    this.#size = most;
    return { least: Math.max(0, smallest - left), most };
  }

  /** Adds an amount that was reserved. */
  add(granted: number, grant: Grant): void {
    if (grant.ends !== this.#ends) this.#left = 0;
    this.#left += granted;
    this.#used = grant.used + granted;
    this.#ends = grant.ends;
    this.#endsAt = grant.endsAt;
    this.#latestEnd = grant.latestEnd;
    if (granted > 0) this.#reservedAt = grant.askedAt;
  }
}
