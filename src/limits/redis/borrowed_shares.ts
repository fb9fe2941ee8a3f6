/**
 * Shares of large limits of many subjects, see {@link BorrowedShare}.
 *
 * @module
 */
import { RecentMap } from "../../exchange/recent_map.ts";
import { BorrowedShare, type Division, type Lender } from "./borrowed_share.ts";
import type { LimitSubject } from "../limiter.ts";
import type { Plan } from "./plan.ts";

/**
 * Limits for about a thousand calls or more are divided, whether they count requests, tokens, or
 * 10^-9 of a currency.
 */
export const DIVISION: Division = {
  min: { requests: 1000, tokens: 1e6, budget: 1e6, spend: 1e11 },
  parts: 100,
};

function isSameLimits({ counted, isObserved }: Plan, other: Plan): boolean {
  return counted.length === other.counted.length && isObserved === other.isObserved &&
    counted.every(({ name, limit, window }, index) => {
      const one = other.counted[index];
      return one?.name === name && one.limit === limit && one.window === window;
    });
}

/** Number of shares that are certainly kept, see {@link RecentMap}. */
const MAX_SHARES = 5000;

/** Shares of all subjects. Shares that are unused for long are returned and dropped. */
export class BorrowedShares {
  readonly #lender: Lender;
  readonly #shares = new RecentMap<BorrowedShare>(MAX_SHARES, (share) => share.end());

  constructor(lender: Lender) {
    this.#lender = lender;
  }

  /**
   * Returns whether the limits of a subject are divided into blocks: all of them are large, and
   * none limits concurrency.
   */
  divides({ concurrency, counted }: Plan): boolean {
    return concurrency === undefined && counted.length > 0 &&
      counted.every(({ name, limit }) => limit >= this.#lender.division.min[name]);
  }

  /** Returns the share of a subject. */
  of(plan: Plan): BorrowedShare {
    const known = this.#shares.get(plan.subject.name);
    if (known !== undefined && isSameLimits(known.plan, plan)) {
      known.plan = plan;
      return known;
    }
    known?.end();
    const share = new BorrowedShare(plan, this.#lender);
    this.#shares.set(plan.subject.name, share);
    return share;
  }

  /** Finds the share of a subject whose limits have not changed. */
  find({ name, limits }: LimitSubject): BorrowedShare | undefined {
    const share = this.#shares.get(name);
    return share?.plan.subject.limits === limits ? share : undefined;
  }

  /** Returns shares that were not used for some time. */
  giveBackIdle(): void {
    for (const share of this.#shares.values()) share.giveBackIdle();
  }

  /** Ends all shares. */
  end(): void {
    for (const share of this.#shares.values()) share.end();
  }
}
