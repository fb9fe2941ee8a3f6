/**
 * A bounded map that forgets the least recently used names. It has two generations. When the
 * younger one is full, it replaces the older one, whose entries are forgotten. A single `Map` would
 * be slow: deleting its oldest entry costs 20 µs, because the search passes the gaps of earlier
 * deletions.
 *
 * @module
 */

/** A map from names to values. Finding a name counts as a use of it. */
export class RecentMap<Value> {
  readonly #kept: number;
  readonly #forget: (value: Value) => void;
  #young = new Map<string, Value>();
  #old = new Map<string, Value>();

  /**
   * @param kept Number of most recently used names that are certainly kept. At most twice as many
   * are kept
   * @param forget Called with each value that is forgotten
   */
  constructor(kept: number, forget: (value: Value) => void = () => {}) {
    this.#kept = kept;
    this.#forget = forget;
  }

  get(name: string): Value | undefined {
    const young = this.#young.get(name);
    if (young !== undefined || this.#old.size === 0) return young;
    const old = this.#old.get(name);
    if (old !== undefined) this.set(name, old);
    return old;
  }

  getOrAdd(name: string, create: () => Value): Value {
    const found = this.get(name);
    if (found !== undefined) return found;
    const created = create();
    this.set(name, created);
    return created;
  }

  /** Sets a value. The replaced value is dropped without a call of `forget`. */
  set(name: string, value: Value): void {
    this.#old.delete(name);
    if (this.#young.size >= this.#kept && !this.#young.has(name)) {
      for (const forgotten of this.#old.values()) this.#forget(forgotten);
      [this.#old, this.#young] = [this.#young, new Map()];
    }
    this.#young.set(name, value);
  }

  /** Drops a value without a call of `forget`. */
  delete(name: string): void {
    this.#young.delete(name);
    this.#old.delete(name);
  }

  /** Iterates over all values. */
  *values(): Generator<Value, void> {
    yield* this.#young.values();
    yield* this.#old.values();
  }

  /**
   * Iterates over the younger generation, and starts again if it is replaced during the iteration.
   */
  *youngValues(): Generator<Value, void> {
    let current: Map<string, Value>;
    do {
      current = this.#young;
      for (const value of current.values()) {
        if (current !== this.#young) break;
        yield value;
      }
    } while (current !== this.#young);
  }
}
