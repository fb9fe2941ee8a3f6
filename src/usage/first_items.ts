/**
 * Pages of a report: the first groups in its order, kept while groups pass by, so that a report of
 * a million groups sorts no more of them than it shows.
 *
 * @module
 */

/** Compares two items: negative where the first comes before the second. */
export type Compare<Item> = (one: Item, other: Item) => number;

/** The first items of many, by an order. */
export class FirstItems<Item> {
  readonly #compare: Compare<Item>;
  readonly #limit: number;
  /** A heap whose top comes last of all that are kept. */
  readonly #heap: Item[] = [];

  /**
   * @param limit Number of items to keep
   * @param compare The order
   */
  constructor(limit: number, compare: Compare<Item>) {
    this.#limit = limit;
    this.#compare = compare;
  }

  /** Adds an item, which is dropped where enough others come before it. */
  add(item: Item): void {
    const heap = this.#heap;
    if (heap.length < this.#limit) {
      heap.push(item);
      this.#rise(heap.length - 1);
    } else if (heap[0] !== undefined && this.#compare(item, heap[0]) < 0) {
      heap[0] = item;
      this.#sink();
    }
  }

  /** Removes the items, the last one first. */
  *drain(): Iterable<Item> {
    const heap = this.#heap;
    for (let last = heap.pop(); last !== undefined; last = heap.pop()) {
      const [top = last] = heap;
      if (heap.length > 0) {
        heap[0] = last;
        this.#sink();
      }
      yield top;
    }
  }

  #rise(index: number): void {
    const heap = this.#heap;
    for (let parent = (index - 1) >> 1; index > 0; parent = (index - 1) >> 1) {
      const [upper, lower] = [heap[parent] as Item, heap[index] as Item]; // both are in the heap
      if (this.#compare(upper, lower) >= 0) return;
      [heap[parent], heap[index]] = [lower, upper];
      index = parent;
    }
  }

  #sink(): void {
    const heap = this.#heap;
    for (let index = 0;;) {
      let child = 2 * index + 1;
      if (child >= heap.length) return;
      const right = child + 1;
      if (right < heap.length && this.#compare(heap[right] as Item, heap[child] as Item) > 0) {
        child = right;
      }
      const [upper, lower] = [heap[index] as Item, heap[child] as Item]; // both are in the heap
      if (this.#compare(upper, lower) >= 0) return;
      [heap[index], heap[child]] = [lower, upper];
      index = child;
    }
  }
}
