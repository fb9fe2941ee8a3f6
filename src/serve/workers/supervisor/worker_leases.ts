/**
 * Limits that the supervisor counts for its workers. Leases are not renewed and do not expire,
 * because the supervisor knows when a worker has ended.
 *
 * @module
 */
import {
  type Amounts,
  countsAtEnd,
  type LimitSubject,
  NO_AMOUNTS,
  NO_RESERVATION,
  type Reservation,
} from "../../../limits/limiter.ts";
import type { MemoryLimiter, Release } from "../../../limits/memory_limiter.ts";
import { findRefusing } from "../../../limits/verdict.ts";
import type { LimitBatch, LimitQuestion, LimitRelease, LimitReplies } from "../limit_messages.ts";

/** The leases of one worker. */
export class WorkerLeases {
  readonly #limiter: MemoryLimiter;
  readonly #subjects: LimitSubject[] = [];
  readonly #leases = new Map<number, Release>();

  constructor(limiter: MemoryLimiter) {
    this.#limiter = limiter;
  }

  /**
   * Handles a batch synchronously: no other message is handled between a decision and its count.
   */
  handle({ subjects, releases, corrections, questions }: LimitBatch): LimitReplies {
    for (const { number, subject } of subjects) this.#subjects[number] = subject;
    for (const release of releases) this.#settle(release);
    for (const { subjects, ...correction } of corrections) {
      this.#limiter.correct(this.#subjectsOf(subjects), correction);
    }
    const replies: number[] = [];
    for (const question of questions) this.#answer(question, replies);
    return replies;
  }

  /** Ends all leases, because the worker has ended. Their reservations stay charged. */
  releaseAll(): void {
    for (const lease of this.#leases.keys()) this.#release(lease);
  }

  #answer(question: LimitQuestion, replies: number[]): void {
    const subjects = this.#subjectsOf(question.subjects);
    const before = this.#limiter.statuses(subjects);
    for (const { used, resetMs } of before) replies.push(used, Math.ceil(resetMs));
    if (question.lease === 0) return;
    const reservation: Reservation = {
      expected: { tokens: question.expectedTokens, spend: question.expectedSpend },
      most: { tokens: question.mostTokens, spend: question.mostSpend },
      firstLeaseSubject: question.firstLeaseSubject,
      isFree: question.isFree,
    };
    if (findRefusing(before, reservation).length > 0) return;
    const release = this.#limiter.count(subjects, reservation);
    if (countsAtEnd(subjects)) this.#leases.set(question.lease, release);
    else release(NO_AMOUNTS); // only requests are limited: nothing is settled later
  }

  #subjectsOf(numbers: readonly number[]): LimitSubject[] {
    return numbers.map((number) => this.#subjects[number]).filter((subject) =>
      subject !== undefined
    );
  }

  #settle(release: LimitRelease): void {
    const { lease, tokens, spend, undone } = release;
    // A lease of only requests was released when it was acquired. It is counted again, so that its
    // requests can be returned.
    if (undone !== undefined && !this.#leases.has(lease)) {
      this.#leases.set(
        lease,
        this.#limiter.countAgain(this.#subjectsOf(undone), NO_RESERVATION, 0),
      );
    }
    this.#release(lease, { tokens, spend }, undone !== undefined);
  }

  #release(lease: number, used?: Amounts, isUndone?: boolean): void {
    this.#leases.get(lease)?.(used, isUndone);
    this.#leases.delete(lease);
  }
}
