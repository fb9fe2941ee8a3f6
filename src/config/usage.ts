/**
 * The setting for the retention of usage.
 *
 * @module
 */
import * as v from "valibot";
import { about, strictObject } from "./schema.ts";
import { parseDuration } from "./units.ts";

/** Times for which usage is kept. */
export interface UsageConfig {
  /** Time for which each hour is kept. Milliseconds. */
  readonly hoursMs: number;
  /** Time for which each day is kept. Milliseconds. */
  readonly daysMs: number;
}

/** The bounds of stored usage. */
export interface UsageBounds extends UsageConfig {
  /** Maximum number of rows with attribution of a key in an hour or day. Default: 1,000. */
  readonly maxAttributed?: number | undefined;
}

/** These times as written in the configuration. */
export interface UsageInput {
  /** Time for which each hour is kept, such as `8d`. */
  readonly hours?: string | undefined;
  /** Time for which each day is kept, such as `400d`. */
  readonly days?: string | undefined;
}

const form = 'expected a duration from "1d" to "4000d"';
const DAY_MS = 86_400_000;

const kept = (fallback: string) =>
  v.optional(
    v.pipe(
      v.string(form),
      v.transform(parseDuration),
      v.number(form),
      v.minValue(DAY_MS, form),
      v.maxValue(4000 * DAY_MS, form),
    ),
    fallback,
  );

/**
 * @internal The schema of these times: hours for a week and a day to look back at it, days for a
 * year and a month to bill it.
 */
export const UsageSchema: v.GenericSchema<UsageInput, UsageConfig> = v.pipe(
  strictObject({
    hours: about(kept("8d"), "How long usage is kept by the hour"),
    days: about(kept("400d"), "How long usage is kept by the day"),
  }, "expected an object"),
  v.forward(v.check(({ hours, days }) => hours <= days, "expected at most days"), ["hours"]),
  v.transform(({ hours, days }) => ({ hoursMs: hours, daysMs: days })),
);

/** The default times. */
export const DEFAULT_RETENTION: UsageConfig = v.parse(UsageSchema, {});
