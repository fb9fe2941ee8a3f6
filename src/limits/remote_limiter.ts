/**
 * Limits that are counted by a {@link LimiterServer} elsewhere, which receives messages.
 *
 * While it cannot be reached, each gateway counts locally. The use of an exchange is sent once. If
 * the shared limiter cannot be reached at that moment, the reservation stays charged.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import {
  type Correction,
  countsAtEnd,
  type Lease,
  LEASE_MS,
  type Limiter,
  limitsOf,
  type LimitStatus,
  type LimitSubject,
  needsSlot,
  NO_RESERVATION,
  type Reservation,
  toChargedReservation,
} from "./limiter.ts";
import { MemoryLimiter } from "./memory_limiter.ts";
import {
  type LeaseRequest,
  type LimiterMessage,
  type LimiterReply,
  toMessage,
} from "./limiter_server.ts";
import { enforce, type Terms, toLease } from "./verdict.ts";

/**
 * Sends a message to the limiter that counts its subjects, always the same limiter for the same
 * subjects. Rejects if the limiter cannot be reached in time: with a {@link GatewayError} to refuse
 * the exchange, with any other error to count locally.
 */
export type SendToLimiter = (message: LimiterMessage) => Promise<LimiterReply>;

/** Interval at which an exchange renews its lease. Milliseconds. */
const RENEW_MS = LEASE_MS.server / 3;

/** Limiter that counts in a {@link LimiterServer}. */
export class RemoteLimiter implements Limiter {
  readonly #send: SendToLimiter;
  readonly #clock: Clock;
  readonly #local: MemoryLimiter;
  readonly #id = crypto.randomUUID();
  #acquired = 0;

  constructor(send: SendToLimiter, clock: Clock) {
    this.#send = send;
    this.#clock = clock;
    this.#local = new MemoryLimiter(clock);
  }

  async acquire(subjects: readonly LimitSubject[], reservation: Reservation): Promise<Lease> {
    const lease = { id: `${this.#id}-${++this.#acquired}`, subjects, reservation };
    let statuses: LimitStatus[];
    try {
      statuses = toStatuses(subjects, await this.#send({ type: "acquire", ...toMessage(lease) }));
    } catch (error) {
      if (GatewayError.is(error)) throw error;
      // The message can have arrived nevertheless. Its lease is then renewed and released like any
      // other. If it did not arrive, nothing is reserved there, and the whole use of the exchange
      // is charged at its end.
      const terms = enforce(this.#local.statuses(subjects), reservation);
      const unreserved = { ...reservation, ...NO_RESERVATION };
      return this.#open(
        { ...lease, reservation: unreserved },
        terms,
        this.#local.count(subjects, reservation),
      );
    }
    return this.#open(lease, enforce(statuses, reservation), () => {});
  }

  async status(subject: LimitSubject): Promise<LimitStatus[]> {
    try {
      return toStatuses([subject], await this.#send({ type: "status", subjects: [subject] }));
    } catch {
      return await this.#local.status(subject);
    }
  }

  async correct(subjects: readonly LimitSubject[], correction: Correction): Promise<void> {
    const { charged, used, ageMs } = correction;
    if (!countsAtEnd(subjects)) return;
    const id = `${this.#id}-${++this.#acquired}`;
    const lease = { id, subjects, reservation: toChargedReservation(charged) };
    // The end of a lease that the shared limiter does not know: it counts the difference.
    await this.#send({ type: "release", ...toMessage(lease), ageMs, used });
  }

  /** Opens a lease: renews it until it is released, and sends its end to the shared limiter. */
  #open(lease: LeaseRequest, terms: Terms, release: Lease["release"]): Lease {
    const { subjects, reservation } = lease;
    const send = (message: LimiterMessage) => void this.#send(message).catch(() => {});
    const openedAt = this.#clock.monotonic();
    const toOpenMessage = () => {
      return { ...toMessage(lease), ageMs: this.#clock.monotonic() - openedAt };
    };
    let cancel = (): void => {};
    const renewLater = () => {
      cancel = this.#clock.timer(RENEW_MS, () => {
        send({ type: "renew", ...toOpenMessage() });
        renewLater();
      });
    };
    if (subjects.some((subject) => needsSlot(subject, reservation))) renewLater();
    let isOpen = true;
    return toLease(terms, (used, isUndone = false) => {
      if (!isOpen) return;
      isOpen = false;
      cancel();
      release(used, isUndone);
      if (!isUndone && !countsAtEnd(subjects)) return;
      send({ type: "release", ...toOpenMessage(), used, isUndone });
    });
  }
}

/**
 * Reads the reply of the shared limiter. @throws {Error} If it is not about all limits of these
 * subjects
 */
function toStatuses(subjects: readonly LimitSubject[], reply: LimiterReply): LimitStatus[] {
  const limits = subjects.flatMap((subject) =>
    limitsOf(subject).map(([name, limit]) => ({ subject, name, limit }))
  );
  return limits.map((limit, index) => {
    const status = reply[index];
    if (status === undefined) {
      throw new Error("Cannot count: the shared limiter does not know a limit");
    }
    return { ...limit, ...status };
  });
}
