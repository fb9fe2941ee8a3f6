/**
 * The query parameter `limit` of lists in the admin API.
 *
 * @module
 */
import * as v from "valibot";

/** Default number of items in a list. */
export const DEFAULT_LISTED = 100;

/** Creates the schema of the parameter. */
export function listLimit(max: number): v.GenericSchema<string | undefined, number> {
  const form = `expected a whole number from 1 to ${max}`;
  return v.optional(
    v.pipe(v.string(), v.regex(/^[1-9][0-9]*$/, form), v.transform(Number), v.maxValue(max, form)),
    String(DEFAULT_LISTED),
  );
}

/** Returns the meaning of the parameter, for the description of the API. */
export function listLimitMeans(max: number): string {
  return `How many at most, up to ${max}; ${DEFAULT_LISTED} if left out`;
}
