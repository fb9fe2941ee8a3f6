/**
 * Searches JSON in bytes without parsing it: words, blanks and the ends of strings.
 *
 * @module
 */
const TAB = 0x09;
const SPACE = 0x20;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Compares bytes with a word. */
export function startsWithAt(bytes: Uint8Array, word: Uint8Array, at: number): boolean {
  for (let index = 0; index < word.length; index++) {
    if (bytes[at + index] !== word[index]) return false;
  }
  return true;
}

/**
 * Skips blanks and tabs.
 *
 * @returns The offset of the first byte that is neither
 */
export function skipSpace(bytes: Uint8Array, at: number): number {
  while (bytes[at] === SPACE || bytes[at] === TAB) at++;
  return at;
}

/**
 * Finds the end of a string.
 *
 * @param from The offset after its opening quote
 * @param end The offset at which the search ends
 * @returns The offset of its closing quote; at least `end` if there is none before it
 */
export function endOfString(bytes: Uint8Array, from: number, end: number): number {
  let at = from;
  while (at < end && bytes[at] !== QUOTE) at += bytes[at] === BACKSLASH ? 2 : 1;
  return at;
}
