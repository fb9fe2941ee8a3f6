/**
 * Limits counted in one place for gateways elsewhere, which may vanish without a word: what an exchange holds has an
 * id and expires unless it is renewed. What is counted outlives the place: it is put down with every change.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { type LimitName, type LimitSubject, MemoryLimiter, type WindowCounts } from "./memory_limiter.ts";

/** After so long without a word of its gateway an exchange no longer counts as open. Milliseconds. */
export const LEASE_MS = 30_000;

/** How one limit stands, as it travels: {@link Standing} without its subject. */
export interface Stand {
  readonly name: LimitName;
  readonly limit: number;
  readonly used: number;
  readonly resetMs: number;
}

/** A decision. */
export interface Taken {
  readonly isTaken: boolean;
  /** How the limits of each subject stood before. */
  readonly before: readonly (readonly Stand[])[];
}

/** Where counts are kept. */
export interface CountStorage {
  get(subject: string): WindowCounts | undefined;
  put(subject: string, counts: WindowCounts): void;
}

interface Held {
  readonly release: (tokens: number | undefined) => void;
  readonly expiresAt: number;
}

/** Whether anything of a subject's limits has to be kept; places are not, for they are renewed. */
const hasWindow = ({ limits }: LimitSubject): boolean =>
  limits.requests !== undefined || limits.tokens !== undefined || limits.budget !== undefined;

/** The place that counts. */
export class LeaseBook {
  readonly #now: () => number;
  readonly #storage: CountStorage;
  readonly #limiter: MemoryLimiter;
  /** By id; each renewal puts its lease last, so that they expire in this order. */
  readonly #held = new Map<string, Held>();

  /**
   * @param now Wall clock, milliseconds since 1970: it goes on where another process takes over
   * @param storage Where counts are kept
   */
  constructor(now: Clock["now"], storage: CountStorage) {
    this.#now = now;
    this.#storage = storage;
    this.#limiter = new MemoryLimiter({ now, monotonic: now, timer: () => () => {} });
  }

  /**
   * Admits an exchange to all subjects, or to none.
   *
   * @param id Of the exchange
   * @param subjects Who is limited
   * @returns What was decided
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
   * Gives back what an exchange held, and charges what it used.
   *
   * @param id Of the exchange
   * @param subjects Who is limited
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
   * Says that an exchange is still open, also one that is not known here any more.
   *
   * @param id Of the exchange
   * @param subjects Who is limited
   */
  renew(id: string, subjects: readonly LimitSubject[]): void {
    for (const subject of subjects) this.#load(subject);
    this.#hold(id, this.#held.get(id)?.release ?? this.#limiter.hold(subjects));
  }

  /**
   * @param subject Who is limited
   * @returns How its limits stand
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

  /** What was counted before this place was here. */
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
