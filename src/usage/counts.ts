/**
 * The counts of usage, and the forms in which they pass from the meter to a store and to reports.
 *
 * Tokens are kept, never money: their cost is computed for each report, by the prices of that time.
 *
 * @module
 */

/** Names of the counts of each key, provider and model. Lines of the usage file hold the counts in this order. */
export const USAGE_COUNTS = [
  /** Calls that were sent to the provider, of operations that cost tokens. */
  "requests",
  /** Those of them that broke off after the provider had stated tokens: what it stated is counted, and may be a part. */
  "partial",
  /** Those whose tokens nobody stated. They may have cost something. */
  "unmetered",
  /** Those that the provider refused, or that never reached it. */
  "failed",
  /** Tokens of prompts, the cached ones included. */
  "input",
  "cached",
  /** Tokens of answers, those of reasoning included. */
  "output",
  "reasoning",
  /** Tokens that were stated in sum only, as neither input nor output. */
  "other",
] as const;
/** Name of one of the counts. */
export type UsageCount = typeof USAGE_COUNTS[number];
/** Counts by name; whole numbers. */
export type UsageCounts = Record<UsageCount, number>;

/** Returns counts of zero. */
export function noCounts(): UsageCounts {
  return Object.fromEntries(USAGE_COUNTS.map((name) => [name, 0])) as UsageCounts; // its entries are those of USAGE_COUNTS
}

/** Names by which usage is told apart. */
export interface UsageNames {
  /** Id of the gateway key. */
  readonly key: string;
  readonly provider: string;
  readonly model: string;
  /** Name of the operation. */
  readonly operation: string;
}

/** The only operation that was counted while rows named none. */
export const UNNAMED_OPERATION = "chat.completions";

/** The usage of one key, provider, model and operation in one hour or day. */
export interface UsageRow extends UsageNames {
  /** Start of the hour or day, milliseconds since 1970. */
  readonly at: number;
  readonly counts: Readonly<UsageCounts>;
}

/** Name under which models or keys are counted together, once there are too many to count each. */
export const OTHER = "(other)";
/**
 * Maximum number of models of a key that are counted by name in an hour or day, beside those that have a price. A model
 * counts once for each operation.
 */
export const MAX_MODELS = 50;

/** An hour. Milliseconds. */
export const HOUR_MS = 3_600_000;
/** A day. Milliseconds. */
export const DAY_MS = 86_400_000;
/** Time for which hours are kept: a week, and a day to look back at it. Milliseconds. */
export const HOURS_KEPT_MS: number = 8 * DAY_MS;
/** Time for which days are kept: a year, and a month to bill it. Milliseconds. */
export const DAYS_KEPT_MS: number = 400 * DAY_MS;

/** The period of a row. */
export type UsageStep = "hour" | "day";
/** Length of each step. Milliseconds. */
export const STEP_MS: Readonly<Record<UsageStep, number>> = { hour: HOUR_MS, day: DAY_MS };

/** A range of rows to read. */
export interface UsageRange {
  readonly step: UsageStep;
  /** The first hour or day, milliseconds since 1970. */
  readonly from: number;
  /** The first hour or day after the range, milliseconds since 1970. */
  readonly to: number;
}

/** Rows to add, with a number by which a store recognizes a batch that it was given before. */
export interface UsageBatch {
  /** Number of the batch, from 1 on, without gaps. */
  readonly number: number;
  /** Rows of hours. */
  readonly rows: readonly UsageRow[];
}

/**
 * Port: where usage is kept.
 *
 * @example Keep usage in an array
 * ```ts
 * import type { UsageRow, UsageStore } from "./src/usage/counts.ts";
 *
 * class ArrayUsage implements UsageStore {
 *   readonly backend = "memory";
 *   readonly rows: UsageRow[] = [];
 *   #last = 0;
 *
 *   async add({ number, rows }: { number: number; rows: readonly UsageRow[] }) {
 *     if (number > this.#last) this.rows.push(...rows);
 *     this.#last = number;
 *   }
 *   async *read({ from, to }: { from: number; to: number }) {
 *     yield this.rows.filter(({ at }) => at >= from && at < to);
 *   }
 *   async close() {}
 * }
 * ```
 */
export interface UsageStore {
  /** Engine that holds the data; `memory` does not outlive the process. */
  readonly backend: "memory" | "file" | "redis";
  /**
   * Adds a batch: only once, however often it is tried.
   *
   * @param batch The batch, which stays the same one until this resolves
   * @throws When it was not added, or when that is unknown
   */
  add(batch: UsageBatch): Promise<void>;
  /**
   * @param range The range of the rows
   * @returns The rows, some at a time; the same names can have several of the same hour or day
   * @throws {UsageUnavailable} When they can't be read
   */
  read(range: UsageRange): AsyncIterable<readonly UsageRow[]>;
  /** Writes what is left to write. */
  close(): Promise<void>;
}

/** Usage can't be read. Its message is for the operator. */
export class UsageUnavailable extends Error {
  override readonly name = "UsageUnavailable";
}

/**
 * Adds counts to sums. A sum stops at `Number.MAX_SAFE_INTEGER`.
 *
 * @param sums The sums, changed in place
 * @param counts The counts
 */
export function addCounts(sums: UsageCounts, counts: Readonly<UsageCounts>): void {
  for (const name of USAGE_COUNTS) sums[name] = Math.min(sums[name] + counts[name], Number.MAX_SAFE_INTEGER);
}
