/**
 * Decisions of one gateway while the shared store cannot be reached. They count against its share
 * of the remaining amount of each limit. When the store is back, they are charged to it if their
 * windows are not over.
 *
 * @module
 */
import { periodEnd } from "../../config/units.ts";
import type { Clock } from "../../exchange/clock.ts";
import {
  addTo,
  type KnownSubject,
  type KnownWindow,
  type KnownWindows,
  type OwnShare,
} from "./known_windows.ts";
import { isOfCalls } from "../limit_kinds.ts";
import {
  type Amounts,
  ASK_AGAIN_MS,
  type Reservation,
  reservedOf,
  type Standing,
  unitOf,
} from "../limiter.ts";
import {
  type Change,
  type CountedLimit,
  ofLimit,
  type Outcome,
  type Plan,
  type Settled,
  toWhole,
} from "./plan.ts";

/** Maximum number of subjects that are charged and read again after an outage. */
const MAX_SUBJECTS = 100_000;

/** The facts about the gateways that share the limits, on which decisions of one of them depend. */
export interface Sharing {
  /** Divisor of each limit; `Infinity` for a gateway that the others do not know yet. */
  readonly divisor: number;
  /** Number of gateways that this one knows. */
  readonly gateways: number;
  /** True while Redis is away, and until all gateways are back. */
  readonly isAway: boolean;
}

/** The local decision on one exchange for one subject. */
export interface LocalLease {
  /**
   * Ends it, and charges the used amounts. If no call was made after all, its request is returned.
   */
  release(used: Amounts, isUndone: boolean): void;
  /**
   * Waives its reservation, because the store can have counted it, and nothing must be charged
   * twice.
   */
  waive(): void;
}

/** Amount that an exchange was charged in one window. */
interface Charge {
  readonly limit: CountedLimit;
  readonly window: KnownWindow;
  readonly reserved: number;
  charged: number;
}

/** Bill for the use of a subject in windows that are not over. */
export interface Bill {
  readonly plan: Plan;
  readonly changes: readonly Change[];
  /** Receives the outcome. */
  settle(outcome: Outcome): void;
}

/** Decisions of a gateway without the others. */
export class LocalDecisions {
  readonly #clock: Clock;
  readonly #known: KnownWindows;
  readonly #sharing: Sharing;
  /** Number of open exchanges of a subject at this gateway. */
  readonly #open: (plan: Plan) => number;
  readonly #owing = new Set<KnownSubject>();
  readonly #lost = new Set<KnownSubject>();

  /** @param open Counts the open exchanges of a subject at this gateway */
  constructor(clock: Clock, known: KnownWindows, sharing: Sharing, open: (plan: Plan) => number) {
    this.#clock = clock;
    this.#known = known;
    this.#sharing = sharing;
    this.#open = open;
  }

  /** Returns the state of this gateway's share of the limits of a subject. */
  standings(plan: Plan): Standing[] {
    const { subject, counted, concurrency } = plan;
    const now = this.#clock.monotonic();
    const known = this.#known.find(subject.name);
    const standings = counted.map((limited): Standing => {
      const window = this.#windowOf(plan, limited, known, now);
      const limit = this.#divide(plan, limited.name, limited.limit);
      const { left } = this.#shareOf(plan, limited, window);
      return {
        subject,
        name: limited.name,
        limit,
        used: Math.max(0, limit - left),
        resetMs: window.until - now,
      };
    });
    if (concurrency !== undefined) {
      const limit = this.#divide(plan, "concurrency", concurrency);
      standings.push({
        subject,
        name: "concurrency",
        limit,
        used: this.#open(plan),
        resetMs: ASK_AGAIN_MS,
      });
    }
    return standings;
  }

  /** Notes that Redis did not decide on an exchange of a subject. */
  lose(plan: Plan): void {
    this.#known.lose();
    if (!this.#sharing.isAway) return;
    const subject = this.#known.of(plan);
    subject.isLost = true;
    if (this.#lost.size < MAX_SUBJECTS) this.#lost.add(subject);
  }

  /** Counts an exchange that is admitted. */
  admit(plan: Plan, standings: readonly Standing[], reservation: Reservation): LocalLease {
    const subject = this.#known.of(plan);
    const charges = plan.counted.map((limit, index): Charge => {
      const standing = standings[index];
      const reserved = standing === undefined ? 0 : toWhole(reservedOf(standing, reservation));
      const window = this.#enter(subject, limit);
      this.#charge(subject, window, reserved);
      return { limit, window, reserved, charged: reserved };
    });
    let isWaived = false;
    return {
      release: (used, isUndone) => {
        for (const charge of charges) {
          this.#correct(subject, charge, usedOf(charge, used, isUndone), isWaived);
        }
      },
      waive: () => {
        isWaived = true;
        for (const { window, charged, reserved } of charges) {
          window.unpaid -= Math.min(charged, reserved);
        }
      },
    };
  }

  /** Lists the unpaid amounts. Each bill must be settled. */
  *bills(): Iterable<Bill> {
    for (const subject of this.#owing) {
      if (subject.isBeingPaid) continue;
      const billed = this.#live(subject).filter(([window]) => window.unpaid !== 0);
      if (billed.length > 0) yield this.#toBill(subject, billed);
      else this.#owing.delete(subject);
    }
  }

  /**
   * Lists the subjects on which this gateway has decided alone in an outage, as bills over 0. The
   * answers to these bills show the amounts that other gateways have charged since.
   */
  *reviews(): Iterable<Bill> {
    for (const subject of this.#lost) {
      if (subject.isBeingPaid) continue;
      const windows = this.#live(subject);
      if (subject.isLost && windows.length > 0) yield this.#toBill(subject, windows, true);
      else this.#lost.delete(subject);
    }
  }

  /** Lists the windows of a subject that are not over. */
  #live({ plan, windows }: KnownSubject): [KnownWindow, CountedLimit][] {
    const now = this.#clock.monotonic();
    const live: [KnownWindow, CountedLimit][] = [];
    for (const limit of plan.counted) {
      const window = windows[limit.name];
      if (window !== undefined && window.until > now) live.push([window, limit]);
    }
    return live;
  }

  #toBill(
    subject: KnownSubject,
    billed: readonly [KnownWindow, CountedLimit][],
    isReview = false,
  ): Bill {
    subject.isBeingPaid = true;
    const changes = billed.map(([window, limit]): Change => {
      return { limit, ends: window.ends, change: window.unpaid };
    });
    return {
      plan: subject.plan,
      changes,
      settle: (outcome) => {
        subject.isBeingPaid = false;
        if (outcome === undefined) return;
        for (const [index, [window]] of billed.entries()) {
          window.unpaid -= ofLimit(changes, index).change;
          this.#note(window, outcome === "unknown" ? undefined : outcome[index], isReview);
        }
        if (!isReview || outcome === "unknown") return;
        subject.isLost = false;
        this.#lost.delete(subject);
      },
    };
  }

