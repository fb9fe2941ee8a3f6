/**
 * The usage of one hour or day in memory. Most keys use one model, so rows of a key are a list, and
 * only a key with many rows has an index: a row takes 310 bytes, and 390 with an index for each key
 * (Node 26, 2026-11-26).
 *
 * @module
 */
import {
  addCounts,
  MAX_MODELS,
  noCounts,
  OTHER,
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
  readonly counts: UsageCounts;
  /** Counts of a later version. */
  later: readonly number[] | undefined;
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
  const { provider, model, operation, team, plan } = names;
  return `${operation}\0${provider}\0${model}\0${team}\0${plan}`;
}

function find(use: KeyUse, names: UsageNames): Entry | undefined {
  if (use.index !== undefined) return use.index.get(indexOf(names));
  const { provider, model, operation, team, plan } = names;
  for (const entry of use.rows) {
    const isSame = entry.model === model && entry.provider === provider &&
      entry.operation === operation;
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

  /**
   * Returns the counts for some names, with the model as the caller named it. The caller of this
   * method adds to them.
   */
  counts(names: UsageNames): UsageCounts {
    return this.#entry(names).counts;
  }

  /** Adds a row of this hour or day. */
  add(row: UsageRow): void {
    const entry = this.#entry(row);
    addCounts(entry.counts, row.counts);
    const { later } = row;
    if (later === undefined) return;
    const before = entry.later ?? [];
    const length = Math.max(before.length, later.length);
    entry.later = Array.from({ length }, (_, index) => (before[index] ?? 0) + (later[index] ?? 0));
  }

  #entry(names: UsageNames): Entry {
    const { key, provider, model, operation, team, plan } = names;
    const use = this.#keys.get(key);
    const found = use && find(use, names);
    if (found !== undefined) return found;
    if (this.#rows >= this.#maxRows && key !== OTHER) {
      return this.#entry({ key: OTHER, provider, model, operation });
    }
    const isListed = this.#listed.has(model) || model === OTHER;
    if (!isListed && use !== undefined && use.models >= MAX_MODELS) {
      return this.#entry({ ...names, model: OTHER });
    }
    const counts = noCounts();
    const entry: Entry = { provider, model, operation, team, plan, counts, later: undefined };
    if (use === undefined) {
      // An array that is made with its first row takes 150 bytes less than an array that grows.
      this.#keys.add(key, { rows: [entry], models: isListed ? 0 : 1, index: undefined });
    } else {
      insert(use, entry);
      if (!isListed) use.models++;
    }
    this.#rows++;
    return entry;
  }

  /** Lists the rows, with the start of their hour or day. */
  *rowsAt(at: number): Iterable<UsageRow> {
    for (const [key, { rows }] of this.#keys) {
      for (const { provider, model, operation, team, plan, counts, later } of rows) {
        yield { at, key, provider, model, operation, team, plan, counts, later };
      }
    }
  }
}
