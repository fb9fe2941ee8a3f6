/**
 * Search for a short sequence of bytes in a large body, in time that depends only on the size of
 * the body.
 *
 * @module
 */

/** Work that is free before a search changes its method. Bytes. */
const FREE_WORK = 4096;

/**
 * A sequence of bytes to search for.
 *
 * Horspool's algorithm skips most of an ordinary body. In a hostile body, such as 32 MB of dashes,
 * it would compare the whole sequence at each byte, so an automaton that reads each byte once then
 * continues the search. 1 MB of a file needs 0.13 ms, or 3 ms with the automaton (Bun 1.4.5).
 */
export class BytePattern {
  readonly length: number;
  readonly #bytes: Uint8Array;
  /**
   * By the byte under the last byte of the pattern: the distance to the next possible end of the
   * pattern.
   */
  readonly #shifts: Uint8Array;
  #automaton: Uint8Array | undefined;

  /** @param bytes 1 to 255 bytes */
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.length = bytes.length;
    this.#shifts = new Uint8Array(256).fill(this.length);
    for (const [index, byte] of bytes.subarray(0, -1).entries()) {
      this.#shifts[byte] = this.length - 1 - index;
    }
  }

  /** Returns whether a text begins with the pattern. */
  isAtStartOf(text: Uint8Array): boolean {
    return this.#bytes.every((byte, index) => text[index] === byte);
  }

  /**
   * @returns The index of the first occurrence that begins at `from` or later; -1 if there is none
   */
  findIn(text: Uint8Array, from: number): number {
    const bytes = this.#bytes;
    const shifts = this.#shifts;
    const last = this.length - 1;
    let work = 0;
    for (
      let at = from;
      at + last < text.length;
      at += shifts[text[at + last] as number] as number
    ) {
      let index = last;
      while (index >= 0 && text[at + index] === bytes[index]) index--;
      if (index < 0) return at;
      work += last - index + 1;
      if (work > FREE_WORK + (at - from) / 2) return this.#findByAutomaton(text, at);
    }
    return -1;
  }

  #findByAutomaton(text: Uint8Array, from: number): number {
    const next = this.#automaton ??= toAutomaton(this.#bytes);
    const { length } = this;
    let matched = 0;
    for (let at = from; at < text.length; at++) {
      matched = next[matched * 256 + (text[at] as number)] as number;
      if (matched === length) return at + 1 - length;
    }
    return -1;
  }
}

/**
 * Builds the table of Knuth, Morris and Pratt: from the number of matched bytes and the next byte
 * to the new number of matched bytes.
 */
function toAutomaton(bytes: Uint8Array): Uint8Array {
  const next = new Uint8Array(bytes.length * 256);
  next[bytes[0] as number] = 1;
  // The state after the same bytes without the first one: a mismatch continues from there.
  let border = 0;
  for (let state = 1; state < bytes.length; state++) {
    const byte = bytes[state] as number;
    next.copyWithin(state * 256, border * 256, (border + 1) * 256);
    next[state * 256 + byte] = state + 1;
    border = next[border * 256 + byte] as number;
  }
  return next;
}
