/**
 * Schemas that several settings share: durations, sizes and texts, with their error messages.
 *
 * @module
 */
import * as v from "valibot";
import { findNearest } from "./nearest.ts";
import { parseDuration, parseSize } from "./units.ts";

/** Error message for a setting that does not exist. */
const UNKNOWN = "unknown setting";

/**
 * Adds a description to the schema of a setting, for editors (`gateway.schema.json`) and for
 * `docs/configuration.md`.
 *
 * @param text The effect of the setting, without a full stop
 */
export function about<Schema extends v.GenericSchema>(
  schema: Schema,
  text: string,
): v.SchemaWithPipe<readonly [Schema, v.DescriptionAction<v.InferOutput<Schema>, string>]> {
  return v.pipe(schema, v.description(text));
}

/**
 * Builds the schema of an object without other entries. For an unknown entry the message suggests
 * the nearest known one.
 *
 * @param form Error message for a value that is not an object
 * @param hints What to do, by names of entries that people expect and that do not exist
 */
export function strictObject<const Entries extends v.ObjectEntries>(
  entries: Entries,
  form = "expected an object",
  hints: Readonly<Record<string, string>> = {},
): v.StrictObjectSchema<Entries, v.ErrorMessage<v.StrictObjectIssue>> {
  return v.strictObject(entries, ({ expected, input }) => {
    if (expected !== "never") return form;
    const typed = String(input);
    const hint = Object.hasOwn(hints, typed) ? hints[typed] : undefined;
    if (hint !== undefined) return `${UNKNOWN}. ${hint}`;
    const nearest = findNearest(typed, Object.keys(entries));
    return nearest === undefined ? UNKNOWN : `${UNKNOWN}. Did you mean ${nearest}?`;
  });
}

/** Error message for a text that is not a duration. */
export const durationForm: string =
  'expected a duration with its unit, such as "5s", "2m" or "500ms"';
/** A duration from zero to a day, as milliseconds. */
export const anyDuration: v.GenericSchema<string, number> = v.pipe(
  v.string(durationForm),
  v.transform(parseDuration),
  v.number(durationForm),
  v.maxValue(24 * 3_600_000, "expected at most 24h"),
);
/** A duration above zero, as milliseconds. */
export const duration = (
  fallback: string,
): v.OptionalSchema<v.GenericSchema<string, number>, string> =>
  v.optional(v.pipe(anyDuration, v.minValue(1, "expected a duration above zero")), fallback);

const sizeForm = 'expected a size with its unit, such as "32MB"';
/** A size above zero and at most 1GB, as bytes. */
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

/** A text that is not empty. */
export const nonEmpty: v.GenericSchema<string> = v.pipe(
  v.string("expected a string"),
  v.nonEmpty("expected a non-empty string"),
);
/** A name or a note of 1 to 256 characters. */
export const shortText: v.GenericSchema<string> = v.pipe(
  nonEmpty,
  v.maxLength(256, "expected at most 256 characters"),
);

/** Form of the secrets that operators choose: their own keys, and the admin token. */
export const SECRET: RegExp = /^[\x21-\x7e]{16,512}$/;
/** Start of a key of the gateway's form, with its id. Source of a regular expression. */
export const GATEWAY_KEY_START = "gk_([0-9A-Za-z]{12})_";
/** A key in plain text or a token: valid in a header, and long enough not to be guessed. */
export const secret: v.GenericSchema<string> = v.pipe(
  v.string("expected a string"),
  v.regex(SECRET, "expected 16 to 512 visible ASCII characters"),
);

/**
 * Builds the schema of a change: each entry can be `null`, which becomes `undefined` and so removes
 * the setting.
 *
 * @param entries Schemas of the settings, with the output type of `Patch`
 * @param form Error message for a value that is not an object
 */
export function patchOf<Patch>(
  entries: v.ObjectEntries,
  form: string,
): v.GenericSchema<unknown, Patch> {
  const nullish = Object.entries(entries).map(([name, entry]) => [name, v.nullish(entry)]);
  return v.pipe(
    strictObject(Object.fromEntries(nullish) as v.ObjectEntries, form),
    v.transform((given) =>
      Object.fromEntries(
        Object.entries(given).map(([name, value]) => [name, value ?? undefined]),
      ) as Patch
    ),
  );
}

/** The schema of each entry of `Value`. An optional entry has an optional schema. */
export type EntriesOf<Value> = {
  readonly [Name in keyof Value]-?: object extends Pick<Value, Name>
    ? v.GenericSchema<Value[Name] | undefined, unknown> & { readonly type: "optional" }
    : v.GenericSchema<Value[Name], unknown>;
};
