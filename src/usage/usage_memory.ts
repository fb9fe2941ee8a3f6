/**
 * Usage in memory, by hour and by day. Its size is bounded, whatever callers name their models and however many keys
 * there are: what exceeds a bound is counted under {@link OTHER}, so that sums stay right.
 *
 * @module
 */
import {
  addCounts,
  DAY_MS,
  DAYS_KEPT_MS,
  HOURS_KEPT_MS,
  MAX_MODELS,
  noCounts,
  OTHER,
  STEP_MS,
  type UsageBatch,
  type UsageCounts,
  type UsageNames,
  type UsageRange,
  type UsageRow,
  type UsageStep,
  type UsageStore,
} from "./counts.ts";

/** Rows of one hour or day at most; what is new beyond them is counted for all keys together. */
const MAX_TABLE_ROWS = 50_000;
/** Rows of all hours and days at most, about 250 bytes each; beyond them the oldest are forgotten. */
const MAX_ROWS = 200_000;
/** Rows that are handed on at once. */
const ROWS_AT_ONCE = 2000;

/** Usage of one key. */
interface KeyUse {
  /** Counts by operation, provider and model. */
  readonly operations: Map<string, Map<string, Map<string, UsageCounts>>>;
  /** Number of models that are counted by name, without those that have a price; each once for an operation. */
  models: number;
}

/** The usage of one hour or day. */
export class UsageTable {
  readonly #keys = new Map<string, KeyUse>();
  readonly #listed: ReadonlySet<string>;
  readonly #maxRows: number;
  #rows = 0;

  /**
   * @param listed Models that always have a name of their own
   * @param maxRows Number of rows after which new ones are counted for all keys together
   */
  constructor(listed: ReadonlySet<string>, maxRows: number = MAX_TABLE_ROWS) {
    this.#listed = listed;
    this.#maxRows = maxRows;
  }

  /** The number of rows. */
  get rows(): number {
    return this.#rows;
  }

  /**
   * @param names Key, provider and operation, and the model as the caller named it
   * @returns The counts, to be added to
   */
  counts(names: UsageNames): UsageCounts {
    const { key, provider, model, operation } = names;
    const use = this.#keys.get(key);
    const found = use?.operations.get(operation)?.get(provider)?.get(model);
    if (found !== undefined) return found;
    if (this.#rows >= this.#maxRows && key !== OTHER) return this.counts({ ...names, key: OTHER });
    return this.#make(use ?? this.#add(key), names);
  }

  #add(key: string): KeyUse {
    const use: KeyUse = { operations: new Map(), models: 0 };
    this.#keys.set(key, use);
    return use;
  }

  #make(use: KeyUse, { provider, model, operation }: UsageNames): UsageCounts {
    const models = inner(inner(use.operations, operation), provider);
    const isNamed = this.#listed.has(model) || use.models < MAX_MODELS;
    if (isNamed && !this.#listed.has(model)) use.models++;
    const name = isNamed ? model : OTHER;
    let counts = models.get(name);
    if (counts === undefined) {
      models.set(name, counts = noCounts());
      this.#rows++;
    }
    return counts;
  }

  /** @param at Start of the hour or day */
  *rowsAt(at: number): Iterable<UsageRow> {
    for (const [key, { operations }] of this.#keys) {
      for (const [operation, providers] of operations) {
        for (const [provider, models] of providers) {
          for (const [model, counts] of models) yield { at, key, provider, model, operation, counts };
        }
      }
    }
  }
}

/** Returns the map in a map, which is made if there is none. */
function inner<Value>(outer: Map<string, Map<string, Value>>, name: string): Map<string, Value> {
  let found = outer.get(name);
  if (found === undefined) outer.set(name, found = new Map());
  return found;
}

/** The usage of all hours and days that are kept. */
export class UsageBook {
  readonly #tables: Readonly<Record<UsageStep, Map<number, UsageTable>>> = { hour: new Map(), day: new Map() };
  readonly #listed: ReadonlySet<string>;

  /** @param listed Models that always have a name of their own */
  constructor(listed: ReadonlySet<string>) {
    this.#listed = listed;
  }

  /** The number of rows. */
  get rows(): number {
    let rows = 0;
    for (const tables of Object.values(this.#tables)) for (const table of tables.values()) rows += table.rows;
    return rows;
  }

  /** Adds the row of an hour to that hour, and to its day. @param row The row */
  add(row: UsageRow): void {
    this.addTo("hour", row);
    this.addTo("day", { ...row, at: row.at - row.at % DAY_MS });
  }

  /** Adds a row to its hour, or to its day. */
  addTo(step: UsageStep, row: UsageRow): void {
    const { at, counts } = row;
    const tables = this.#tables[step];
    let table = tables.get(at);
    if (table === undefined) tables.set(at, table = new UsageTable(this.#listed));
    addCounts(table.counts(row), counts);
  }

  /** The rows of a range. */
  *read({ step, from, to }: UsageRange): Iterable<UsageRow> {
    for (const [at, table] of this.#tables[step]) if (at >= from && at < to) yield* table.rowsAt(at);
  }

  /**
   * Forgets what is too old, and the oldest rows if there are too many: hours first, whose sums the days keep.
   *
   * @param now Milliseconds since 1970
   */
  forget(now: number): void {
    const { hour, day } = this.#tables;
    for (const at of hour.keys()) if (at < now - HOURS_KEPT_MS - STEP_MS.hour) hour.delete(at);
    for (const at of day.keys()) if (at < now - DAYS_KEPT_MS - STEP_MS.day) day.delete(at);
    while (this.rows > MAX_ROWS) {
      const tables = hour.size > 1 ? hour : day;
      if (tables.size <= 1) return;
      tables.delete(Math.min(...tables.keys()));
    }
  }
}

/** Groups items into arrays of at most a given size. */
export function* inParts<T>(all: Iterable<T>, size: number = ROWS_AT_ONCE): Iterable<T[]> {
  let part: T[] = [];
  for (const one of all) {
    if (part.push(one) < size) continue;
    yield part;
    part = [];
  }
  if (part.length > 0) yield part;
}

/** Usage that lives as long as the process. */
export class MemoryUsage implements UsageStore {
  readonly backend = "memory";
  readonly #book: UsageBook;
  readonly #now: () => number;

  /**
   * @param listed Models that always have a name of their own
   * @param now Milliseconds since 1970
   */
  constructor(listed: ReadonlySet<string>, now: () => number) {
    this.#book = new UsageBook(listed);
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
