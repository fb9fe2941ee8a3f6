/**
 * Who is there: every exchange from its first header until it is settled.
 *
 * @module
 */
import type { Exchange } from "./exchange.ts";

/**
 * The exchanges that are not settled yet, in no order. An array, since a `Set` with much coming and going drops its
 * table over and over, and V8's old tables keep what they held, and each other, from the collection of the young.
 */
export class OpenExchanges implements Iterable<Exchange> {
  readonly #all: Exchange[] = [];
  readonly #onEmpty: (() => void)[] = [];

  /** How many there are. */
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

  /** All of them as they are now; settling one meanwhile does not disturb. */
  [Symbol.iterator](): Iterator<Exchange> {
    return [...this.#all][Symbol.iterator]();
  }
}
