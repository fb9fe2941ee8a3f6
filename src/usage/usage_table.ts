/**
 * The usage of one hour or day in memory. Most keys use one model, so rows of a key are a list, and
 * only a key with many rows has an index: a row takes 320 bytes, and 400 with an index for each key.
 * A list of cache writes takes 64 bytes more (Node 26, 2026-11-26).
 *
 * @module
 */
import { DEFAULT_MAX_ROWS } from "../config/attribution.ts";
import {
  addCounts,
  addMore,
  MAX_MODELS,
  noCounts,
  OTHER_NAME,
  USAGE_COUNTS,
  type UsageCounts,
  type UsageNames,
  type UsageRow,
} from "./counts.ts";
import { versionOf } from "./usage_lines.ts";
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
  readonly attribution: string | undefined;
  readonly payer: UsageNames["payer"];
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
  /** Number of rows with attribution by name. */
  attributed: number;
  index: Map<string, Entry> | undefined;
}

function indexOf(names: Omit<UsageNames, "key">): string {
  const { provider, model, operation, team, plan, tariff, attribution, payer } = names;
  return `${operation}\0${provider}\0${model}\0${team}\0${plan}\0${tariff}\0${attribution}\0${payer}`;
}

function find(use: KeyUse, names: UsageNames): Entry | undefined {
  if (use.index !== undefined) return use.index.get(indexOf(names));
  const { provider, model, operation, team, plan, tariff, attribution, payer } = names;
  for (const entry of use.rows) {
    const isSame = entry.model === model && entry.provider === provider &&
      entry.operation === operation && entry.tariff === tariff;
    const isSameCaller = entry.team === team && entry.plan === plan &&
      entry.attribution === attribution && entry.payer === payer;
    if (isSame && isSameCaller) return entry;
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
  readonly #maxAttributed: number;
  #rows = 0;
  #version = 1;

  /**
   * @param listed Models that always have their own row
   * @param maxRows Number of rows after which new rows are counted for all keys together
   * @param maxAttributed Number of rows of a key with attribution by name
   */
  constructor(
    listed: ReadonlySet<string>,
    maxRows: number = MAX_ROWS,
    maxAttributed: number = DEFAULT_MAX_ROWS,
  ) {
    this.#listed = listed;
    this.#maxRows = maxRows;
    this.#maxAttributed = maxAttributed;
  }

  /** The number of rows. */
  get rows(): number {
    return this.#rows;
  }

  /** The first version that can read the rows as lines of a file. */
  get version(): number {
    return this.#version;
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
    const { key, provider, model, operation, tariff, attribution, payer } = names;
    const use = this.#keys.get(key);
    const found = use && find(use, names);
    if (found !== undefined) return found;
    if (this.#rows >= this.#maxRows && key !== OTHER_NAME) {
      return this.#entry({ key: OTHER_NAME, provider, model, operation, tariff, payer });
    }
    // These rows have another limit, so that many users do not count as many models.
    const isNamed = attribution !== undefined && attribution !== OTHER_NAME;
    if (isNamed && use !== undefined && use.attributed >= this.#maxAttributed) {
      return this.#entry({ ...names, attribution: OTHER_NAME });
    }
    const isListed = isNamed || this.#listed.has(model) || model === OTHER_NAME;
    if (!isListed && use !== undefined && use.models >= MAX_MODELS) {
      return this.#entry({ ...names, model: OTHER_NAME });
    }
    return this.#insert(names, { models: isListed ? 0 : 1, attributed: isNamed ? 1 : 0 });
  }

  /** Inserts a row. @param counted The numbers that it counts in */
  #insert(names: UsageNames, counted: Pick<KeyUse, "models" | "attributed">): Entry {
    const { key, provider, model, operation, team, plan, tariff, attribution, payer } = names;
    const entry: Entry = {
      provider,
      model,
      operation,
      team,
      plan,
      tariff,
      attribution,
      payer,
      counts: noCounts(),
      more: undefined,
    };
    const use = this.#keys.get(key);
    if (use === undefined) {
      // An array that is made with its first row takes 150 bytes less than an array that grows.
      this.#keys.add(key, { rows: [entry], ...counted, index: undefined });
    } else {
      insert(use, entry);
      use.models += counted.models;
      use.attributed += counted.attributed;
    }
    this.#rows++;
    this.#version = Math.max(this.#version, versionOf(names));
    return entry;
  }

  /** Lists the rows, with the start of their hour or day. */
  *rowsAt(at: number): Iterable<UsageRow> {
    for (const [key, { rows }] of this.#keys) {
      for (const entry of rows) {
        const { provider, model, operation, team, plan, tariff, attribution, payer, counts, more } =
          entry;
        const names = { key, provider, model, operation, team, plan, tariff, attribution, payer };
        yield { at, ...names, counts, more };
      }
    }
  }
}
