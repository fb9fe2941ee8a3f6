/**
 * A limiter that only reads: it reaches the same verdict as another limiter, and reserves nothing.
 *
 * @module
 */
import type { Lease, Limiter, LimitStatus, LimitSubject, Reservation } from "./limiter.ts";
import { enforce, toLease } from "./verdict.ts";

/** The request to a {@link DryLimiter} for one exchange, and the status that decided it. */
export interface AskedLimits {
  /** Status of all limits, without the exchange. */
  readonly statuses: readonly LimitStatus[];
  /** Amounts that would have been reserved. */
  readonly reservation: Reservation;
}

/** Decides from the status of another limiter. */
export class DryLimiter implements Limiter {
  readonly #status: Limiter["status"];
  /** `undefined` before the first request. */
  asked: AskedLimits | undefined;

  constructor(status: Limiter["status"]) {
    this.#status = status;
  }

  async acquire(subjects: readonly LimitSubject[], reservation: Reservation): Promise<Lease> {
    const statuses = (await Promise.all(subjects.map((subject) => this.#status(subject)))).flat();
    const names = new Set(subjects.map(({ name }) => name));
    const others = this.asked?.statuses.filter(({ subject }) => !names.has(subject.name)) ?? [];
    // A first lease has counted nothing, so a second lease also needs the request and the slot.
    this.asked = {
      statuses: [...others, ...statuses],
      reservation: { ...reservation, firstLeaseSubject: undefined },
    };
    return toLease(enforce(statuses, reservation), () => {});
  }

  status(subject: LimitSubject): Promise<LimitStatus[]> {
    return this.#status(subject);
  }
}
