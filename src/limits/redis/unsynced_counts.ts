/**
 * Amounts that a gateway has counted while Redis was away, and that Redis has not counted yet.
 *
 * | a subject is | meaning                                   | until                       |
 * | ------------ | ----------------------------------------- | --------------------------- |
 * | unsynced     | it has amounts that Redis has not counted | Redis has counted them,     |
 * |              |                                           | or their windows are over   |
 * | local        | only this gateway decides on it           | it is read again, after all |
 * |              |                                           | gateways have synced theirs |
 *
 * A subject is in only one settlement at a time (`isSyncing`). If a settlement had no effect, the
 * subject stays in its list for the next one.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { KnownSubject, KnownWindow } from "./known_windows.ts";
import type { AmountChange, SettleResult, SubjectSync, WindowStatus } from "./settlements.ts";
import { type CountedLimit, itemAt } from "./subject_layout.ts";

/** Maximum number of subjects that are synced and read again after an outage. */
const MAX_SUBJECTS = 100_000;

/** A window that is not over, and its limit. */
interface LiveWindow {
  readonly window: KnownWindow;
  readonly limit: CountedLimit;
}

/** Subjects with amounts that Redis has not counted. */
export class UnsyncedCounts {
  readonly #clock: Clock;
  readonly #unsynced = new Set<KnownSubject>();
  readonly #local = new Set<KnownSubject>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Notes that a subject has unsynced amounts. */
  noteUnsynced(subject: KnownSubject): void {
    if (this.#unsynced.size < MAX_SUBJECTS) this.#unsynced.add(subject);
  }

  /** Notes that only this gateway decides on a subject. */
  noteLocal(subject: KnownSubject): void {
    subject.isLocal = true;
    if (this.#local.size < MAX_SUBJECTS) this.#local.add(subject);
  }

  /** Lists the unsynced amounts. Call `done` of each. */
  *unsynced(): Iterable<SubjectSync> {
    for (const subject of this.#unsynced) {
      if (subject.isSyncing) continue;
      const windows = this.#liveWindows(subject).filter(({ window }) => window.unsynced !== 0);
      if (windows.length > 0) yield this.#toSync(subject, windows);
      else this.#unsynced.delete(subject);
    }
  }

  /**
   * Lists the subjects with local decisions, to read their windows again: the results show the
   * amounts that other gateways have synced since. Call `done` of each.
   */
  *rereads(): Iterable<SubjectSync> {
    for (const subject of this.#local) {
      if (subject.isSyncing) continue;
      const windows = this.#liveWindows(subject);
      if (subject.isLocal && windows.length > 0) yield this.#toReread(subject, windows);
      else this.#local.delete(subject);
    }
  }

  #liveWindows({ layout, windows }: KnownSubject): LiveWindow[] {
    const now = this.#clock.monotonic();
    const live: LiveWindow[] = [];
    for (const limit of layout.counted) {
      const window = windows[limit.name];
      if (window !== undefined && window.until > now) live.push({ window, limit });
    }
    return live;
  }

  /** Begins to sync windows of a subject. */
  #toSync(subject: KnownSubject, windows: readonly LiveWindow[]): SubjectSync {
    subject.isSyncing = true;
    const changes = windows.map(({ window, limit }): AmountChange => {
      return { limit, ends: window.ends, change: window.unsynced };
    });
    const done = (result: SettleResult) => {
      subject.isSyncing = false;
      if (result === undefined) return;
      for (const [index, { window }] of windows.entries()) {
        // Amounts that were counted since the settlement was sent are still unsynced.
        window.unsynced -= itemAt(changes, index).change;
        if (result !== "unknown") this.#learn(window, result[index]);
      }
    };
    return { layout: subject.layout, changes, done };
  }

  /** Begins to sync windows of a subject, and lets Redis decide on it afterwards. */
  #toReread(subject: KnownSubject, windows: readonly LiveWindow[]): SubjectSync {
    const sync = this.#toSync(subject, windows);
    const done = (result: SettleResult) => {
      sync.done(result);
      if (result === undefined || result === "unknown") return;
      for (const { window } of windows) window.share = undefined;
      subject.isLocal = false;
      this.#local.delete(subject);
    };
    return { ...sync, done };
  }

  /** Notes the status of a window in Redis. */
  #learn(window: KnownWindow, status: WindowStatus | undefined): void {
    if (status === undefined) return;
    window.ends = status.ends;
    window.until = this.#clock.monotonic() + status.resetMs;
    window.used = status.used + window.unsynced;
  }
}
