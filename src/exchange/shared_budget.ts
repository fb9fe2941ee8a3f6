/**
 * A resource that all callers share: a budget of which each owner, such as a gateway key or a
 * provider, has a share.
 *
 * @module
 */

/** The amount of a budget that one owner holds. */
export interface Share {
  held: number;
  /** Number of holders that use the share: it is kept while there are any. */
  users: number;
}

/** Creates an unused share. */
export const createShare = (): Share => ({ held: 0, users: 0 });

/** Number of shares without users that are kept, at least. */
const MIN_SHARES = 1024;

/**
 * A budget with a share for each owner.
 *
 * The amount of an owner can grow as long as it is at most `factor` times what stays free. With a
 * factor of 1 an owner holds at most a half, with 4 at most four fifths. So every owner leaves room
 * for the next (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
 */
export class SharedBudget<Kind extends Share = Share> {
  #max: number;
  readonly #create: () => Kind;
  #held = 0;
  readonly #shares = new Map<string, Kind>();
  #maxShares = MIN_SHARES;

  constructor(max: number, create: () => Kind) {
    this.#max = max;
    this.#create = create;
  }

  /** Sets the amount that may be held at once from now on; what is held already stays. */
  resize(max: number): void {
    this.#max = max;
  }

  /** Amount that all owners hold. */
  get held(): number {
    return this.#held;
  }

  /** Amount that is free; negative where the budget has become smaller. */
  get free(): number {
    return this.#max - this.#held;
  }

  /**
   * Returns the amount by which a share can grow.
   *
   * @param factor Amount that its owner may hold for each that stays free
   */
  room({ held }: Share, factor: number): number {
    return Math.floor((factor * this.free - held) / (factor + 1));
  }

  /**
   * Adds to the amount that is held; a negative number subtracts. The caller adds it to the share.
   */
  count(amount: number): void {
    this.#held += amount;
  }

  /** Returns the share of an owner, which gets one more user. */
  join(owner: string): Kind {
    let share = this.#shares.get(owner);
    if (share === undefined) {
      if (this.#shares.size >= this.#maxShares) this.#sweep();
      this.#shares.set(owner, share = this.#create());
    }
    share.users++;
    return share;
  }

  /** Finds the share of an owner, if it has one. */
  find(owner: string): Kind | undefined {
    return this.#shares.get(owner);
  }

  /** Gives a share up for one user, who holds nothing of it. */
  leave(share: Kind): void {
    share.users--;
  }

  /**
   * Drops the shares without users. Not each one when its last user leaves: a `Map` with many
   * additions and deletions replaces its table over and over, and V8 keeps the old ones. The effect
   * of that alone was within the noise (Node: 0.89 and 0.92 of the build before, 2026-11-22, `bench
   * --against`).
   */
  #sweep(): void {
    for (const [owner, { users }] of this.#shares) if (users === 0) this.#shares.delete(owner);
    this.#maxShares = Math.max(MIN_SHARES, 2 * this.#shares.size);
  }
}
