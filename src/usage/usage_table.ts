/**
 * The usage of one hour or day in memory. Most keys use one model, so rows of a key are a list, and
 * only a key with many rows has an index: a row takes 320 bytes, and 400 with an index for each key.
 * A list of cache writes takes 64 bytes more (Node 26, 2026-11-26).
 *
 * @module
 */
import {
  addCounts,
  addMore,
  MAX_MODELS,
  noCounts,
  OTHER,
  USAGE_COUNTS,
  type UsageCounts,
  type UsageNames,
  type UsageRow,
} from "./counts.ts";
import { WideMap } from "./wide_map.ts";

/** Maximum number of rows in memory, about 300 bytes each. */
export const MAX_ROWS = 1_000_000;
/** A key with at least this number of rows has an index. */
const INDEXED_FROM = 16;

/** One row of a key. */
interface Entry {
  readonly provider: string;
  readonly model: string;
  readonly operation: string;
  readonly team: string | undefined;
  readonly plan: string | undefined;
  readonly tariff: string | undefined;
  readonly counts: UsageCounts;
  more: readonly number[] | undefined;
}

/** The counts of a row, to be added to. */
export interface OpenCounts {
  readonly counts: UsageCounts;
  /** See {@link UsageRow}. The list is replaced, never changed. */
  more: readonly number[] | undefined;
}

/** Usage of one key. */
interface KeyUse {
  readonly rows: Entry[];
  /**
   * Number of models that are counted by name, without models that have a price. A model counts
   * once per operation.
   */
  models: number;
  index: Map<string, Entry> | undefined;
}

function indexOf(names: Omit<UsageNames, "key">): string {
  const { provider, model, operation, team, plan, tariff } = names;
  return `${operation}\0${provider}\0${model}\0${team}\0${plan}\0${tariff}`;
}

function find(use: KeyUse, names: UsageNames): Entry | undefined {
  if (use.index !== undefined) return use.index.get(indexOf(names));
  const { provider, model, operation, team, plan, tariff } = names;
  for (const entry of use.rows) {
    const isSame = entry.model === model && entry.provider === provider &&
      entry.operation === operation && entry.tariff === tariff;
    const isSameToken = entry.team === team && entry.plan === plan;
    if (isSame && isSameToken) return entry;
  }
  return undefined;
}

function insert(use: KeyUse, entry: Entry): void {
  use.rows.push(entry);
  use.index?.set(indexOf(entry), entry);
  if (use.rows.length === INDEXED_FROM) {
    use.index = new Map(use.rows.map((each) => [indexOf(each), each]));
  }
}

/** The usage of one hour or day. */
export class UsageTable {
  readonly #keys = new WideMap<KeyUse>();
  readonly #listed: ReadonlySet<string>;
  readonly #maxRows: number;
  #rows = 0;
  #hasTariffs = false;

  /**
   * @param listed Models that always have their own row
   * @param maxRows Number of rows after which new rows are counted for all keys together
   */
  constructor(listed: ReadonlySet<string>, maxRows: number = MAX_ROWS) {
    this.#listed = listed;
    this.#maxRows = maxRows;
  }

  /** The number of rows. */
  get rows(): number {
    return this.#rows;
  }

  /** True if a row has another tariff than the standard one. */
  get hasTariffs(): boolean {
    return this.#hasTariffs;
  }

  /**
   * Returns the counts for some names, with the model as the caller named it. The caller of this
   * method adds to them.
   */
  open(names: UsageNames): OpenCounts {
    return this.#entry(names);
  }

  /** Adds a row of this hour or day. */
  add(row: UsageRow): void {
    const entry = this.#entry(row);
    addCounts(entry.counts, row.counts);
    entry.more = addMore(entry.more, row.more);
  }

  /** Subtracts a row that was added before, here or in the store that these counts are for. */
  subtract(row: UsageRow): void {
    const counts = { ...row.counts };
    for (const name of USAGE_COUNTS) counts[name] = 0 - counts[name];
    this.add({ ...row, counts, more: row.more?.map((count) => 0 - count) });
  }

  #entry(names: UsageNames): Entry {
    const { key, provider, model, operation, team, plan, tariff } = names;
    const use = this.#keys.get(key);
    const found = use && find(use, names);
    if (found !== undefined) return found;
    if (this.#rows >= this.#maxRows && key !== OTHER) {
      return this.#entry({ key: OTHER, provider, model, operation, tariff });
    }
    const isListed = this.#listed.has(model) || model === OTHER;
    if (!isListed && use !== undefined && use.models >= MAX_MODELS) {
      return this.#entry({ ...names, model: OTHER });
    }
    const counts = noCounts();
    const more = undefined;
    const entry: Entry = { provider, model, operation, team, plan, tariff, counts, more };
    if (use === undefined) {
      // An array that is made with its first row takes 150 bytes less than an array that grows.
      this.#keys.add(key, { rows: [entry], models: isListed ? 0 : 1, index: undefined });
    } else {
      insert(use, entry);
      if (!isListed) use.models++;
    }
    this.#rows++;
    this.#hasTariffs ||= tariff !== undefined;
    return entry;
  }

  /** Lists the rows, with the start of their hour or day. */
  *rowsAt(at: number): Iterable<UsageRow> {
    for (const [key, { rows }] of this.#keys) {
      for (const entry of rows) {
        const { provider, model, operation, team, plan, tariff, counts, more } = entry;
        yield { at, key, provider, model, operation, team, plan, tariff, counts, more };
      }
    }
  }
}
