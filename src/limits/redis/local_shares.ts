/**
 * The shares of limits on which this gateway decides while Redis is away. A share is fixed at the
 * first local decision in a window, and stays until Redis returns the window's status again.
 *
 * @module
 */
import { isOfCalls, isWindowed } from "../../config/limit_kinds.ts";
import { periodEnd } from "../../config/units.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { LimitStatus } from "../limiter.ts";
import type { KnownSubject, KnownWindow, KnownWindows, OwnShare } from "./known_windows.ts";
import type { Membership } from "./membership.ts";
import { CURRENT_WINDOW } from "./settlements.ts";
import type { CountedLimit, SubjectLayout } from "./subject_layout.ts";

/** The part of the membership on which shares and local decisions depend. */
export type ShareOfFleet = Pick<Membership, "divisor" | "gateways" | "state">;

/** Computes the shares of this gateway. */
export class LocalShares {
  readonly #clock: Clock;
  readonly #known: KnownWindows;
  readonly #membership: ShareOfFleet;

  constructor(clock: Clock, known: KnownWindows, membership: ShareOfFleet) {
    this.#clock = clock;
    this.#known = known;
    this.#membership = membership;
  }

  /** Returns the current window of a limit with this gateway's share, to count in it. */
  begin(subject: KnownSubject, limit: CountedLimit): KnownWindow {
    const window = this.windowOf(subject.layout, limit, subject);
    window.share = this.shareOf(subject.layout, limit, window);
    subject.windows[limit.name] = window;
    return window;
  }

  /**
   * Returns the current window of a limit. If the last known one is over, or none is known, a new
   * one begins now.
   *
   * @param subject The known windows of the subject, if there are any
   */
  windowOf(layout: SubjectLayout, limit: CountedLimit, subject?: KnownSubject): KnownWindow {
    const now = this.#clock.monotonic();
    const known = subject?.windows[limit.name];
    if (known !== undefined && known.until > now) return known;
    // Other gateways can have used a window that is unknown here, unless it began after the outage
    // did.
    const began = known?.until ?? -Infinity;
    const isUnused = this.#membership.divisor === 1 || began > this.#known.failingSince;
    const isStrict = layout.subject.limits.mode === "strict";
    return {
      ends: CURRENT_WINDOW,
      until: now + this.#lengthFromNow(limit),
      used: isStrict && !isUnused ? limit.limit : 0,
      own: 0,
      unsynced: 0,
      share: undefined,
    };
  }

  /**
   * Returns this gateway's share of the remaining amount of a window. If it has one already, that
   * stays its share.
   */
  shareOf(layout: SubjectLayout, { name, limit }: CountedLimit, window: KnownWindow): OwnShare {
    if (window.share?.limit === limit) return window.share;
    const left = this.divide(layout, name, Math.max(0, limit - window.used));
    if (layout.subject.limits.mode !== "strict") return { limit, left };
    // Other gateways can have used more than this gateway knows. They cannot exceed the limit while
    // each stays within its share of the whole limit.
    const leftOfWhole = this.divide(layout, name, limit) - window.own;
    return { limit, left: Math.min(left, leftOfWhole) };
  }

  /**
   * Divides an amount by the gateways. Shares are rounded down. Shares of concurrency, and of
   * requests that are not strict, are rounded up.
   */
  divide({ subject }: SubjectLayout, name: LimitStatus["name"], amount: number): number {
    const { divisor, gateways } = this.#membership;
    const isStrict = subject.limits.mode === "strict";
    // A gateway that joined just before the outage serves calls like a gateway that starts during
    // the outage.
    const usedDivisor = isStrict || Number.isFinite(divisor) ? divisor : gateways;
    const share = amount / usedDivisor;
    const isRoundedUp = isOfCalls(name) && !(isWindowed(name) && isStrict);
    return isRoundedUp ? Math.ceil(share) : Math.floor(share);
  }

  /** Returns the length of a window that begins now, or the rest of the period. Milliseconds. */
  #lengthFromNow({ window }: CountedLimit): number {
    if (typeof window === "number") return window;
    const now = this.#clock.now();
    return periodEnd(window, now) - now;
  }
}
