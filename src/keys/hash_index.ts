/**
 * Finds numbers by hashes: a table of a few bytes an entry, where a `Map` of strings would take a hundred.
 *
 * @module
 */

/** The hash of a SHA-256 in hexadecimal digits: its beginning is as good as any. */
export function hashOfDigest(digest: string): number {
  return Number.parseInt(digest.slice(0, 8), 16) >>> 0;
}

/** FNV-1a of a text. */
export function hashOfText(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return hash >>> 0;
}

/** Numbers by hashes. Several may have the same hash: the caller looks closer. */
export class HashIndex {
  /** Hash and number + 1, in turn; open addressing. */
  readonly #slots: Uint32Array;
  readonly #mask: number;
  readonly #shift: number;

  /** @param count How many entries there can be */
  constructor(count: number) {
    const bits = Math.max(3, Math.ceil(Math.log2(2 * count + 1)));
    this.#slots = new Uint32Array(2 * 2 ** bits);
    this.#mask = 2 ** bits - 1;
    this.#shift = 32 - bits;
  }

  /** Adds an entry. */
  add(hash: number, number: number): void {
    let place = this.#start(hash);
    while (this.#slots[2 * place + 1] !== 0) place = (place + 1) & this.#mask;
    this.#slots[2 * place] = hash;
    this.#slots[2 * place + 1] = number + 1;
  }

  /**
   * @param hash A hash
   * @param isIt Tells whether a number with this hash is the one that is looked for
   * @returns The first number for which it does
   */
  find(hash: number, isIt: (number: number) => boolean): number | undefined {
    for (let place = this.#start(hash);; place = (place + 1) & this.#mask) {
      const next = this.#slots[2 * place + 1] ?? 0;
      if (next === 0) return undefined;
      if (this.#slots[2 * place] === hash && isIt(next - 1)) return next - 1;
    }
  }

  /** Returns the slot to begin at: Knuth's multiplier spreads hashes that resemble each other. */
  #start(hash: number): number {
    return Math.imul(hash, 0x9e3779b1) >>> this.#shift;
  }
}
