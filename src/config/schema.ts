/**
 * The forms that settings share: durations and sizes as they are written, and what is said of one that is none.
 *
 * @module
 */
import * as v from "valibot";
import { parseDuration, parseSize } from "./units.ts";

/**
 * A setting and a word about it, for editors (`gateway.schema.json`) and for `docs/configuration.md`.
 *
 * @param schema Its form
 * @param text What it does, without a full stop
 */
export function about<Schema extends v.GenericSchema>(
  schema: Schema,
  text: string,
): v.SchemaWithPipe<readonly [Schema, v.DescriptionAction<v.InferOutput<Schema>, string>]> {
  return v.pipe(schema, v.description(text));
}

/** What is said of a duration that is none. */
export const durationForm: string = 'expected a duration with its unit, such as "5s", "2m" or "500ms"';
/** From nothing to a day. */
export const anyDuration: v.GenericSchema<string, number> = v.pipe(
  v.string(durationForm),
  v.transform(parseDuration),
  v.number(durationForm),
  v.maxValue(24 * 3_600_000, "expected at most 24h"),
);
/** Above zero. @param fallback Where nothing is set */
export const duration = (fallback: string): v.OptionalSchema<v.GenericSchema<string, number>, string> =>
  v.optional(v.pipe(anyDuration, v.minValue(1, "expected a duration above zero")), fallback);

const sizeForm = 'expected a size with its unit, such as "32MB"';
/** Above zero, at most 1GB. @param fallback Where nothing is set */
export const size = (fallback: string): v.OptionalSchema<v.GenericSchema<string, number>, string> =>
  v.optional(
    v.pipe(
      v.string(sizeForm),
      v.transform(parseSize),
      v.number(sizeForm),
      v.minValue(1, "expected a size above zero"),
      v.maxValue(1024 ** 3, "expected at most 1GB"),
    ),
    fallback,
  );

/** A text with something in it. */
export const nonEmpty: v.GenericSchema<string> = v.pipe(
  v.string("expected a string"),
  v.nonEmpty("expected a non-empty string"),
);
