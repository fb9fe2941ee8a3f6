/**
 * Limits that are counted by a {@link LimiterServer} elsewhere, which receives messages.
 *
 * While it cannot be reached, each gateway counts alone. The use of an exchange is sent once. If
 * the shared limiter cannot be reached at that moment, the reservation stays charged.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import {
  isHeld,
  type Lease,
  LEASE_MS,
  type Limiter,
  limitsOf,
  type LimitSubject,
  NO_RESERVATION,
  type Reservation,
  type Standing,
} from "./limiter.ts";
import { MemoryLimiter } from "./memory_limiter.ts";
import { countsAtEnd, type LimiterAnswer, type LimiterMessage } from "./limiter_server.ts";
import { enforce, type Terms, toLease } from "./verdict.ts";

/**
 * Sends a message to the limiter that counts its subjects, always the same limiter for the same
 * subjects. Rejects if the limiter cannot be reached in time: with a {@link GatewayError} to refuse
 * the exchange, with any other error to count alone.
 */
export type SendToLimiter = (message: LimiterMessage) => Promise<LimiterAnswer>;

/** Interval at which an exchange renews its lease. Milliseconds. */
const RENEW_MS = LEASE_MS.shared / 3;

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
    const held = { id: `${this.#id}-${++this.#acquired}`, subjects, reservation };
    let standings: Standing[];
    try {
      standings = toStandings(subjects, await this.#send({ type: "acquire", ...held }));
    } catch (error) {
      if (GatewayError.is(error)) throw error;
      // The message can have arrived nevertheless. Its lease is then renewed and released like any
      // other. If it did not arrive, nothing is reserved there, and the whole use of the exchange
      // is charged at its end.
      const terms = enforce(this.#local.standings(subjects), reservation);
      const unreserved = { ...reservation, ...NO_RESERVATION };
      return this.#hold(
        { ...held, reservation: unreserved },
        terms,
        this.#local.admit(subjects, reservation),
      );
    }
    return this.#hold(held, enforce(standings, reservation), () => {});
  }

  async status(subject: LimitSubject): Promise<Standing[]> {
    try {
      return toStandings([subject], await this.#send({ type: "status", subjects: [subject] }));
    } catch {
      return await this.#local.status(subject);
    }
  }

  /** Renews a lease until it is released, and sends its end to the shared limiter. */
  #hold(
    held: {
      readonly id: string;
      readonly subjects: readonly LimitSubject[];
      readonly reservation: Reservation;
    },
    terms: Terms,
    release: Lease["release"],
  ): Lease {
    const tell = (message: LimiterMessage) => void this.#send(message).catch(() => {});
    const heldAt = this.#clock.monotonic();
    const ageMs = () => this.#clock.monotonic() - heldAt;
    let cancel = (): void => {};
    const renewLater = () => {
      cancel = this.#clock.timer(RENEW_MS, () => {
        tell({ type: "renew", ...held, ageMs: ageMs() });
        renewLater();
      });
    };
    const takesPlace = (subject: LimitSubject) =>
      subject.limits.concurrency !== undefined && !isHeld(subject, held.reservation);
    if (held.subjects.some(takesPlace)) renewLater();
    let isOpen = true;
    return toLease(terms, (used, isUndone = false) => {
      if (!isOpen) return;
      isOpen = false;
      cancel();
      release(used, isUndone);
      const isOwed = isUndone || countsAtEnd(held.subjects);
      if (isOwed) tell({ type: "release", ...held, ageMs: ageMs(), used, isUndone });
    });
  }
}

/**
 * Reads the answer of the shared limiter. @throws {Error} If it is not about all limits of these
 * subjects
 */
function toStandings(subjects: readonly LimitSubject[], answer: LimiterAnswer): Standing[] {
  const limits = subjects.flatMap((subject) =>
    limitsOf(subject).map(([name, limit]) => ({ subject, name, limit }))
  );
  return limits.map((limit, index) => {
    const state = answer[index];
    if (state === undefined) {
      throw new Error("Cannot count: the shared limiter does not know a limit");
    }
    return { ...limit, ...state };
  });
}
