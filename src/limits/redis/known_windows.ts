/**
 * The windows of limits in Redis, as this gateway knows them: the last status that Redis returned,
 * and the amounts that this gateway has used since. While Redis is away, the gateway continues from
 * that status.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import { RecentMap } from "../../exchange/recent_map.ts";
import type { WindowedLimit } from "../../config/limit_kinds.ts";
import type { SubjectVerdict } from "./acquire.ts";
import { type AmountChange, CURRENT_WINDOW } from "./settlements.ts";
import { itemAt, type SubjectLayout } from "./subject_layout.ts";

/** Number of subjects that are certainly remembered, see {@link RecentMap}. */
const MAX_SUBJECTS = 50_000;

/** A window of one limit. */
export interface KnownWindow {
  /** End by the clock of Redis; {@link CURRENT_WINDOW} if this gateway has begun it. */
  ends: number;
  /** End by the clock of this gateway. Milliseconds. */
  until: number;
  /** Amount that all gateways have used, as far as is known. */
  used: number;
  /** Amount that this gateway has used of it. */
  own: number;
  /**
   * Amount that is counted here and not in Redis. Negative if the count in Redis must be lowered.
   */
  unsynced: number;
  /** Share of this gateway while it decides locally, until Redis returns its status again. */
  share: OwnShare | undefined;
}

/** This gateway's share of a window. */
export interface OwnShare {
  readonly limit: number;
  left: number;
}

/** Windows of one subject. */
export interface KnownSubject {
  layout: SubjectLayout;
  readonly windows: Partial<Record<WindowedLimit, KnownWindow>>;
  /** Time at which Redis last returned its status. Monotonic milliseconds. */
  readAt: number;
  /** True if this gateway has decided locally in an outage, and Redis has not decided since then. */
  isLocal: boolean;
  /** True while the unsynced amounts are being sent. */
  isSyncing: boolean;
}

/**
 * Adds an amount to a window.
 *
 * @param change The amount; negative if less was used
 */
export function addTo(window: KnownWindow, change: number): void {
  window.used += change;
  window.own += change;
  if (window.share !== undefined) window.share.left -= change;
}

/** Memory of windows. */
export class KnownWindows {
  readonly #clock: Clock;
  readonly #subjects = new RecentMap<KnownSubject>(MAX_SUBJECTS);
  /** Time at which Redis failed, if it has not answered since. */
  #failingSince: number | undefined;
  #sweep: Iterator<KnownSubject> = this.#subjects.youngValues();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Time since which Redis does not answer; the current time while it does. Monotonic milliseconds.
   */
  get failingSince(): number {
    return this.#failingSince ?? this.#clock.monotonic();
  }

  /** Notes that Redis does not answer. */
  noteFailure(): void {
    this.#failingSince ??= this.#clock.monotonic();
  }

  /** Finds a subject. */
  find(name: string): KnownSubject | undefined {
    return this.#subjects.get(name);
  }

  /** Finds a subject, or adds it. */
  getOrAdd(layout: SubjectLayout): KnownSubject {
    const known = this.find(layout.subject.name);
    if (known !== undefined) {
      known.layout = layout;
      return known;
    }
    const added: KnownSubject = {
      layout,
      windows: {},
      readAt: -Infinity,
      isLocal: false,
      isSyncing: false,
    };
    this.#subjects.set(layout.subject.name, added);
    return added;
  }

  /**
   * Notes the status that Redis returned.
   *
   * @param amounts Amounts that were acquired, if it admits, in the order of {@link SubjectLayout.counted}
   */
  learn(layout: SubjectLayout, verdict: SubjectVerdict, amounts: readonly number[] = []): void {
    const subject = this.getOrAdd(layout);
    this.#failingSince = undefined;
    subject.isLocal = false;
    subject.readAt = this.#clock.monotonic();
    for (let index = 0; index < layout.counted.length; index++) {
      const limit = layout.counted[index];
      const status = verdict.statuses[index];
      if (limit === undefined || status === undefined) continue;
      const ends = itemAt(verdict.ends, index);
      const known = subject.windows[limit.name];
      const window = known?.ends === ends
        ? known
        : this.#begin(subject, limit.name, ends, status.resetMs);
      const amount = verdict.isAdmitted ? itemAt(amounts, index) : 0;
      window.used = status.used + amount + window.unsynced;
      window.own += amount;
      window.share = undefined;
    }
  }

  /**
   * Lists subjects whose status Redis has not returned for some time, so that other gateways can
   * have used more. Each call checks a few subjects, and repeated calls check all of them in turn.
   *
   * @param count Number of subjects to check
   * @param ms That time, milliseconds
   */
  *stale(count: number, ms: number): Iterable<KnownSubject> {
    const now = this.#clock.monotonic();
    for (let looked = 0; looked < count; looked++) {
      const next = this.#sweep.next();
      if (next.done === true) return void (this.#sweep = this.#subjects.youngValues());
      const { readAt, isLocal, windows } = next.value;
      if (isLocal || now - readAt < ms) continue;
      if (Object.values(windows).some(({ until }) => until > now)) yield next.value;
    }
  }

  /** Notes corrections of amounts that Redis has counted. */
  correct(layout: SubjectLayout, changes: readonly AmountChange[]): void {
    const windows = this.find(layout.subject.name)?.windows;
    if (windows === undefined) return;
    for (const { limit, ends, change } of changes) {
      const window = windows[limit.name];
      if (window?.ends === ends) addTo(window, change);
    }
  }

  /** Begins a window. If this gateway has begun it before Redis did, it is the same window. */
  #begin(
    { windows }: KnownSubject,
    name: WindowedLimit,
    ends: number,
    resetMs: number,
  ): KnownWindow {
    const now = this.#clock.monotonic();
    const known = windows[name];
    if (known?.ends !== CURRENT_WINDOW || known.until <= now) {
      return windows[name] = {
        ends,
        until: now + resetMs,
        used: 0,
        own: 0,
        unsynced: 0,
        share: undefined,
      };
    }
    known.ends = ends;
    known.until = now + resetMs;
    return known;
  }
}
