/**
 * Shares of large limits of many subjects, see {@link BorrowedShare}.
 *
 * @module
 */
import { RecentMap } from "../../exchange/recent_map.ts";
import { BorrowedShare, type Division, type Lender } from "./borrowed_share.ts";
import type { LocalLease } from "./local_decisions.ts";
import type { LimitSubject, Reservation } from "../limiter.ts";
import { type Plan, type Taken, toAmountsTaken } from "./plan.ts";

/**
 * Limits of about a thousand calls each are divided: of requests, of tokens, and of 10^-9 of a
 * currency.
 */
export const DIVISION: Division = {
  min: { requests: 1000, tokens: 1e6, budget: 1e6, spend: 1e11 },
  parts: 100,
};

/** Verdict about one subject of an exchange. */
export interface Asked {
  readonly plan: Plan;
  /** Id of the exchange, where concurrency is limited. */
  readonly id: string | undefined;
  /** Amounts that were reserved, in the order of {@link Plan.counted}. */
  readonly reserved: readonly number[];
  /** Answer of Redis; `undefined` if it failed. */
  readonly taken: Taken | undefined;
  /** Share of which it was taken. */
  readonly share?: BorrowedShare | undefined;
  /** Decision of this gateway, where Redis failed. */
  local?: LocalLease;
  /** True if Redis may have counted it although it failed. */
  isUnclear?: boolean;
}

function isSameLimits({ counted, isObserved }: Plan, other: Plan): boolean {
  return counted.length === other.counted.length && isObserved === other.isObserved &&
    counted.every(({ name, limit, window }, index) => {
      const one = other.counted[index];
      return one?.name === name && one.limit === limit && one.window === window;
    });
}

/** Number of shares that are kept for sure, see {@link RecentMap}. */
const MAX_SHARES = 5000;

/** Shares of all subjects. Those that are not used for long are given back, and dropped. */
export class BorrowedShares {
  readonly #lender: Lender;
  readonly #shares = new RecentMap<BorrowedShare>(MAX_SHARES, (share) => share.end());

  constructor(lender: Lender) {
    this.#lender = lender;
  }

  /**
   * Returns whether the limits of a subject are divided into blocks: all of them are large, and
   * none is of concurrency.
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

  /**
   * Takes what an exchange needs of the share of a subject, if there is one and enough is left of
   * it.
   */
  take({ name, limits }: LimitSubject, reservation: Reservation): Asked | undefined {
    const share = this.#shares.get(name);
    if (share?.plan.subject.limits !== limits) return undefined;
    const { plan } = share;
    const reserved = toAmountsTaken(plan, reservation);
    const taken = share.take(reserved);
    return taken && { plan, id: undefined, reserved, taken, share };
  }

  /** Gives back what was not used for some time. */
  giveBackIdle(): void {
    for (const share of this.#shares.values()) share.giveBackIdle();
  }

  /** Ends all shares. */
  end(): void {
    for (const share of this.#shares.values()) share.end();
  }
}
