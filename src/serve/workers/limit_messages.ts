/**
 * Messages about limits between a worker and its supervisor. A message contains the questions and
 * settlements of many exchanges. After its first use, a subject is referred to by a number.
 *
 * @module
 */
import type { Correction, LimitSubject } from "../../limits/limiter.ts";

/**
 * A question about the limits of some subjects. It can ask for a lease. Its fields are flat,
 * because nested objects in JSON are slower to read. Compared with tuples: +0.2 us CPU a call
 * (2026-11-24).
 */
export interface LimitQuestion {
  /** Number of the new lease. 0 only reads the status of the limits. */
  readonly lease: number;
  /** Numbers of the subjects. */
  readonly subjects: readonly number[];
  readonly expectedTokens: number;
  readonly expectedSpend: number;
  readonly mostTokens: number;
  readonly mostSpend: number;
  /** Name of the subject that the first lease of the exchange counts. */
  readonly firstLeaseSubject?: string | undefined;
  /** True for a call that costs nothing. */
  readonly isFree?: boolean | undefined;
}

/** An ended lease and its use. */
export interface LimitRelease {
  readonly lease: number;
  readonly tokens: number;
  readonly spend: number;
  /** Numbers of its subjects if no call was made. */
  readonly undone?: readonly number[] | undefined;
}

/** A change of the amounts that an exchange was charged at its end. */
export interface LimitCorrection extends Correction {
  /** Numbers of its subjects. */
  readonly subjects: readonly number[];
}

/** Questions and settlements of a worker. */
export interface LimitBatch {
  /** Subjects with their new numbers. */
  readonly subjects: readonly { readonly number: number; readonly subject: LimitSubject }[];
  /** Ended leases and their use. */
  readonly releases: readonly LimitRelease[];
  readonly corrections: readonly LimitCorrection[];
  readonly questions: readonly LimitQuestion[];
}

/**
 * Replies to the questions of one batch: the used amount and the time until the reset of each
 * limit, in the order of the questions, of their subjects and of `limitsOf`. They describe the
 * state before the exchange, so that the worker reaches the same verdict.
 */
export type LimitReplies = readonly number[];
