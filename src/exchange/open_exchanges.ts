/**
 * The list of open exchanges: each from its first header until it is settled.
 *
 * @module
 */
import type { Exchange } from "./exchange.ts";

/**
 * The exchanges that are not settled yet, in no order. An array, since a `Set` with many additions and deletions
 * replaces its table over and over, and in V8 the old tables keep their entries, and each other, alive when the young
 * generation is collected.
 */
export class OpenExchanges implements Iterable<Exchange> {
  readonly #all: Exchange[] = [];
  readonly #onEmpty: (() => void)[] = [];

  /** The number of open exchanges. */
  get size(): number {
    return this.#all.length;
  }

  /** @param exchange One that is not among them */
  add(exchange: Exchange): void {
    exchange.place = this.#all.push(exchange) - 1;
  }

  /** @param exchange One that is among them; the last one takes its place */
  delete(exchange: Exchange): void {
    const last = this.#all.pop();
    if (last !== undefined && last !== exchange) {
      this.#all[exchange.place] = last;
      last.place = exchange.place;
    }
    if (this.#all.length > 0 || this.#onEmpty.length === 0) return;
    for (const tell of this.#onEmpty.splice(0)) tell();
  }

  /** Resolves when there are none. */
  whenEmpty(): Promise<void> {
    return this.size === 0 ? Promise.resolve() : new Promise((resolve) => this.#onEmpty.push(resolve));
  }

  /** Iterates over a copy, so that exchanges may be settled meanwhile. */
  [Symbol.iterator](): Iterator<Exchange> {
    return [...this.#all][Symbol.iterator]();
  }
}
