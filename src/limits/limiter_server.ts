/**
 * Limits counted by one server for many gateways, and the messages that the gateways send to it.
 *
 * Gateways can disappear without notice, so the lease of an exchange has an id, and expires unless
 * it is renewed. Its reservation then stays charged. Counts are stored at every change, so they
 * outlive the server. Leases do not, so each message contains all facts that are needed to continue
 * or settle an unknown lease.
 *
 * @module
 */
import { WINDOWED_LIMITS } from "./limit_kinds.ts";
import {
  type Amounts,
  LEASE_MS,
  limitsAmounts,
  type LimitSubject,
  NO_AMOUNTS,
  type Reservation,
  type Standing,
} from "./limiter.ts";
import type { MemoryLimiter, Release, WindowCounts } from "./memory_limiter.ts";
import { findRefusing } from "./verdict.ts";

/** A message of a gateway to the {@link LimiterServer}. */
export type LimiterMessage =
  /** Reads the state of limits. */
  | { readonly type: "status"; readonly subjects: readonly LimitSubject[] }
  /**
   * Admits an exchange to all subjects, or to none. The answer is the state of their limits before,
   * from which the gateway reaches the same verdict.
   */
  | ({ readonly type: "acquire" } & LeaseMessage)
  /**
   * Renews the lease of an open exchange, also an unknown one. Needs no
   * answer.
   */
  | ({ readonly type: "renew" } & HeldMessage)
  /** Ends the lease of an exchange, and settles it as `Lease.release` does. Needs no answer. */
  | (
    & { readonly type: "release"; readonly used: Amounts; readonly isUndone?: boolean }
    & HeldMessage
  );

interface LeaseMessage {
  readonly id: string;
  readonly subjects: readonly LimitSubject[];
  readonly reservation: Reservation;
}

interface HeldMessage extends LeaseMessage {
  /** Time since the exchange was admitted, by its gateway's clock. Milliseconds. */
  readonly ageMs: number;
}

/**
 * Answer to a message: the state of each limit, in the order of the subjects and of {@link
 * limitsOf}; empty for messages that need none.
 */
export type LimiterAnswer = readonly Pick<Standing, "used" | "resetMs">[];

/** Storage for counts. */
export interface CountStorage {
  get(subject: string): WindowCounts | undefined;
  put(subject: string, counts: WindowCounts): void;
}

const toAnswer = (standings: readonly Standing[]): LimiterAnswer =>
  standings.map(({ used, resetMs }) => ({ used, resetMs }));

interface Held {
  readonly release: Release;
  readonly expiresAt: number;
}

/**
 * Returns whether a subject has counts to store. Open exchanges are not stored, because they are
 * renewed.
 */
const hasWindow = ({ limits }: LimitSubject): boolean =>
  WINDOWED_LIMITS.some((name) => limits[name] !== undefined);

/** Returns whether the end of an exchange must be counted. Requests were counted at its start. */
export function countsAtEnd(subjects: readonly LimitSubject[]): boolean {
  return subjects.some((subject) =>
    subject.limits.concurrency !== undefined || limitsAmounts(subject)
  );
}

/** Counts limits for many gateways. Each of them uses it through a `RemoteLimiter`. */
export class LimiterServer {
  readonly #limiter: MemoryLimiter;
  readonly #now: () => number;
  readonly #storage: CountStorage | undefined;
  /** Leases by id. Each renewal moves its lease to the end, so that they expire in this order. */
  readonly #held = new Map<string, Held>();

  /**
   * @param now Clock of the expiry of leases, milliseconds
   * @param storage Storage for counts. If left out, counts last as long as `limiter`
   */
  constructor(limiter: MemoryLimiter, now: () => number, storage?: CountStorage) {
    this.#limiter = limiter;
    this.#now = now;
    this.#storage = storage;
  }

  /**
   * Handles a message synchronously, so that no other message is handled between a decision and its
   * count.
   */
  handle(message: LimiterMessage): LimiterAnswer {
    const { subjects } = message;
    this.#expire();
    for (const subject of subjects) this.#load(subject);
    switch (message.type) {
      case "status":
        return toAnswer(this.#limiter.standings(subjects));
      case "acquire":
        return this.#acquire(message);
      case "renew":
        this.#hold(message.id, this.#releaseOf(message));
        return [];
      case "release":
        this.#releaseOf(message)(message.used, message.isUndone);
        this.#held.delete(message.id);
        this.#store(subjects);
        return [];
    }
  }

  #acquire({ id, subjects, reservation }: LeaseMessage): LimiterAnswer {
    const before = this.#limiter.standings(subjects);
    if (findRefusing(before, reservation).length === 0) {
      const release = this.#limiter.admit(subjects, reservation);
      if (countsAtEnd(subjects)) this.#hold(id, release);
      else release(NO_AMOUNTS);
      this.#store(subjects);
    }
    return toAnswer(before);
  }

  /**
   * Returns the function that releases an exchange, even if the exchange is not known here any
   * more.
   */
  #releaseOf(message: HeldMessage): Release {
    const held = this.#held.get(message.id);
    if (held !== undefined) return held.release;
    return this.#limiter.hold(message.subjects, message.reservation, message.ageMs);
  }

  #hold(id: string, release: Release): void {
    this.#held.delete(id);
    this.#held.set(id, { release, expiresAt: this.#now() + LEASE_MS.shared });
  }

  #expire(): void {
    for (const [id, { release, expiresAt }] of this.#held) {
      if (expiresAt > this.#now()) return;
      this.#held.delete(id);
      release();
    }
  }

  /** Loads the stored counts of a subject, unless it has counts already. */
  #load(subject: LimitSubject): void {
    if (!hasWindow(subject) || this.#limiter.counts(subject.name) !== undefined) return;
    const stored = this.#storage?.get(subject.name);
    if (stored !== undefined) this.#limiter.putBack(subject.name, stored);
  }

  #store(subjects: readonly LimitSubject[]): void {
    for (const subject of subjects) {
      const counts = hasWindow(subject) ? this.#limiter.counts(subject.name) : undefined;
      if (counts !== undefined) this.#storage?.put(subject.name, counts);
    }
  }
}
