/**
 * Decisions of one gateway while Redis cannot be reached. They count against its share of the
 * remaining amount of each limit. When Redis is back, the counted amounts are synced to it if their
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
import type { Membership } from "./membership.ts";
import type { SubjectSync } from "./settlements.ts";
import { isOfCalls } from "../limit_kinds.ts";
import {
  type Amounts,
  ASK_AGAIN_MS,
  type LimitStatus,
  type Reservation,
  reservedOf,
  unitOf,
} from "../limiter.ts";
import {
  type Change,
  type CountedLimit,
  ofLimit,
  type SubjectLayout,
  toWholeCount,
  type WindowStatus,
} from "./subject_layout.ts";

/** Maximum number of subjects that are synced and read again after an outage. */
const MAX_SUBJECTS = 100_000;

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
  counted: number;
}

/** The local decisions of a gateway. */
export class LocalDecisions {
  readonly #clock: Clock;
  readonly #known: KnownWindows;
  readonly #membership: Pick<Membership, "divisor" | "gateways" | "state">;
  /** Number of open exchanges of a subject at this gateway. */
  readonly #open: (layout: SubjectLayout) => number;
  /** Subjects with unsynced amounts. */
  readonly #unsynced = new Set<KnownSubject>();
  /** Subjects on which only this gateway has decided in an outage. */
  readonly #local = new Set<KnownSubject>();

  /** @param open Counts the open exchanges of a subject at this gateway */
  constructor(
    clock: Clock,
    known: KnownWindows,
    membership: Pick<Membership, "divisor" | "gateways" | "state">,
    open: (layout: SubjectLayout) => number,
  ) {
    this.#clock = clock;
    this.#known = known;
    this.#membership = membership;
    this.#open = open;
  }

  /** Returns the status of a subject's limits within this gateway's share. */
  statuses(layout: SubjectLayout): LimitStatus[] {
    const { subject, counted, concurrency } = layout;
    const now = this.#clock.monotonic();
    const known = this.#known.find(subject.name);
    const statuses = counted.map((limited): LimitStatus => {
      const window = this.#windowOf(layout, limited, known, now);
      const limit = this.#divide(layout, limited.name, limited.limit);
      const { left } = this.#shareOf(layout, limited, window);
      return {
        subject,
        name: limited.name,
        limit,
        used: Math.max(0, limit - left),
        resetMs: window.until - now,
      };
    });
    if (concurrency !== undefined) {
      const limit = this.#divide(layout, "concurrency", concurrency);
      statuses.push({
        subject,
        name: "concurrency",
        limit,
        used: this.#open(layout),
        resetMs: ASK_AGAIN_MS,
      });
    }
    return statuses;
  }

