/**
 * Searches bytes for some words of the same length. Only every sixth pair of bytes is checked.
 *
 * @module
 */
import { startsWithAt } from "./byte_search.ts";

/** Length of the words. Bytes. */
const LENGTH = 7;

/** A search for some words. */
export class WordSearch {
  readonly #words: readonly Uint8Array[];
  /** Distance from two adjacent bytes to the end of the word that contains them; 0 for others. */
  readonly #distances = new Uint8Array(65_536);

  /**
   * @param words Words of seven bytes, in which no two adjacent bytes occur at different positions
   */
  constructor(words: readonly string[]) {
    this.#words = words.map((word) => new TextEncoder().encode(word));
    for (const [first, ...others] of this.#words) {
      if (first === undefined || others.length !== LENGTH - 1) {
        throw new Error(`Cannot search: a word has not ${LENGTH} bytes`);
      }
      let before = first;
      for (const [index, byte] of others.entries()) {
        this.#distances[pairOf(before, byte)] = others.length - index;
        before = byte;
      }
    }
  }

  /** Returns whether one of the words is in the bytes. */
  isIn(bytes: Uint8Array, start: number, end: number): boolean {
    // A word has as many pairs as a step has bytes, so one of its pairs is always checked. The last
    // step can be after the end of the bytes, where they count as 0.
    for (let at = start + LENGTH - 1; at < end + LENGTH - 1; at += LENGTH - 1) {
      const distance = this.#distances[pairOf(bytes[at - 1] ?? 0, bytes[at] ?? 0)] as number;
      if (distance > 0 && this.#endsAt(bytes, at + distance)) return true;
    }
    return false;
  }

  #endsAt(bytes: Uint8Array, end: number): boolean {
    for (const word of this.#words) if (startsWithAt(bytes, word, end - LENGTH)) return true;
    return false;
  }
}

const pairOf = (one: number, other: number): number => (one << 8) | other;
