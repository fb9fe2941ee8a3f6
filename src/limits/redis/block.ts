/**
 * A block of one limit: an amount that a gateway has reserved in Redis in advance, for one window.
 * Its size is the amount that the gateway needs in a few tenths of a second.
 *
 * | event                     | remaining                | counted in Redis                |
 * | ------------------------- | ------------------------ | ------------------------------- |
 * | `add`, in the same window | increases                | as Redis stated it              |
 * | `add`, in a new window    | only the new amount      | as Redis stated it              |
 * | `use`                     | decreases                | unchanged                       |
 * | `correct`: less was used  | increases                | unchanged                       |
 * | `correct`: more was used  | decreases, to 0 at least | increases by the uncovered rest |
 * | `shrink`                  | decreases to an amount   | decreases by the same           |
 * | the window is over        | cannot be used any more  | does not matter any more        |
 *
 * @module
 */

/**
 * Divisor of the unreserved amount: the blocks of all gateways together are about a quarter of it.
 * Blocks become smaller when the limit is nearly used up, so that busy gateways together use all of
 * it (guided self-scheduling: Polychronopoulos and Kuck, 1987).
 */
const PARTS_OF_REST = 4;
/**
 * Shortest and longest time that a block should last. The next block is doubled after a shorter
 * time, and halved after a longer one. Milliseconds.
 */
const TOO_SHORT_MS = 100;
const TOO_LONG_MS = 400;

/** The window of a limit, as Redis stated it when a block of it was reserved. */
export interface ReservedWindow {
  /** Amount that all gateways had used before. */
  readonly used: number;
  /** End by the clock of Redis. */
  readonly ends: number;
  /** End by the clock of this gateway: not before `until`, and not after `latestUntil`. */
  readonly until: number;
  readonly latestUntil: number;
  /** Time when Redis was asked, by the clock of this gateway. */
  readonly askedAt: number;
}

const NO_WINDOW: ReservedWindow = {
  used: 0,
  ends: 0,
  until: -Infinity,
  latestUntil: -Infinity,
  askedAt: -Infinity,
};

/** The next block to ask Redis for. */
export interface WantedBlock {
  /** The smallest amount with which one exchange can continue. */
  readonly least: number;
  /** The largest useful amount; 0 if nothing is needed. */
  readonly most: number;
}

/** A block of one limit. */
export class Block {
  readonly #limit: number;
  readonly #perLimit: number;
  #window = NO_WINDOW;
  /** Amount of the block that is not used yet. */
  #remaining = 0;
  /** Amount of the limit that Redis counts as used, the remaining amount included. */
  #countedInRedis = 0;
  #size = 1;
  #reservedAt = -Infinity;

  /** @param perLimit Number of the largest blocks that add up to the limit */
  constructor(limit: number, perLimit: number) {
    this.#limit = limit;
    this.#perLimit = perLimit;
  }

  /** End of its window, by the clock of Redis. */
  get ends(): number {
    return this.#window.ends;
  }

  /** Amount of the limit that was used when the block was reserved, plus the used part of the block. */
  get used(): number {
    return this.#countedInRedis - this.#remaining;
  }

  /** Returns the time after which its window is certainly over. Whole milliseconds. */
  resetMs(now: number): number {
    return Math.max(1, Math.ceil(this.#window.latestUntil - now));
  }

  /** Returns whether its window is not over. */
  isLive(now: number): boolean {
    return now < this.#window.until;
  }

  /** Returns whether an amount remains. */
  hasRoom(amount: number, now: number): boolean {
    return this.#remaining >= amount && now < this.#window.until;
  }

  /** Returns whether the limit has too little left for an amount, as far as this gateway knows. */
  isReached(amount: number, now: number): boolean {
    return amount > 0 && this.used + amount > this.#limit && now < this.#window.until;
  }

  /** Uses an amount, and returns the end of the window. */
  use(amount: number): number {
    this.#remaining -= amount;
    return this.#window.ends;
  }

  /**
   * Corrects the used amount.
   *
   * @param change Used - reserved
   * @returns The amount that the remaining block cannot cover
   */
  correct(change: number): number {
    const uncovered = Math.max(0, change - this.#remaining);
    this.#remaining -= change - uncovered;
    this.#countedInRedis += uncovered;
    return uncovered;
  }

  /** Shrinks the block to an amount. @returns The amount to return to Redis */
  shrink(most: number): number {
    const returned = Math.max(0, this.#remaining - most);
    this.#remaining -= returned;
    this.#countedInRedis -= returned;
    return returned;
  }

  /** Returns the size of the largest allowed block. */
  largest(gateways: number, now: number): number {
    const unreserved = this.isLive(now)
      ? Math.max(0, this.#limit - this.#countedInRedis)
      : this.#limit;
    const mostOfLimit = this.#limit / this.#perLimit;
    const mostOfRest = unreserved / (PARTS_OF_REST * gateways);
    return Math.floor(Math.min(mostOfLimit, mostOfRest));
  }

  /**
   * Returns the block to ask for, and remembers its size.
   *
   * @param rooms Amounts of room for which exchanges wait
   */
  want(rooms: readonly number[], now: number, gateways: number): WantedBlock {
    const remaining = this.isLive(now) ? this.#remaining : 0;
    let smallestRoom = Infinity;
    let allRooms = 0;
    for (const room of rooms) {
      smallestRoom = Math.min(smallestRoom, room);
      allRooms += room;
    }
    if (allRooms <= remaining) return { least: 0, most: 0 };
    const usefulSize = Math.floor(Math.min(this.#nextSize(now), this.largest(gateways, now)));
    // Without blocks, each queued exchange would have asked for its own amount.
    this.#size = Math.max(1, usefulSize, allRooms - remaining);
    return { least: Math.max(0, smallestRoom - remaining), most: this.#size };
  }

  /** Adds an amount that was reserved. */
  add(reserved: number, window: ReservedWindow): void {
    if (window.ends !== this.#window.ends) this.#remaining = 0;
    this.#window = window;
    this.#remaining += reserved;
    this.#countedInRedis = window.used + reserved;
    if (reserved > 0) this.#reservedAt = window.askedAt;
  }

  /** Returns the size of the next block, derived from the time that the last one has lasted. */
  #nextSize(now: number): number {
    const lastedMs = now - this.#reservedAt;
    if (lastedMs < TOO_SHORT_MS) return 2 * this.#size;
    return lastedMs > TOO_LONG_MS ? this.#size / 2 : this.#size;
  }
}
