/**
 * The counts of usage, and the forms in which they pass from the meter to a store and to reports.
 *
 * Tokens are kept, never money: their cost is computed for each report, by the prices of that time.
 *
 * @module
 */

/**
 * Names of the counts of each key, provider and model. The usage file and Redis hold the counts in
 * this order. A later version may add counts at the end and nowhere else, so that each version can
 * read what another one wrote.
 */
export const USAGE_COUNTS = [
  /** Calls that were sent to the provider, of operations that cost tokens. */
  "requests",
  /**
   * Those of them that broke off after the provider had stated tokens: what it stated is counted,
   * and may be a part.
   */
  "partial",
  /** Those whose tokens were neither stated nor estimated. They may have cost something. */
  "unmetered",
  /** Calls that the provider refused, or that never reached it. */
  "failed",
  /** Tokens of prompts, the cached ones included. */
  "input",
  "cached",
  /** Tokens of answers, those of reasoning included. */
  "output",
  "reasoning",
  /** Tokens that were stated in sum only, as neither input nor output. */
  "other",
  /** Calls whose tokens the gateway estimated, because the provider stated none. */
  "estimated",
  /** Tokens of those calls, which are part of the input and the output. */
  "estimatedInput",
  "estimatedOutput",
] as const;
/** Name of one of the counts. */
export type UsageCount = typeof USAGE_COUNTS[number];
/** Counts by name; whole numbers. */
export type UsageCounts = Record<UsageCount, number>;

/** Returns counts of zero. */
export function noCounts(): UsageCounts {
  return {
    requests: 0,
    partial: 0,
    unmetered: 0,
    failed: 0,
    input: 0,
    cached: 0,
    output: 0,
    reasoning: 0,
    other: 0,
    estimated: 0,
    estimatedInput: 0,
    estimatedOutput: 0,
  };
}

/** Names by which usage is told apart. */
export interface UsageNames {
  /** Id of the gateway key. */
  readonly key: string;
  readonly provider: string;
  readonly model: string;
  /** Name of the operation. */
  readonly operation: string;
  /**
   * Team and plan that the claims of an identity token named; left out for keys, whose team is
   * looked up.
   */
  readonly team?: string | undefined;
  readonly plan?: string | undefined;
}

/** The only operation that was counted while rows named none. */
export const UNNAMED_OPERATION = "chat.completions";

/** The usage of one key, provider, model and operation in one hour or day. */
export interface UsageRow extends UsageNames {
  /** Start of the hour or day, milliseconds since 1970. */
  readonly at: number;
  readonly counts: Readonly<UsageCounts>;
  /** Counts that a later version has added, in its order: kept, but in no report. */
  readonly later?: readonly number[] | undefined;
}

/** Name under which models or keys are counted together, once there are too many to count each. */
export const OTHER = "(other)";
/**
 * Maximum number of models of a key that are counted by name in an hour or day, apart from those
 * that have a price. A model counts once for each operation.
 */
export const MAX_MODELS = 50;

/** An hour. Milliseconds. */
export const HOUR_MS = 3_600_000;
/** A day. Milliseconds. */
export const DAY_MS = 86_400_000;
/**
 * Rows that are worked on in one turn of the process, at most 25 µs each on a slow machine: streams
 * must not wait for more than 5 ms. A store yields at most as many at once.
 */
export const ROWS_A_TURN = 200;
/** Rows of a batch at most: a store takes fewer larger ones with less work. */
export const ROWS_A_BATCH = 500;

/** Ends a turn of long work: resolves after other work of the process had its turn. */
export type Rest = () => Promise<void>;

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
  /** Id of the only key that is asked for. A store may yield rows of other keys nevertheless. */
  readonly key?: string | undefined;
}

/** Rows to add, with a number by which a store recognizes a batch that it was given before. */
export interface UsageBatch {
  /** Number of the batch, from 1 on, without gaps. */
  readonly number: number;
  /** Rows of hours, at most {@link ROWS_A_BATCH}. */
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
   * @returns The rows, at most {@link ROWS_A_TURN} at a time; the same names can have several of
   * the same hour or day
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
 */
export function addCounts(sums: UsageCounts, counts: Readonly<UsageCounts>): void {
  for (const name of USAGE_COUNTS) {
    sums[name] = Math.min(sums[name] + counts[name], Number.MAX_SAFE_INTEGER);
  }
}
