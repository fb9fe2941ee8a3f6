/**
 * Names of fields in queries and forms, as the parsers of different servers read them.
 *
 * @module
 */

const FIRST_WORD = /[\w-]+/;

/**
 * Returns the name under which a lenient parser could file a field: it ignores case and blanks,
 * cuts at a zero byte, and reads `model[]`, `model[0][name]`, `[model]` and `model.name` as parts
 * of `model`.
 *
 * @returns Its first word in lower case; empty where it has none
 */
export function lenientName(name: string): string {
  return FIRST_WORD.exec(name)?.[0].toLowerCase() ?? "";
}
