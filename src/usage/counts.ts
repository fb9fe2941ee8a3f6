/**
 * What is counted of usage, and the forms in which it goes from who counts to who keeps it and who asks.
 *
 * Tokens are kept, never money: what they cost is worked out when somebody asks, by the prices of that time.
 *
 * @module
 */

/** What is counted of each key, provider and model, in the order in which {@link UsageRow.counts} holds it. */
export const USAGE_COUNTS = [
  /** Chat completions that were sent to the provider. */
  "requests",
  /** Those of them that broke off after the provider had stated tokens: what it stated is counted, and may be a part. */
  "partial",
  /** Those whose tokens nobody stated. They may have cost something. */
  "unstated",
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
/** One of the things that are counted. */
export type UsageCount = typeof USAGE_COUNTS[number];

/** The usage of one key, provider and model in one hour or day. */
export interface UsageRow {
  /** Where the hour or day begins, milliseconds since 1970. */
  readonly at: number;
  /** Id of the gateway key. */
  readonly key: string;
  readonly provider: string;
  readonly model: string;
  /** In the order of {@link USAGE_COUNTS}; whole numbers. */
  readonly counts: readonly number[];
}

/** The name of what is counted together, once there are too many models or keys to count each. */
export const OTHER = "(other)";
/** So many models of a key have a name of their own in an hour or day, beside those that have a price. */
export const MAX_MODELS = 50;

/** Milliseconds. */
export const HOUR_MS = 3_600_000;
/** Milliseconds. */
export const DAY_MS = 86_400_000;
/** For how long hours are kept: a week, and a day to look back at it. Milliseconds. */
export const HOURS_KEPT_MS: number = 8 * DAY_MS;
/** For how long days are kept: a year, and a month to bill it. Milliseconds. */
export const DAYS_KEPT_MS: number = 400 * DAY_MS;

/** The length of what rows are counted by. */
export type UsageStep = "hour" | "day";
/** Milliseconds of each step. */
export const STEP_MS: Readonly<Record<UsageStep, number>> = { hour: HOUR_MS, day: DAY_MS };

/** Which rows are asked for. */
export interface UsageRange {
  readonly step: UsageStep;
  /** The first hour or day, milliseconds since 1970. */
  readonly from: number;
  /** The first that is not asked for any more. */
  readonly to: number;
}

/** Some rows, and a number by which who keeps them tells that they are the same as those of an earlier try. */
export interface UsageBatch {
  /** From 1 on, without gaps. */
  readonly number: number;
  /** Of hours. */
  readonly rows: readonly UsageRow[];
}

/** Port: where usage is kept. */
export interface UsageStore {
  /** Whether it outlives the process, and where. */
  readonly place: "memory" | "file" | "redis";
  /**
   * Adds to what is kept: once, however often it is tried.
   *
   * @param batch The same one until this resolves
   * @throws When it was not added, or when nobody knows
   */
  add(batch: UsageBatch): Promise<void>;
  /**
   * @param range Which rows
   * @returns The rows, some at a time; one key, provider and model can have several of the same hour or day
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
 * Adds counts to others. What grows beyond what is exact stays at its end.
 *
 * @param sums Becomes the sums
 * @param counts In the same order
 */
export function addCounts(sums: number[], counts: readonly number[]): void {
  for (let index = 0; index < USAGE_COUNTS.length; index++) {
    sums[index] = Math.min((sums[index] ?? 0) + (counts[index] ?? 0), Number.MAX_SAFE_INTEGER);
  }
}
