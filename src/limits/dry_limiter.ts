/**
 * A limiter that only reads: it reaches the same verdict as another limiter, and reserves nothing.
 *
 * @module
 */
import type { Lease, Limiter, LimitSubject, Reservation, Standing } from "./limiter.ts";
import { enforce, toLease } from "./verdict.ts";

/** The request to a {@link DryLimiter} for one exchange, and the state that decided it. */
export interface AskedLimits {
  /** State of all limits, without the exchange. */
  readonly standings: readonly Standing[];
  /** Amounts that would have been reserved. */
  readonly reservation: Reservation;
}

/** Decides from the state of another limiter. */
export class DryLimiter implements Limiter {
  readonly #status: Limiter["status"];
  /** `undefined` before the first request. */
  asked: AskedLimits | undefined;

  constructor(status: Limiter["status"]) {
    this.#status = status;
  }

  async acquire(subjects: readonly LimitSubject[], reservation: Reservation): Promise<Lease> {
    const standings = (await Promise.all(subjects.map((subject) => this.#status(subject)))).flat();
    const names = new Set(subjects.map(({ name }) => name));
    const others = this.asked?.standings.filter(({ subject }) => !names.has(subject.name)) ?? [];
    // No earlier lease has reserved anything, so a second lease also needs the request and the
    // slot.
    this.asked = {
      standings: [...others, ...standings],
      reservation: { ...reservation, admitted: undefined },
    };
    return toLease(enforce(standings, reservation), () => {});
  }

  status(subject: LimitSubject): Promise<Standing[]> {
    return this.#status(subject);
  }
}
