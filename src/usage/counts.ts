/**
 * The counts of usage, and the forms in which the meter passes them to a store and to reports.
 *
 * Only tokens are stored, never money. Each report computes their cost with the prices of its time.
 *
 * @module
 */

/**
 * Names of the counts that every row has. The usage file and Redis store them in this order, and
 * {@link CLASS_COUNTS} after them.
 */
export const USAGE_COUNTS = [
  /** Calls that were sent to the provider, of operations that cost tokens. */
  "requests",
  /**
   * Calls among them that broke off after the provider had stated tokens. The stated tokens are
   * counted, and can be incomplete.
   */
  "partial",
  /**
   * Calls among them whose tokens were neither stated nor estimated. They can have cost something.
   */
  "unmetered",
  /** Calls that the provider refused, or that never reached it. */
  "failed",
  /** Tokens of prompts, including cached ones. */
  "input",
  "cached",
  /** Tokens of answers, including reasoning. */
  "output",
  "reasoning",
  /** Tokens that were stated only as a sum, neither as input nor as output. */
  "other",
  /** Calls whose tokens the gateway estimated, because the provider stated none. */
  "estimated",
  /** Tokens of those calls. They are included in the input and the output. */
  "estimatedInput",
  "estimatedOutput",
] as const;
/** Name of one of the counts. */
export type UsageCount = typeof USAGE_COUNTS[number];
/** Counts by name; whole numbers. */
export type UsageCounts = Record<UsageCount, number>;

/**
 * Names of further counts, which are stored after the others. They divide the input and the output
 * by billing class; `classes.ts` computes the classes. Most rows have few of them. A later version
 * must add counts at the end only, so that each version can read the data of the others.
 */
export const CLASS_COUNTS = [
  /** Tokens of the input that were written to the provider's cache, whatever the time. */
  "written",
  /** Those of them that were written for the cache's longer time. */
  "writtenLong",
  "webSearches",
  /** The cost that providers stated, in 10^-10 of the currency. */
  "statedCost",
  /** Tokens of the input that are not text, and neither read from a cache nor written to one. */
  "inputImage",
  "inputAudio",
  "inputVideo",
  /** Tokens of cached input that are not text. */
  "cachedAudio",
  "cachedImage",
  /** Tokens of the output that are not text. */
  "outputImage",
  "outputAudio",
  "outputVideo",
  "citation",
  /** Amounts that are not tokens. */
  "fileSearches",
  "codeSessions",
  "searchUnits",
  "pages",
  "images",
  "characters",
  "audioMs",
  "videoMs",
  "sessionMs",
] as const;
/** Name of one of the further counts. */
export type ClassCount = typeof CLASS_COUNTS[number];

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

/** The names that identify a row of usage. */
export interface UsageNames {
  /** Id of the gateway key. */
  readonly key: string;
  readonly provider: string;
  readonly model: string;
  /** Name of the operation. */
  readonly operation: string;
  /**
   * Team and plan in the claims of an identity token. Not set for keys, whose team is looked up.
   */
  readonly team?: string | undefined;
  readonly plan?: string | undefined;
  /** The tariff of its calls, as `tariff.ts` writes it. Not set for the standard tariff. */
  readonly tariff?: string | undefined;
  /** The attribution of its calls, as `attributed.ts` writes it. Not set for calls without one. */
  readonly attribution?: string | undefined;
  /** Set for calls with a provider key that the gateway holds. See {@link payerOf}. */
  readonly payer?: "gateway" | undefined;
}

/** Owners of the provider key of a call. */
export const PAYERS = ["gateway", "caller"] as const;
/** Owner of the provider key of a call. */
export type Payer = typeof PAYERS[number];

/** Returns the payer of a row: the caller, unless the gateway is named. */
export function payerOf({ payer }: Pick<UsageNames, "payer">): Payer {
  return payer ?? "caller";
}

/** The operation of rows without one: at that time it was the only counted operation. */
export const UNNAMED_OPERATION = "chat.completions";

/** The usage of one hour or day with the same names. */
export interface UsageRow extends UsageNames {
  /** Start of the hour or day, milliseconds since 1970. */
  readonly at: number;
  readonly counts: Readonly<UsageCounts>;
  /**
   * Counts in the order of {@link CLASS_COUNTS}, without zeros at the end. Counts that a later
   * version has added follow. These are stored, but not reported.
   */
  readonly more?: readonly number[] | undefined;
}

/** Name for models or keys that are counted together, because there are too many to count each. */
export const OTHER_NAME = "(other)";
/**
 * Maximum number of models of a key that are counted by name in an hour or day, apart from models
 * with a price. A model counts once per operation.
 */
export const MAX_MODELS = 50;

/** An hour. Milliseconds. */
export const HOUR_MS = 3_600_000;
/** A day. Milliseconds. */
export const DAY_MS = 86_400_000;
/**
 * Number of rows per turn of the process, at most 25 µs each on a slow machine: streams must not
 * wait for more than 5 ms. A store yields at most this number at once.
 */
export const ROWS_A_TURN = 200;
/** Maximum number of rows in a batch. A store needs less work for few large batches. */
export const ROWS_A_BATCH = 500;

/** Ends a turn of long work. Resolves after other work of the process has run. */
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
  /** Id of the only key to read. A store can still yield rows of other keys. */
  readonly key?: string | undefined;
}

/** Rows to add. The number lets a store recognize a batch that it has already received. */
export interface UsageBatch {
  /** Number of the batch, from 1 on, without gaps. */
  readonly number: number;
  /** Rows of hours, at most {@link ROWS_A_BATCH}. */
  readonly rows: readonly UsageRow[];
}

/**
 * Port: storage of usage.
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
  /** Storage engine. `memory` does not outlive the process. */
  readonly backend: "memory" | "file" | "redis";
  /**
   * Adds a batch exactly once, even if it is sent several times.
   *
   * @param batch The batch. It stays the same until this resolves
   * @throws If it was not added, or if that is unknown
   */
  add(batch: UsageBatch): Promise<void>;
  /**
   * @param range The range of the rows
   * @returns The rows, at most {@link ROWS_A_TURN} at a time. Several rows can have the same names
   * and time
   * @throws {UsageUnavailable} If they can't be read
   */
  read(range: UsageRange): AsyncIterable<readonly UsageRow[]>;
  /** Writes all unwritten usage. */
  close(): Promise<void>;
}

/** Usage can't be read. Its message is for the operator. */
export class UsageUnavailable extends Error {
  override readonly name = "UsageUnavailable";
}

/**
 * Reads a list of counts, in the order of {@link USAGE_COUNTS}, then of further counts. Zeros at
 * its end can be missing.
 */
export function readCounts(list: readonly number[]): Pick<UsageRow, "counts" | "more"> {
  const counts = noCounts();
  for (const [index, name] of USAGE_COUNTS.entries()) counts[name] = list[index] ?? 0;
  return {
    counts,
    more: list.length > USAGE_COUNTS.length ? list.slice(USAGE_COUNTS.length) : undefined,
  };
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

/** Adds lists of further counts. The sum has the length of the longer one. */
export function addMore(
  sums: readonly number[] | undefined,
  more: readonly number[] | undefined,
): readonly number[] | undefined {
  if (sums === undefined || more === undefined) return sums ?? more;
  const length = Math.max(sums.length, more.length);
  return Array.from(
    { length },
    (_, index) => Math.min((sums[index] ?? 0) + (more[index] ?? 0), Number.MAX_SAFE_INTEGER),
  );
}
