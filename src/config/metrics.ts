/**
 * The setting `metrics`: metrics in addition to the common ones.
 *
 * @module
 */
import * as v from "valibot";
import { about, strictObject } from "./schema.ts";

/** Metrics in addition to the common ones. */
export interface MetricsConfig {
  /** Maximum number of gateway keys with their own metrics; 0 for none. */
  readonly maxKeys: number;
}

/** These metrics as written in the configuration. */
export interface MetricsInput {
  /** True, or the number of gateway keys with their own metrics. */
  readonly byKey?: boolean | number | undefined;
}

/**
 * Number of keys for `true`. With ten series each, these are as many as all other series of a
 * gateway with a hundred models.
 */
const DEFAULT_MAX_KEYS = 1000;
/** The largest allowed number of keys. A scrape then has some megabytes. */
const MOST_KEYS = 100_000;

const form = `expected true, false or a number of keys from 1 to ${MOST_KEYS}`;

/** @internal The schema of these metrics. */
export const MetricsSchema: v.GenericSchema<MetricsInput, MetricsConfig> = v.pipe(
  strictObject({
    byKey: about(
      v.optional(
        v.union([
          v.boolean(),
          v.pipe(v.number(), v.integer(form), v.minValue(1, form), v.maxValue(MOST_KEYS, form)),
        ], form),
        false,
      ),
      `Metrics of each gateway key: \`true\` for at most ${DEFAULT_MAX_KEYS} keys, or this number of ` +
        "keys. Further keys count together as `(other)`",
    ),
  }, "expected an object"),
  v.transform(({ byKey }) => {
    if (typeof byKey === "number") return { maxKeys: byKey };
    return { maxKeys: byKey ? DEFAULT_MAX_KEYS : 0 };
  }),
);
