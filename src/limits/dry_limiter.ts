/**
 * A limiter that only looks: it reaches the verdict that another limiter would, and takes nothing.
 *
 * @module
 */
import type { Lease, Limiter, LimitSubject, Reservation, Standing } from "./limiter.ts";
import { enforce, toLease } from "./verdict.ts";

/**
 * The questions that a {@link DryLimiter} was asked about one exchange, and the state that decided
 * them.
 */
export interface AskedLimits {
  /** State of all limits, without the exchange. */
  readonly standings: readonly Standing[];
  /** Amounts that would have been reserved. */
  readonly reservation: Reservation;
}

/** Decides by the state of another limiter. */
export class DryLimiter implements Limiter {
  readonly #status: Limiter["status"];
  /** `undefined` before the first question. */
  asked: AskedLimits | undefined;

  constructor(status: Limiter["status"]) {
    this.#status = status;
  }

  async acquire(subjects: readonly LimitSubject[], reservation: Reservation): Promise<Lease> {
    const standings = (await Promise.all(subjects.map((subject) => this.#status(subject)))).flat();
    const names = new Set(subjects.map(({ name }) => name));
    const others = this.asked?.standings.filter(({ subject }) => !names.has(subject.name)) ?? [];
    // Nothing was taken before: also a second lease takes the request and the place.
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
