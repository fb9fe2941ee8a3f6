/**
 * Limits counted in one place for gateways elsewhere, which may vanish without notice: the lease of an exchange has an
 * id and expires unless it is renewed. Counts outlive the place: they are stored with every change.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { LimitName, LimitSubject } from "./limiter.ts";
import { MemoryLimiter, type WindowCounts } from "./memory_limiter.ts";

/** Time after which an exchange no longer counts as open unless its gateway renews it. Milliseconds. */
export const LEASE_MS = 30_000;

/** State of one limit, as it is sent between processes: {@link Standing} without its subject. */
export interface Stand {
  readonly name: LimitName;
  readonly limit: number;
  readonly used: number;
  readonly resetMs: number;
}

/** Decision on an exchange. */
export interface Taken {
  readonly isTaken: boolean;
  /** State of each subject's limits before the decision. */
  readonly before: readonly (readonly Stand[])[];
}

/** Storage for counts. */
export interface CountStorage {
  get(subject: string): WindowCounts | undefined;
  put(subject: string, counts: WindowCounts): void;
}

interface Held {
  readonly release: (tokens: number | undefined) => void;
  readonly expiresAt: number;
}

/** Returns whether a subject has counts to store. Open exchanges are not stored, for they are renewed. */
const hasWindow = ({ limits }: LimitSubject): boolean =>
  limits.requests !== undefined || limits.tokens !== undefined || limits.budget !== undefined;

/** The book of all leases, in which limits are counted. */
export class LeaseBook {
  readonly #now: () => number;
  readonly #storage: CountStorage;
  readonly #limiter: MemoryLimiter;
  /** Leases by id. Each renewal puts its lease last, so that they expire in this order. */
  readonly #held = new Map<string, Held>();

  /**
   * @param now Wall clock, milliseconds since 1970: it goes on where another process takes over
   * @param storage Storage for counts
   */
  constructor(now: Clock["now"], storage: CountStorage) {
    this.#now = now;
    this.#storage = storage;
    this.#limiter = new MemoryLimiter({ now, monotonic: now, timer: () => () => {} });
  }

  /**
   * Admits an exchange to all subjects, or to none.
   *
   * @param id Id of the exchange
   * @param subjects Subjects to count against
   * @returns The decision
   */
  take(id: string, subjects: readonly LimitSubject[]): Taken {
    this.#expire();
    const before = subjects.map((subject) => this.standing(subject));
    try {
      const { release } = this.#limiter.take(subjects);
      this.#hold(id, release);
    } catch (error) {
      if (GatewayError.is(error)) return { isTaken: false, before };
      throw error;
    }
    this.#keep(subjects);
    return { isTaken: true, before };
  }

  /**
   * Ends the lease of an exchange, and charges the tokens that it used.
   *
   * @param id Id of the exchange
   * @param subjects Subjects to count against
   * @param tokens As for {@link Lease.release}
   */
  release(id: string, subjects: readonly LimitSubject[], tokens: number | undefined): void {
    for (const subject of subjects) this.#load(subject);
    const release = this.#held.get(id)?.release ?? this.#limiter.hold(subjects);
    this.#held.delete(id);
    release(tokens);
    if (tokens !== 0) this.#keep(subjects);
  }

  /**
   * Renews the lease of an open exchange, also of one that is not known here any more.
   *
   * @param id Id of the exchange
   * @param subjects Subjects to count against
   */
  renew(id: string, subjects: readonly LimitSubject[]): void {
    for (const subject of subjects) this.#load(subject);
    this.#hold(id, this.#held.get(id)?.release ?? this.#limiter.hold(subjects));
  }

  /**
   * Returns the state of a subject's limits, without taking anything.
   *
   * @param subject The subject
   * @returns State of its limits
   */
  standing(subject: LimitSubject): Stand[] {
    this.#load(subject);
    return this.#limiter.standing(subject).map(({ name, limit, used, resetMs }) => ({ name, limit, used, resetMs }));
  }

  /** Exchanges of a subject whose provider stated no usage, as {@link MemoryLimiter.unmetered}. */
  unmetered(subject: string): number {
    return this.#limiter.unmetered(subject);
  }

  #hold(id: string, release: Held["release"]): void {
    this.#held.delete(id);
    this.#held.set(id, { release, expiresAt: this.#now() + LEASE_MS });
  }

  #expire(): void {
    for (const [id, { release, expiresAt }] of this.#held) {
      if (expiresAt > this.#now()) return;
      this.#held.delete(id);
      release(0);
    }
  }

  /** Loads the stored counts of a subject, unless it has counts already. */
  #load(subject: LimitSubject): void {
    if (!hasWindow(subject) || this.#limiter.counts(subject.name) !== undefined) return;
    const kept = this.#storage.get(subject.name);
    if (kept !== undefined) this.#limiter.putBack(subject.name, kept);
  }

  #keep(subjects: readonly LimitSubject[]): void {
    for (const subject of subjects) {
      const counts = hasWindow(subject) ? this.#limiter.counts(subject.name) : undefined;
      if (counts !== undefined) this.#storage.put(subject.name, counts);
    }
  }
}
