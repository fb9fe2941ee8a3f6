/**
 * The history in memory. Its size is bounded: the oldest minutes are deleted first, whose sums
 * remain in the hours.
 *
 * @module
 */
import { inParts } from "../usage_memory.ts";
import {
  HISTORY_STEP_MS,
  type HistoryBatch,
  type HistoryNames,
  type HistoryRange,
  type HistoryRow,
  type HistoryStep,
  type HistoryStore,
  KEPT_MS,
  OTHER_KEYS,
  writeNames,
} from "./rows.ts";

/** Maximum number of rows, about 300 bytes each. */
const MAX_ROWS = 200_000;
/** Number of rows in a minute or hour after which further keys are counted together. */
const MAX_ROWS_A_STEP = 5000;

interface Entry {
  readonly names: HistoryNames;
  readonly sums: number[];
}
type Table = Map<string, Entry>;

function addSums(sums: number[], more: readonly number[]): void {
  for (let index = 0; index < more.length; index++) {
    sums[index] = (sums[index] ?? 0) + (more[index] ?? 0);
  }
}

/** The rows of all stored minutes and hours. */
export class HistoryBook {
  readonly #tables: Readonly<Record<HistoryStep, Map<number, Table>>> = {
    minute: new Map(),
    hour: new Map(),
  };
  #rows = 0;

  /** The number of rows. */
  get rows(): number {
    return this.#rows;
  }

  /** Adds the row of a minute to that minute, and to its hour. */
  add(row: HistoryRow): void {
    this.addTo("minute", row);
    this.addTo("hour", { ...row, at: row.at - row.at % HISTORY_STEP_MS.hour });
  }

  /** Adds a row to its minute, or to its hour. */
  addTo(step: HistoryStep, row: HistoryRow): void {
    const tables = this.#tables[step];
    let table = tables.get(row.at);
    if (table === undefined) tables.set(row.at, table = new Map());
    addSums(this.#entry(table, row).sums, row.sums);
  }

  #entry(table: Table, names: HistoryNames): Entry {
    const name = writeNames(names);
    const found = table.get(name);
    if (found !== undefined) return found;
    if (table.size >= MAX_ROWS_A_STEP && names.key !== OTHER_KEYS) {
      return this.#entry(table, { ...names, key: OTHER_KEYS });
    }
    const { key, team, provider, end, concern } = names;
    const entry: Entry = { names: { key, team, provider, end, concern }, sums: [] };
    table.set(name, entry);
    this.#rows++;
    return entry;
  }

  /** Yields the rows of a range. */
  *read({ step, from, to }: HistoryRange): Iterable<HistoryRow> {
    for (const [at, table] of this.#tables[step]) {
      if (at < from || at >= to) continue;
      for (const { names, sums } of table.values()) yield { at, ...names, sums };
    }
  }

  /** Removes the rows of minutes. @returns These rows */
  takeMinutes(): HistoryRow[] {
    const rows = Array.from(this.read({ step: "minute", from: -Infinity, to: Infinity }));
    for (const at of Array.from(this.#tables.minute.keys())) this.#delete("minute", at);
    return rows;
  }

  /** Deletes expired rows, and the oldest ones if there are too many. @param now Milliseconds */
  forget(now: number): void {
    for (const step of ["minute", "hour"] as const) {
      for (const at of Array.from(this.#tables[step].keys())) {
        if (at < now - KEPT_MS[step] - HISTORY_STEP_MS[step]) this.#delete(step, at);
      }
    }
    this.forgetOldest();
  }

  /**
   * Deletes the oldest rows if there are too many. Rows on their way to a store do not expire: the
   * hour of an expired minute still needs them.
   */
  forgetOldest(): void {
    while (this.#rows > MAX_ROWS) {
      const { minute, hour } = this.#tables;
      const step = minute.size > 1 ? "minute" : "hour";
      if (step === "hour" && hour.size <= 1) return;
      this.#delete(step, Math.min(...this.#tables[step].keys()));
    }
  }

  #delete(step: HistoryStep, at: number): void {
    this.#rows -= this.#tables[step].get(at)?.size ?? 0;
    this.#tables[step].delete(at);
  }
}

/** A history that is lost when the process ends. */
export class MemoryHistory implements HistoryStore {
  readonly #book = new HistoryBook();
  readonly #now: () => number;

  /** @param now Milliseconds since 1970 */
  constructor(now: () => number) {
    this.#now = now;
  }

  add({ rows }: HistoryBatch): Promise<void> {
    for (const row of rows) this.#book.add(row);
    this.#book.forget(this.#now());
    return Promise.resolve();
  }

  async *read(range: HistoryRange): AsyncIterable<readonly HistoryRow[]> {
    yield* inParts(this.#book.read(range));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