  /** Notes the state of a window in Redis. Amounts that were charged since are in the next bill. */
  #note(window: KnownWindow, settled: Settled | undefined, isReview: boolean): void {
    if (settled === undefined) return;
    window.ends = settled.ends;
    window.until = this.#clock.monotonic() + settled.resetMs;
    window.used = settled.used + window.unpaid;
    if (isReview) window.share = undefined;
  }

  /** Corrects a charge. If its window is over, only the excess counts, in the current window. */
  #correct(subject: KnownSubject, charge: Charge, used: number, isWaived: boolean): void {
    const { limit, window, reserved } = charge;
    const isOver = subject.windows[limit.name] !== window ||
      window.until <= this.#clock.monotonic();
    const change = used - reserved;
    if (change > 0) {
      return this.#charge(subject, isOver ? this.#enter(subject, limit) : window, change);
    }
    if (isOver || isWaived) return;
    charge.charged += change;
    this.#charge(subject, window, change);
  }

  #charge(subject: KnownSubject, window: KnownWindow, change: number): void {
    if (change === 0) return;
    addTo(window, change);
    window.unpaid += change;
    if (this.#owing.size < MAX_SUBJECTS) this.#owing.add(subject);
  }

  /** Finds the current window and this gateway's share of it. */
  #enter(subject: KnownSubject, limit: CountedLimit): KnownWindow {
    const window = this.#windowOf(subject.plan, limit, subject, this.#clock.monotonic());
    window.share = this.#shareOf(subject.plan, limit, window);
    return subject.windows[limit.name] = window;
  }

  /**
   * Returns the current window. If the former one is over, or none is known, a new one begins now.
   */
  #windowOf(
    plan: Plan,
    limit: CountedLimit,
    subject: KnownSubject | undefined,
    now: number,
  ): KnownWindow {
    const known = subject?.windows[limit.name];
    if (known !== undefined && known.until > now) return known;
    const wall = this.#clock.now();
    const until = now +
      (typeof limit.window === "number" ? limit.window : periodEnd(limit.window, wall) - wall);
    // Other gateways can have used a window that is unknown here, unless it began after the outage
    // did.
    const isFresh = this.#sharing.divisor === 1 ||
      (known !== undefined && known.until > this.#known.lostAt);
    const used = plan.subject.limits.mode === "strict" && !isFresh ? limit.limit : 0;
    return { ends: 0, until, used, own: 0, unpaid: 0, share: undefined };
  }

  /**
   * Returns this gateway's share of the remaining amount of a window. If it already decides alone,
   * that is the share with which it began.
   */
  #shareOf(plan: Plan, { name, limit }: CountedLimit, { used, own, share }: KnownWindow): OwnShare {
    if (share?.limit === limit) return share;
    const left = this.#divide(plan, name, Math.max(0, limit - used));
    if (plan.subject.limits.mode !== "strict") return { limit, left };
    // Other gateways can have used more than this gateway knows. They cannot exceed the limit while
    // each stays within its part of the whole limit.
    return { limit, left: Math.min(left, this.#divide(plan, name, limit) - own) };
  }

  /**
   * Divides an amount by the gateways. Shares are rounded down. Shares of concurrency, and of
   * requests that are not strict, are rounded up.
   */
  #divide({ subject }: Plan, name: Standing["name"], amount: number): number {
    const { divisor, gateways } = this.#sharing;
    const isStrict = subject.limits.mode === "strict";
    // A gateway that joined just before the outage serves calls like a gateway that starts during
    // the outage.
    const part = amount / (isStrict || Number.isFinite(divisor) ? divisor : gateways);
    const isRoundedUp = name === "concurrency" || (name === "requests" && !isStrict);
    return isRoundedUp ? Math.ceil(part) : Math.floor(part);
  }
}

/**
 * Returns the amount of a limit that an exchange has used. A request counts unless no call was made
 * after all.
 */
function usedOf({ limit, reserved }: Charge, used: Amounts, isUndone: boolean): number {
  const { name } = limit;
  if (!isOfCalls(name)) return used[unitOf(name)];
  return isUndone ? 0 : reserved;
}