  /** Notes that Redis did not decide on an exchange of a subject. */
  noteFailure(layout: SubjectLayout): void {
    this.#known.noteFailure();
    if (this.#membership.state === "normal") return;
    const subject = this.#known.of(layout);
    subject.isLocal = true;
    if (this.#local.size < MAX_SUBJECTS) this.#local.add(subject);
  }

  /** Counts an exchange that is admitted. */
  admit(
    layout: SubjectLayout,
    statuses: readonly LimitStatus[],
    reservation: Reservation,
  ): LocalLease {
    const subject = this.#known.of(layout);
    const counts = layout.counted.map((limit, index): LocalCount => {
      const status = statuses[index];
      const reserved = status === undefined ? 0 : toWholeCount(reservedOf(status, reservation));
      const window = this.#currentWindow(subject, limit);
      this.#count(subject, window, reserved);
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

  /** Lists the unsynced amounts. Call `done` of each. */
  *unsynced(): Iterable<SubjectSync> {
    for (const subject of this.#unsynced) {
      if (subject.isSyncing) continue;
      const windows = this.#live(subject).filter(([window]) => window.unsynced !== 0);
      if (windows.length > 0) yield this.#toSync(subject, windows);
      else this.#unsynced.delete(subject);
    }
  }

  /**
   * Lists the subjects with local decisions, to read their windows again: the results show the
   * amounts that other gateways have synced since.
   */
  *rereads(): Iterable<SubjectSync> {
    for (const subject of this.#local) {
      if (subject.isSyncing) continue;
      const windows = this.#live(subject);
      if (subject.isLocal && windows.length > 0) yield this.#toSync(subject, windows, true);
      else this.#local.delete(subject);
    }
  }

  /** Lists the windows of a subject that are not over. */
  #live({ layout, windows }: KnownSubject): [KnownWindow, CountedLimit][] {
    const now = this.#clock.monotonic();
    const live: [KnownWindow, CountedLimit][] = [];
    for (const limit of layout.counted) {
      const window = windows[limit.name];
      if (window !== undefined && window.until > now) live.push([window, limit]);
    }
    return live;
  }

  #toSync(
    subject: KnownSubject,
    windows: readonly [KnownWindow, CountedLimit][],
    isReread = false,
  ): SubjectSync {
    subject.isSyncing = true;
    const changes = windows.map(([window, limit]): Change => {
      return { limit, ends: window.ends, change: window.unsynced };
    });
    return {
      layout: subject.layout,
      changes,
      done: (result) => {
        subject.isSyncing = false;
        if (result === undefined) return;
        for (const [index, [window]] of windows.entries()) {
          window.unsynced -= ofLimit(changes, index).change;
          this.#learn(window, result === "unknown" ? undefined : result[index], isReread);
        }
        if (!isReread || result === "unknown") return;
        subject.isLocal = false;
        this.#local.delete(subject);
      },
    };
  }

  /** Notes the status of a window in Redis. Amounts that were counted since are still unsynced. */
  #learn(window: KnownWindow, settled: WindowStatus | undefined, isReread: boolean): void {
    if (settled === undefined) return;
    window.ends = settled.ends;
    window.until = this.#clock.monotonic() + settled.resetMs;
    window.used = settled.used + window.unsynced;
    if (isReread) window.share = undefined;
  }

  /** Corrects a count. If its window is over, only the excess counts, in the current window. */
  #correct(subject: KnownSubject, count: LocalCount, used: number, isWaived: boolean): void {
    const { limit, window, reserved } = count;
    const isOver = subject.windows[limit.name] !== window ||
      window.until <= this.#clock.monotonic();
    const change = used - reserved;
    if (change > 0) {
      return this.#count(subject, isOver ? this.#currentWindow(subject, limit) : window, change);
    }
    if (isOver || isWaived) return;
    count.counted += change;
    this.#count(subject, window, change);
  }

  #count(subject: KnownSubject, window: KnownWindow, change: number): void {
    if (change === 0) return;
    addTo(window, change);
    window.unsynced += change;
    if (this.#unsynced.size < MAX_SUBJECTS) this.#unsynced.add(subject);
  }

  /** Finds the current window and this gateway's share of it. */
  #currentWindow(subject: KnownSubject, limit: CountedLimit): KnownWindow {
    const window = this.#windowOf(subject.layout, limit, subject, this.#clock.monotonic());
    window.share = this.#shareOf(subject.layout, limit, window);
    return subject.windows[limit.name] = window;
  }

  /**
   * Returns the current window. If the former one is over, or none is known, a new one begins now.
   */
  #windowOf(
    layout: SubjectLayout,
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
    const isFresh = this.#membership.divisor === 1 ||
      (known !== undefined && known.until > this.#known.failingSince);
    const used = layout.subject.limits.mode === "strict" && !isFresh ? limit.limit : 0;
    return { ends: 0, until, used, own: 0, unsynced: 0, share: undefined };
  }

  /**
   * Returns this gateway's share of the remaining amount of a window. If it has one already, that
   * stays its share.
   */
  #shareOf(
    layout: SubjectLayout,
    { name, limit }: CountedLimit,
    { used, own, share }: KnownWindow,
  ): OwnShare {
    if (share?.limit === limit) return share;
    const left = this.#divide(layout, name, Math.max(0, limit - used));
    if (layout.subject.limits.mode !== "strict") return { limit, left };
    // Other gateways can have used more than this gateway knows. They cannot exceed the limit while
    // each stays within its share of the whole limit.
    return { limit, left: Math.min(left, this.#divide(layout, name, limit) - own) };
  }

  /**
   * Divides an amount by the gateways. Shares are rounded down. Shares of concurrency, and of
   * requests that are not strict, are rounded up.
   */
  #divide({ subject }: SubjectLayout, name: LimitStatus["name"], amount: number): number {
    const { divisor, gateways } = this.#membership;
    const isStrict = subject.limits.mode === "strict";
    // A gateway that joined just before the outage serves calls like a gateway that starts during
    // the outage.
    const share = amount / (isStrict || Number.isFinite(divisor) ? divisor : gateways);
    const isRoundedUp = name === "concurrency" || (name === "requests" && !isStrict);
    return isRoundedUp ? Math.ceil(share) : Math.floor(share);
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
