/**
 * Building blocks of the schemas of answers. Each schema is bound to the type of the answer. A
 * schema with a missing, misnamed or mistyped entry does not compile.
 *
 * @module
 */
import * as v from "valibot";
import type { EntriesOf } from "../../config/schema.ts";

/** A schema with its name in the API description. */
export interface Named<Input = unknown, Output = unknown> {
  readonly name: string;
  readonly schema: v.GenericSchema<Input, Output>;
}

/**
 * An object with these entries. Further entries are allowed. An answer is not transformed, so the
 * schema's output is its input.
 */
export function objectOf<Value>(entries: EntriesOf<Value>): v.GenericSchema<Value> {
  const schema: unknown = v.object(entries as unknown as v.ObjectEntries);
  return schema as v.GenericSchema<Value>;
}

/** Describes an object that has no further entries. */
export function closed<Value>(schema: v.GenericSchema<Value>): v.GenericSchema<Value> {
  return v.pipe(schema, v.metadata({ additionalProperties: false }));
}

/** An object whose entries are described elsewhere. */
export function anyObject<Value>(about: string): v.GenericSchema<Value> {
  const schema: unknown = v.pipe(v.looseObject({}), v.description(about));
  return schema as v.GenericSchema<Value>;
}

function described<Value>(
  schema: v.GenericSchema<Value>,
  about: string | undefined,
): v.GenericSchema<Value> {
  return about === undefined ? schema : v.pipe(schema, v.description(about));
}

/** A text. `Value` is set if only certain words are possible. */
export function text<Value extends string = string>(about?: string): v.GenericSchema<Value> {
  return described(v.string() as v.GenericSchema<string> as v.GenericSchema<Value>, about);
}

/** A date and time. */
export function time(about?: string): v.GenericSchema<string> {
  return described(v.pipe(v.string(), v.isoTimestamp()), about);
}

/** A whole number, zero or greater. */
export function count(about?: string): v.GenericSchema<number> {
  return described(v.pipe(v.number(), v.integer(), v.minValue(0)), about);
}

/** A number, zero or greater. */
export function amount(about?: string): v.GenericSchema<number> {
  return described(v.pipe(v.number(), v.minValue(0)), about);
}

/** True or false. */
export function flag(about?: string): v.GenericSchema<boolean> {
  return described(v.boolean(), about);
}

/** One of some words. */
export function oneOf<const Word extends string>(
  words: readonly Word[],
  about?: string,
): v.GenericSchema<Word> {
  return described(v.picklist(words), about);
}

/** A list. */
export function list<Item>(
  item: v.GenericSchema<Item>,
  about?: string,
): v.GenericSchema<readonly Item[]> {
  return described(v.array(item), about);
}

/** A value for each name. */
export function record<Value>(
  value: v.GenericSchema<Value>,
  about?: string,
): v.GenericSchema<Readonly<Record<string, Value>>> {
  return described(v.record(v.string(), value), about);
}

/** An optional value. */
export function optional<Value>(
  schema: v.GenericSchema<Value>,
): v.OptionalSchema<v.GenericSchema<Value>, undefined> {
  return v.optional(schema);
}

/** A value, or `null`. */
export function orNull<Value>(
  schema: v.GenericSchema<Value>,
  about?: string,
): v.GenericSchema<Value | null> {
  return described(v.nullable(schema), about);
}
