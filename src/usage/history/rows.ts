/**
 * The rows of the history: calls by key, team, provider and end, minute by minute. Minutes are kept
 * for a day, hours for a month, so that "since when" has an answer. Costs are by the prices at the
 * time of the call; usage, which is priced late, is the account.
 *
 * @module
 */
import type { Concern } from "../../errors/outcomes.ts";

/**
 * Upper bounds of the durations that are counted together, milliseconds; one more count has the
 * longer ones.
 */
export const HISTORY_DURATION_BOUNDS: readonly number[] = Array.from(
  { length: 14 },
  (_, doublings) => 12.5 * 2 ** doublings,
);

/** Names of the sums of a row, in stored order. A count for each bound of durations follows. */
export const HISTORY_SUMS = [
  "calls",
  /** Calls that were sent to the provider. Only these have durations. */
  "forwarded",
  "durationMs",
  /** Calls whose answer began, and the sum of the times until then. */
  "answered",
  "firstByteMs",
  "tokens",
  "outputTokens",
  /** In 10^-9 of the currency. */
  "cost",
] as const;
/** Name of one of the sums. */
export type HistorySum = typeof HISTORY_SUMS[number];

/** Index of the first count of durations. */
export const FIRST_DURATION: number = HISTORY_SUMS.length;
/** Number of stored sums. */
export const SUMS: number = FIRST_DURATION + HISTORY_DURATION_BOUNDS.length + 1;

/** Returns one of the sums. */
export function sumIn(sums: readonly number[], name: HistorySum): number {
  return sums[HISTORY_SUMS.indexOf(name)] ?? 0;
}

/** The names that identify a row. */
export interface HistoryNames {
  /** Id of the key; empty for calls without a known key. */
  readonly key: string;
  /** Team at the time of the call; empty for none. */
  readonly team: string;
  /** Name of the provider; empty for calls without one. */
  readonly provider: string;
  /** End of the calls: `ok`, an error code, or `upstream_` and a status. */
  readonly end: string;
  /** The party that must act on this end. */
  readonly concern: Concern;
}

/** The calls of one minute or hour. */
export interface HistoryRow extends HistoryNames {
  /** Start of the minute or hour, milliseconds since 1970. */
  readonly at: number;
  /** In the order of {@link HISTORY_SUMS}, then the durations. Zeros at the end can be missing. */
  readonly sums: readonly number[];
}

/** The period of a row. */
export type HistoryStep = "minute" | "hour";
/** Length of each step. Milliseconds. */
export const HISTORY_STEP_MS: Readonly<Record<HistoryStep, number>> = {
  minute: 60_000,
  hour: 3_600_000,
};
/** Time for which each step is kept. Milliseconds. */
export const KEPT_MS: Readonly<Record<HistoryStep, number>> = {
  minute: 24 * 3_600_000,
  hour: 30 * 24 * 3_600_000,
};
/** Name for keys that are counted together, because there are too many to count each. */
export const OTHER_KEYS = "(other)";

/** A range of rows to read. */
export interface HistoryRange {
  readonly step: HistoryStep;
  /** The first minute or hour, milliseconds since 1970. */
  readonly from: number;
  /** The first minute or hour after the range, milliseconds since 1970. */
  readonly to: number;
}

/** Rows to add. The number lets a store recognize a batch that it has already received. */
export interface HistoryBatch {
  /** Number of the batch, from 1 on, without gaps. */
  readonly number: number;
  /** Rows of minutes. */
  readonly rows: readonly HistoryRow[];
}

/**
 * Port: storage of the history.
 *
 * @example Keep it in an array
 * ```ts
 * import type { HistoryRow, HistoryStore } from "./src/usage/history/rows.ts";
 *
 * class ArrayHistory implements HistoryStore {
 *   readonly rows: HistoryRow[] = [];
 *
 *   async add({ rows }: { rows: readonly HistoryRow[] }) {
 *     this.rows.push(...rows);
 *   }
 *   async *read({ from, to }: { from: number; to: number }) {
 *     yield this.rows.filter(({ at }) => at >= from && at < to);
 *   }
 *   async close() {}
 * }
 * ```
 */
export interface HistoryStore {
  /** Interval at which counts are added, milliseconds. Default: ten seconds. */
  readonly flushMs?: number;
  /**
   * Adds a batch.
   *
   * @throws If it was not added, or if that is unknown. It is sent again
   */
  add(batch: HistoryBatch): Promise<void>;
  /**
   * @returns The rows, in parts. Several rows can have the same names and time
   * @throws {UsageUnavailable} If they can't be read
   */
  read(range: HistoryRange): AsyncIterable<readonly HistoryRow[]>;
  /** Writes all unwritten rows. */
  close(): Promise<void>;
}

/** Returns the names of a row as a text that is the same for the same names. */
export function writeNames({ key, team, provider, end, concern }: HistoryNames): string {
  return JSON.stringify([key, team, provider, end, concern]);
}

const CONCERNS: readonly unknown[] = ["nobody", "caller", "operator"] satisfies Concern[];

/** Reads names; `undefined` for a text in another version's form. */
export function readNames(names: unknown): HistoryNames | undefined {
  if (!Array.isArray(names)) return undefined;
  const [key, team, provider, end, concern]: unknown[] = names;
  const areTexts = [key, team, provider, end].every((name) => typeof name === "string");
  if (!areTexts || !CONCERNS.includes(concern)) return undefined;
  return { key, team, provider, end, concern } as HistoryNames;
}
