/**
 * Decisions of one gateway while Redis cannot be reached. They count against its share of the
 * remaining amount of each limit (`local_shares.ts`). When Redis is back, the counted amounts are
 * synced to it if their windows are not over (`unsynced_counts.ts`).
 *
 * | event                            | unsynced amount of the window                             |
 * | -------------------------------- | --------------------------------------------------------- |
 * | `count`: the call is admitted    | increases by the reservation                              |
 * | `release`: more was used         | increases by the excess, in the current window            |
 * | `release`: less was used         | decreases, unless the window is over or it was waived     |
 * | `waive`: Redis can have counted  | decreases by the reservation, so nothing is counted twice |
 * | Redis has counted it             | decreases by the synced amount                            |
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import { isOfCalls } from "../../config/limit_kinds.ts";
import {
  type Amounts,
  ASK_AGAIN_MS,
  type LimitStatus,
  type Reservation,
  reservedOf,
  unitOf,
} from "../limiter.ts";
import { addTo, type KnownSubject, type KnownWindow, type KnownWindows } from "./known_windows.ts";
import { LocalShares, type ShareOfFleet } from "./local_shares.ts";
import { type CountedLimit, type SubjectLayout, toWholeCount } from "./subject_layout.ts";
import { UnsyncedCounts } from "./unsynced_counts.ts";

/** The local decision on one exchange for one subject. */
export interface LocalLease {
  /**
   * Ends it, and counts the used amounts. If no call was made after all, its request is returned.
   */
  release(used: Amounts, isUndone: boolean): void;
  /**
   * Waives its reservation, because Redis can have counted it, and nothing must be counted twice.
   */
  waive(): void;
}

/** Amount that an exchange has counted in one window. */
interface LocalCount {
  readonly limit: CountedLimit;
  readonly window: KnownWindow;
  readonly reserved: number;
  /** The reservation, corrected at the end of the exchange if less was used. */
  counted: number;
}

/** The local decisions of a gateway. */
export class LocalDecisions {
  /** The amounts that Redis has to learn. */
  readonly counts: UnsyncedCounts;
  readonly #clock: Clock;
  readonly #known: KnownWindows;
  readonly #membership: ShareOfFleet;
  readonly #shares: LocalShares;
  /** Number of open exchanges of a subject at this gateway. */
  readonly #open: (layout: SubjectLayout) => number;

  /** @param open Counts the open exchanges of a subject at this gateway */
  constructor(
    clock: Clock,
    known: KnownWindows,
    membership: ShareOfFleet,
    open: (layout: SubjectLayout) => number,
  ) {
    this.counts = new UnsyncedCounts(clock);
    this.#clock = clock;
    this.#known = known;
    this.#membership = membership;
    this.#shares = new LocalShares(clock, known, membership);
    this.#open = open;
  }

  /**
   * Notes that Redis did not decide on an exchange of a subject. Called before the local decision,
   * whose shares depend on it.
   */
  noteUndecided(layout: SubjectLayout): void {
    this.#known.noteFailure();
    if (this.#membership.state === "normal") return;
    this.counts.noteLocal(this.#known.getOrAdd(layout));
  }

  /** Returns the status of a subject's limits within this gateway's share. */
  statuses(layout: SubjectLayout): LimitStatus[] {
    const known = this.#known.find(layout.subject.name);
    const statuses = layout.counted.map((limit) => this.#statusOf(layout, limit, known));
    const { subject, concurrency } = layout;
    if (concurrency !== undefined) {
      statuses.push({
        subject,
        name: "concurrency",
        limit: this.#shares.divide(layout, "concurrency", concurrency),
        used: this.#open(layout),
        resetMs: ASK_AGAIN_MS,
      });
    }
    return statuses;
  }

  /**
   * Counts an exchange that is admitted.
   *
   * @param statuses The statuses that admitted it, see {@link LocalDecisions.statuses}
   */
  count(
    layout: SubjectLayout,
    statuses: readonly LimitStatus[],
    reservation: Reservation,
  ): LocalLease {
    const subject = this.#known.getOrAdd(layout);
    const counts = layout.counted.map((limit, index): LocalCount => {
      const status = statuses[index];
      const reserved = status === undefined ? 0 : toWholeCount(reservedOf(status, reservation));
      const window = this.#shares.begin(subject, limit);
      this.#add(subject, window, reserved);
      return { limit, window, reserved, counted: reserved };
    });
    let isWaived = false;
    return {
      release: (used, isUndone) => {
        for (const count of counts) {
          this.#correct(subject, count, usedOf(count, used, isUndone), isWaived);
        }
      },
      waive: () => {
        isWaived = true;
        for (const { window, counted, reserved } of counts) {
          window.unsynced -= Math.min(counted, reserved);
        }
      },
    };
  }

  /** Returns the status of one limit: the amount of the share that is not left is used. */
  #statusOf(
    layout: SubjectLayout,
    counted: CountedLimit,
    known: KnownSubject | undefined,
  ): LimitStatus {
    const window = this.#shares.windowOf(layout, counted, known);
    const limit = this.#shares.divide(layout, counted.name, counted.limit);
    const { left } = this.#shares.shareOf(layout, counted, window);
    return {
      subject: layout.subject,
      name: counted.name,
      limit,
      used: Math.max(0, limit - left),
      resetMs: window.until - this.#clock.monotonic(),
    };
  }

  /** Corrects a count. If its window is over, only the excess counts, in the current window. */
  #correct(subject: KnownSubject, count: LocalCount, used: number, isWaived: boolean): void {
    const { limit, window, reserved } = count;
    const isCurrent = subject.windows[limit.name] === window;
    const isOver = !isCurrent || window.until <= this.#clock.monotonic();
    const change = used - reserved;
    if (change > 0) {
      const countedIn = isOver ? this.#shares.begin(subject, limit) : window;
      return this.#add(subject, countedIn, change);
    }
    if (isOver || isWaived) return;
    count.counted += change;
    this.#add(subject, window, change);
  }

  #add(subject: KnownSubject, window: KnownWindow, change: number): void {
    if (change === 0) return;
    addTo(window, change);
    window.unsynced += change;
    this.counts.noteUnsynced(subject);
  }
}

/**
 * Returns the amount of a limit that an exchange has used. A request counts unless no call was made
 * after all.
 */
function usedOf({ limit, reserved }: LocalCount, used: Amounts, isUndone: boolean): number {
  const { name } = limit;
  if (!isOfCalls(name)) return used[unitOf(name)];
  return isUndone ? 0 : reserved;
}
