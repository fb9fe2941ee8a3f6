/**
 * A map for up to millions of names. A `Map` that grows beyond hundreds of thousands of entries
 * stops the process while it is rebuilt; many small ones do so one by one. The longest stop on the
 * way to a million is a quarter (Node 26) or a seventh (Bun) of that (2026-11-26).
 *
 * @module
 */

/** Number of maps: with a million names each has about 4,000. */
const MAPS = 256;

/**
 * Hashes a text (FNV-1a, 32 bits, over UTF-16 units). Redis stores usage by this number, so it must
 * be the same in all versions.
 *
 * @returns A whole number from 0 to 2^32 - 1
 */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}

/** A map from texts to values. */
export class WideMap<Value> {
  readonly #maps = new Map<number, Map<string, Value>>();
  #size = 0;

  /** The number of entries. */
  get size(): number {
    return this.#size;
  }

  /** Returns the value of a name; `undefined` without one. */
  get(name: string): Value | undefined {
    return this.#maps.get(hashText(name) % MAPS)?.get(name);
  }

  /** Adds a new name. */
  add(name: string, value: Value): void {
    const place = hashText(name) % MAPS;
    let map = this.#maps.get(place);
    if (map === undefined) this.#maps.set(place, map = new Map());
    map.set(name, value);
    this.#size++;
  }

  /** The names and their values. */
  *[Symbol.iterator](): Iterator<[string, Value]> {
    for (const map of this.#maps.values()) yield* map;
  }
}
