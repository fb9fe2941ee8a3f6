/**
 * Usage in memory, by hour and by day. Its size is bounded, regardless of the model names that
 * callers send. The oldest hours are deleted first; their sums remain in the days.
 *
 * @module
 */
import { DEFAULT_RETENTION, type UsageBounds } from "../config/usage.ts";
import {
  DAY_MS,
  ROWS_A_TURN,
  STEP_MS,
  type UsageBatch,
  type UsageRange,
  type UsageRow,
  type UsageStep,
  type UsageStore,
} from "./counts.ts";
import { MAX_ROWS, UsageTable } from "./usage_table.ts";

/** The usage of all stored hours and days. */
export class UsageBook {
  readonly #tables: Readonly<Record<UsageStep, Map<number, UsageTable>>> = {
    hour: new Map(),
    day: new Map(),
  };
  readonly #listed: ReadonlySet<string>;
  readonly #keep: UsageBounds;

  constructor(listed: ReadonlySet<string>, keep: UsageBounds = DEFAULT_RETENTION) {
    this.#listed = listed;
    this.#keep = keep;
  }

  /** The number of rows. */
  get rows(): number {
    let rows = 0;
    for (const tables of Object.values(this.#tables)) {
      for (const table of tables.values()) rows += table.rows;
    }
    return rows;
  }

  /** The first version that can read the rows as lines of a file. */
  get version(): number {
    const tables = Object.values(this.#tables).flatMap((each) => Array.from(each.values()));
    return Math.max(1, ...tables.map(({ version }) => version));
  }

  /** Adds the row of an hour to that hour, and to its day. */
  add(row: UsageRow): void {
    this.addTo("hour", row);
    this.addTo("day", { ...row, at: row.at - row.at % DAY_MS });
  }

  /** Adds a row to its hour, or to its day. */
  addTo(step: UsageStep, row: UsageRow): void {
    const tables = this.#tables[step];
    let table = tables.get(row.at);
    if (table === undefined) {
      table = new UsageTable(this.#listed, MAX_ROWS, this.#keep.maxAttributed);
      tables.set(row.at, table);
    }
    table.add(row);
  }

  /** Yields the rows of a range. */
  *read({ step, from, to }: UsageRange): Iterable<UsageRow> {
    for (const [at, table] of this.#tables[step]) {
      if (at >= from && at < to) yield* table.rowsAt(at);
    }
  }

  /**
   * Deletes expired rows. If there are too many rows, deletes the oldest: hours first, whose sums
   * remain in the days.
   *
   * @param now Milliseconds since 1970
   */
  forget(now: number): void {
    const { hour, day } = this.#tables;
    const { hoursMs, daysMs } = this.#keep;
    for (const at of hour.keys()) if (at < now - hoursMs - STEP_MS.hour) hour.delete(at);
    for (const at of day.keys()) if (at < now - daysMs - STEP_MS.day) day.delete(at);
    while (this.rows > MAX_ROWS) {
      const tables = hour.size > 1 ? hour : day;
      if (tables.size <= 1) return;
      tables.delete(Math.min(...tables.keys()));
    }
  }
}

/** Groups items into arrays of at most a given size. */
export function* inParts<T>(all: Iterable<T>, size: number = ROWS_A_TURN): Iterable<T[]> {
  let part: T[] = [];
  for (const one of all) {
    if (part.push(one) < size) continue;
    yield part;
    part = [];
  }
  if (part.length > 0) yield part;
}

/** Usage that is lost when the process ends. */
export class MemoryUsage implements UsageStore {
  readonly backend = "memory";
  readonly #book: UsageBook;
  readonly #now: () => number;

  /** @param now Milliseconds since 1970 */
  constructor(
    listed: ReadonlySet<string>,
    now: () => number,
    keep: UsageBounds = DEFAULT_RETENTION,
  ) {
    this.#book = new UsageBook(listed, keep);
    this.#now = now;
  }

  add({ rows }: UsageBatch): Promise<void> {
    for (const row of rows) this.#book.add(row);
    this.#book.forget(this.#now());
    return Promise.resolve();
  }

  async *read(range: UsageRange): AsyncIterable<readonly UsageRow[]> {
    yield* inParts(this.#book.read(range));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
