/**
 * Names of fields in queries and forms, as lenient parsers of servers read them.
 *
 * @module
 */

const FIRST_WORD = /[\w-]+/;

/**
 * Returns the name that a lenient parser could read for a field. Such a parser ignores case and
 * blanks, cuts at a zero byte, and reads `model[]`, `model[0][name]`, `[model]` and `model.name` as
 * parts of `model`.
 *
 * @returns Its first word in lower case; empty if it has none
 */
export function lenientName(name: string): string {
  return FIRST_WORD.exec(name)?.[0].toLowerCase() ?? "";
}
