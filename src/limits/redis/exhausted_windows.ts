/**
 * Windows of requests that are known to be exhausted. Until they end, requests are refused without
 * asking the store.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import {
  isCountedByFirstLease,
  type LimitStatus,
  type LimitSubject,
  NO_RESERVATION,
  type Reservation,
} from "../limiter.ts";
import type { SubjectVerdict } from "./acquire.ts";
import type { SubjectLayout } from "./subject_layout.ts";
import { enforce } from "../verdict.ts";

/** Maximum number of remembered subjects. Beyond it, the oldest is forgotten. */
const MAX_SUBJECTS = 10_000;
/**
 * Interval at which the store is asked for one exchange nevertheless, because a request can have
 * been returned, or the counts lost. Milliseconds.
 */
const RECHECK_MS = 1000;

interface Exhausted {
  readonly subject: LimitSubject;
  readonly statuses: readonly LimitStatus[];
  readonly knownAt: number;
  readonly until: number;
  recheckAt: number;
}

/** Memory of exhausted windows. */
export class ExhaustedWindows {
  readonly #clock: Clock;
  readonly #known = new Map<string, Exhausted>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Refuses an exchange if a window of one of its subjects is known to be exhausted.
   *
   * @param reservation Its reservation. A subject that the first lease counted is skipped
   * @throws {GatewayError} `rate_limit_exceeded`
   */
  refuseIfExhausted(subjects: readonly LimitSubject[], reservation: Reservation): void {
    if (this.#known.size === 0) return;
    for (const { name, limits } of subjects) {
      const known = this.#known.get(name);
      if (known === undefined || name === reservation.firstLeaseSubject) continue;
      const now = this.#clock.monotonic();
      if (now >= known.until || known.subject.limits !== limits) this.#known.delete(name);
      else if (now < known.recheckAt) this.#repeat(known, subjects, now, reservation);
      else known.recheckAt = now + RECHECK_MS;
    }
  }

  /**
   * Remembers the window of requests of a subject if it is exhausted and enforced.
   *
   * @param reservation Its reservation. If the first lease counted the request, this refusal returns
   * it, so the window is not remembered
   */
  remember(
    subject: LimitSubject,
    statuses: readonly LimitStatus[],
    reservation: Reservation,
  ): void {
    if (isCountedByFirstLease(subject, reservation)) return;
    const { name, limits } = subject;
    const requests = statuses.find((one) => one.subject === subject && one.name === "requests");
    if (requests === undefined || limits.mode === "observe") return;
    if (requests.used < requests.limit) return;
    const knownAt = this.#clock.monotonic();
    this.#known.delete(name);
    this.#known.set(name, {
      subject,
      statuses,
      knownAt,
      until: knownAt + requests.resetMs,
      recheckAt: knownAt + RECHECK_MS,
    });
    if (this.#known.size > MAX_SUBJECTS) {
      for (const oldest of this.#known.keys()) return void this.#known.delete(oldest);
    }
  }

  /**
   * Forgets a subject that has admitted an exchange and counted its request, because its window is
   * not exhausted any more.
   */
  forget(
    { isAdmitted }: SubjectVerdict,
    { subject }: SubjectLayout,
    reservation: Reservation,
  ): void {
    if (!isAdmitted || this.#known.size === 0) return;
    if (!isCountedByFirstLease(subject, reservation)) this.#known.delete(subject.name);
  }

  /** Repeats the refusal, if it was about the same subjects. */
  #repeat(
    { statuses, knownAt }: Exhausted,
    subjects: readonly LimitSubject[],
    now: number,
    { firstLeaseSubject, isFree }: Reservation,
  ): void {
    const passedMs = now - knownAt;
    const known: LimitStatus[] = [];
    for (const status of statuses) {
      const isAsked = subjects.some(({ name, limits }) => {
        return name === status.subject.name && limits === status.subject.limits;
      });
      if (isAsked) known.push({ ...status, resetMs: Math.max(1, status.resetMs - passedMs) });
    }
    enforce(known, { ...NO_RESERVATION, firstLeaseSubject, isFree });
  }
}
