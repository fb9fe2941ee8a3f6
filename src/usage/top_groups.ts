/**
 * The first groups of a report, selected while groups are read, so that a report of a million
 * groups sorts only those that it shows. They are pages in their order, or the largest groups with
 * all others added up.
 *
 * @module
 */
import { OTHER_NAME, type Rest } from "./counts.ts";
import { isTimeDimension, type UsageDimension, type UsageOrder } from "./query.ts";
import { compareGroups, withoutTime } from "./report_order.ts";
import { addGroup, type Group, newGroup } from "./sums.ts";
import { inParts } from "./usage_memory.ts";
import { WideMap } from "./wide_map.ts";

/** Compares two items. Negative if the first item sorts first. */
export type Compare<Item> = (one: Item, other: Item) => number;

/** The first items of many, in a given order. */
export class FirstItems<Item> {
  readonly #compare: Compare<Item>;
  readonly #limit: number;
  /** A heap. Its top is the last of all kept items. */
  readonly #heap: Item[] = [];

  /**
   * @param limit Number of items to keep
   * @param compare The order
   */
  constructor(limit: number, compare: Compare<Item>) {
    this.#limit = limit;
    this.#compare = compare;
  }

  /** Adds an item, or drops it if enough others sort before it. */
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
      // Both are in the heap
      const upper = heap[parent] as Item;
      const lower = heap[index] as Item;
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
      // Both are in the heap
      const upper = heap[index] as Item;
      const lower = heap[child] as Item;
      if (this.#compare(upper, lower) >= 0) return;
      [heap[index], heap[child]] = [lower, upper];
      index = child;
    }
  }
}

/** Adds a group to the group with the same id. Creates that group if needed. */
function addTo(groups: WideMap<Group>, names: readonly string[], more: Group): void {
  const id = names.join("\0");
  let group = groups.get(id);
  if (group === undefined) groups.add(id, group = newGroup(names));
  addGroup(group, more);
}

/**
 * Keeps the largest groups, over all times. Adds up the others as {@link OTHER_NAME}, for each time.
 *
 * @param query The dimensions, the sum to compare, and the number of groups to keep
 */
export async function keepTop(
  groups: WideMap<Group>,
  query: { by: readonly UsageDimension[]; sort: UsageOrder; top: number },
  rest: Rest,
): Promise<WideMap<Group>> {
  const { by, sort, top } = query;
  const whole = new WideMap<Group>();
  for (const some of inParts(groups)) {
    for (const [, group] of some) addTo(whole, withoutTime(by, group), group);
    await rest();
  }
  const first = new FirstItems(top, compareGroups({ by: [], sort }));
  for (const some of inParts(whole)) {
    for (const [, group] of some) first.add(group);
    await rest();
  }
  const kept = new Set(Array.from(first.drain(), ({ names }) => names.join("\0")));
  const isTime = by.map(isTimeDimension);
  const toOthers = ({ names }: Group) =>
    names.map((name, at) => isTime[at] === true ? name : OTHER_NAME);
  const merged = new WideMap<Group>();
  for (const some of inParts(groups)) {
    for (const [, group] of some) {
      const isKept = kept.has(withoutTime(by, group).join("\0"));
      addTo(merged, isKept ? group.names : toOthers(group), group);
    }
    await rest();
  }
  return merged;
}
