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
import { WINDOWED_LIMITS } from "../config/limit_kinds.ts";
import {
  type Amounts,
  countsAtEnd,
  LEASE_MS,
  type LimitStatus,
  type LimitSubject,
  NO_AMOUNTS,
  type Reservation,
} from "./limiter.ts";
import type { MemoryLimiter, Release, WindowCounts } from "./memory_limiter.ts";
import { findRefusing } from "./verdict.ts";

/** A message of a gateway to the {@link LimiterServer}. */
export type LimiterMessage =
  /** Reads the status of limits. */
  | { readonly type: "status"; readonly subjects: readonly LimitSubject[] }
  /**
   * Admits an exchange to all subjects, or to none. The reply is the status of their limits before,
   * from which the gateway reaches the same verdict.
   */
  | ({ readonly type: "acquire" } & LeaseMessage)
  /**
   * Renews the lease of an open exchange, also an unknown one. Needs no
   * answer.
   */
  | ({ readonly type: "renew" } & OpenLeaseMessage)
  /** Ends the lease of an exchange, and settles it as `Lease.release` does. Needs no reply. */
  | (
    & { readonly type: "release"; readonly used: Amounts; readonly isUndone?: boolean }
    & OpenLeaseMessage
  );

/** The facts that are needed to acquire a lease. */
export interface LeaseRequest {
  readonly id: string;
  readonly subjects: readonly LimitSubject[];
  readonly reservation: Reservation;
}

/**
 * A lease in a message. Messages keep the former name `admitted` of `firstLeaseSubject`, because
 * a deployment does not replace all Workers and Durable Objects at the same moment.
 */
interface LeaseMessage extends Omit<LeaseRequest, "reservation"> {
  readonly reservation: Omit<Reservation, "firstLeaseSubject"> & {
    readonly admitted?: string | undefined;
  };
}

interface OpenLeaseMessage extends LeaseMessage {
  /** Time since the exchange was admitted, by its gateway's clock. Milliseconds. */
  readonly ageMs: number;
}

/**
 * Answer to a message: the status of each limit, in the order of the subjects and of {@link
 * limitsOf}; empty for messages that need none.
 */
export type LimiterReply = readonly Pick<LimitStatus, "used" | "resetMs">[];

/** Storage for counts. */
export interface CountStorage {
  get(subject: string): WindowCounts | undefined;
  put(subject: string, counts: WindowCounts): void;
}

/** Converts a lease to the form of messages. */
export function toMessage({ reservation, ...rest }: LeaseRequest): LeaseMessage {
  const { firstLeaseSubject: admitted, ...amounts } = reservation;
  return { ...rest, reservation: { ...amounts, admitted } };
}

/** Reads the reservation that {@link toMessage} has converted. */
function readReservation({ reservation }: LeaseMessage): Reservation {
  const { admitted, ...amounts } = reservation;
  return { ...amounts, firstLeaseSubject: admitted };
}

const toReply = (statuses: readonly LimitStatus[]): LimiterReply =>
  statuses.map(({ used, resetMs }) => ({ used, resetMs }));

interface OpenLease {
  readonly release: Release;
  readonly expiresAt: number;
}

/**
 * Returns whether a subject has counts to store. Open exchanges are not stored, because they are
 * renewed.
 */
const hasWindow = ({ limits }: LimitSubject): boolean =>
  WINDOWED_LIMITS.some((name) => limits[name] !== undefined);

/** Counts limits for many gateways. Each of them uses it through a `RemoteLimiter`. */
export class LimiterServer {
  readonly #limiter: MemoryLimiter;
  readonly #now: () => number;
  readonly #storage: CountStorage | undefined;
  /** Leases by id. Each renewal moves its lease to the end, so that they expire in this order. */
  readonly #leases = new Map<string, OpenLease>();

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
  handle(message: LimiterMessage): LimiterReply {
    const { subjects } = message;
    this.#expire();
    for (const subject of subjects) this.#load(subject);
    switch (message.type) {
      case "status":
        return toReply(this.#limiter.statuses(subjects));
      case "acquire":
        return this.#acquire(message);
      case "renew":
        this.#keep(message.id, this.#findOrCountAgain(message));
        return [];
      case "release":
        this.#findOrCountAgain(message)(message.used, message.isUndone);
        this.#leases.delete(message.id);
        this.#store(subjects);
        return [];
    }
  }

  #acquire(message: LeaseMessage): LimiterReply {
    const { id, subjects } = message;
    const reservation = readReservation(message);
    const before = this.#limiter.statuses(subjects);
    if (findRefusing(before, reservation).length === 0) {
      const release = this.#limiter.count(subjects, reservation);
      if (countsAtEnd(subjects)) this.#keep(id, release);
      else release(NO_AMOUNTS); // only requests are limited: nothing is settled later
      this.#store(subjects);
    }
    return toReply(before);
  }

  /**
   * Returns the function that releases an exchange. If the exchange is not known here any more, it
   * is counted again.
   */
  #findOrCountAgain(message: OpenLeaseMessage): Release {
    const lease = this.#leases.get(message.id);
    if (lease !== undefined) return lease.release;
    return this.#limiter.countAgain(message.subjects, readReservation(message), message.ageMs);
  }

  #keep(id: string, release: Release): void {
    this.#leases.delete(id);
    this.#leases.set(id, { release, expiresAt: this.#now() + LEASE_MS.server });
  }

  #expire(): void {
    for (const [id, { release, expiresAt }] of this.#leases) {
      if (expiresAt > this.#now()) return;
      this.#leases.delete(id);
      release();
    }
  }

  /** Loads the stored counts of a subject, unless it has counts already. */
  #load(subject: LimitSubject): void {
    if (!hasWindow(subject) || this.#limiter.counts(subject.name) !== undefined) return;
    const stored = this.#storage?.get(subject.name);
    if (stored !== undefined) this.#limiter.restoreCounts(subject.name, stored);
  }

  #store(subjects: readonly LimitSubject[]): void {
    for (const subject of subjects) {
      const counts = hasWindow(subject) ? this.#limiter.counts(subject.name) : undefined;
      if (counts !== undefined) this.#storage?.put(subject.name, counts);
    }
  }
}
