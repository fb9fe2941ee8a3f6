/**
 * A resource that all callers share: a budget of which each owner, such as a gateway key or a
 * provider, has a share.
 *
 * @module
 */

/** The amount of a budget that one owner uses. */
export interface Share {
  used: number;
  /** Number of users of the share. It is kept while there are any. */
  users: number;
}

/** Creates an unused share. */
export const createShare = (): Share => ({ used: 0, users: 0 });

/** Number of shares without users that are kept, at least. */
const MIN_SHARES = 1024;

/**
 * A budget with a share for each owner.
 *
 * The amount of an owner can grow while it is at most `factor` times the free amount. With a factor
 * of 1 an owner has at most a half, with 4 at most four fifths. So every owner leaves room for the
 * next (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
 */
export class SharedBudget<Kind extends Share = Share> {
  #max: number;
  readonly #create: () => Kind;
  #used = 0;
  readonly #shares = new Map<string, Kind>();
  #maxShares = MIN_SHARES;

  constructor(max: number, create: () => Kind) {
    this.#max = max;
    this.#create = create;
  }

  /** Sets the total amount from now on. Amounts that are in use stay. */
  resize(max: number): void {
    this.#max = max;
  }

  /** Amount that all owners use. */
  get used(): number {
    return this.#used;
  }

  /** Amount that is free; negative if the budget was made smaller than the amount in use. */
  get free(): number {
    return this.#max - this.#used;
  }

  /**
   * Returns the possible growth of a share.
   *
   * @param factor Largest ratio of the owner's amount to the free amount
   */
  room({ used }: Share, factor: number): number {
    return Math.floor((factor * this.free - used) / (factor + 1));
  }

  /**
   * Adds to the amount in use; a negative number subtracts. The caller of this function adds the
   * same to the share.
   */
  count(amount: number): void {
    this.#used += amount;
  }

  /** Returns the share of an owner, and adds a user to it. */
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

  /** Removes a user from a share. The user has no amount of it in use. */
  leave(share: Kind): void {
    share.users--;
  }

  /**
   * Drops the shares without users, many at once. Dropping each share when its last user leaves
   * would be slower: a `Map` with many additions and deletions replaces its table often, and V8
   * keeps the old tables. That effect alone was within the noise (Node: 0.89 and 0.92 of the build
   * before, 2026-11-22, `bench --against`).
   */
  #sweep(): void {
    for (const [owner, { users }] of this.#shares) if (users === 0) this.#shares.delete(owner);
    this.#maxShares = Math.max(MIN_SHARES, 2 * this.#shares.size);
  }
}
