/**
 * Reports of usage: sums by key, provider, model, operation or time, and their cost by current prices. A cost is stated where both
 * the tokens and a price are known, and nowhere else.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { costOf, findPrice, formatCost, type Price } from "../config/prices.ts";
import {
  addCounts,
  DAY_MS,
  DAYS_KEPT_MS,
  HOURS_KEPT_MS,
  noCounts,
  STEP_MS,
  type UsageCounts,
  type UsageRange,
  type UsageRow,
  type UsageStep,
  type UsageStore,
} from "./counts.ts";

/** Dimensions by which usage can be grouped. */
export const USAGE_PARTS = ["key", "provider", "model", "operation", "day", "hour"] as const;
/** One of the dimensions by which usage can be grouped. */
export type UsagePart = typeof USAGE_PARTS[number];

/** A query for a report. */
export interface UsageQuery {
  readonly by: readonly UsagePart[];
  /** Milliseconds since 1970; left out, `lastMs` before the end. */
  readonly from?: number | undefined;
  /** Milliseconds since 1970; left out, now. */
  readonly to?: number | undefined;
  readonly lastMs: number;
  /** Maximum number of rows. */
  readonly limit: number;
  /** Only those of this key, provider, model or operation. */
  readonly key?: string | undefined;
  readonly provider?: string | undefined;
  readonly model?: string | undefined;
  readonly operation?: string | undefined;
}

/** Sums of usage, as a report states them. */
export type UsageSums = Readonly<UsageCounts> & {
  /** Input, output and other tokens. */
  readonly tokens: number;
  /** Number of those tokens that have no price. */
  readonly unpriced: number;
  /** Exact cost of the other tokens, as a decimal number; `null` where none has a price. */
  readonly cost: string | null;
};

/** One row of a report: its values of the dimensions, and its sums. */
export type UsageLine = UsageSums & Partial<Readonly<Record<UsagePart | "name", string>>>;

/** A report of usage. */
export interface UsageReport {
  /** Start and end of the report, in whole hours or days, ISO 8601 in UTC. */
  readonly from: string;
  readonly to: string;
  readonly by: readonly UsagePart[];
  readonly currency: string;
  /** Where usage is kept. */
  readonly backend: UsageStore["backend"];
  readonly rows: readonly UsageLine[];
  /** Number of rows beyond the limit; `totals` includes them. */
  readonly left: number;
  readonly totals: UsageSums;
}

/** The error for a query that can't be answered. */
export class UsageRefusal extends Error {
  override readonly name = "UsageRefusal";
  /** Parameter of the query that is at fault. */
  readonly param: string;

  /**
   * @param param Parameter of the query that is at fault
   * @param message What was expected
   */
  constructor(param: string, message: string) {
    super(message);
    this.param = param;
  }
}

/** Dependencies of the reports. */
export interface UsageReportParts {
  readonly usage: Pick<UsageStore, "backend" | "read">;
  readonly config: Pick<Config, "prices" | "currency" | "providers">;
  /** Source of the names of keys. */
  readonly keys: { get(id: string): Promise<{ readonly name?: string | undefined } | undefined> };
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
}

/** Maximum number of groups, more than anybody reads: all of them are in memory until the last row is added up. */
const MAX_GROUPS = 100_000;

/** The sums of one row of the report. */
interface Group {
  /** Values of the dimensions, in the order of the query. */
  readonly names: readonly string[];
  readonly counts: UsageCounts;
  unpriced: number;
  cost: bigint | undefined;
}

/** Returns the hours or days of a query: hours where they are kept, unless the query groups by day. */
function toRange({ by, from: wanted, to: end, lastMs }: UsageQuery, now: number): UsageRange {
  const to = end ?? now;
  const from = wanted ?? to - lastMs;
  if (from >= to) throw new UsageRefusal(wanted === undefined ? "to" : "from", "expected a time before the end");
  const firstHour = now - HOURS_KEPT_MS;
  if (by.includes("hour") && from < firstHour) {
    throw new UsageRefusal("by", `hours are kept for ${HOURS_KEPT_MS / DAY_MS} days: ask by day, or for a later time`);
  }
  const step: UsageStep = by.includes("day") || from < firstHour ? "day" : "hour";
  const ms = STEP_MS[step];
  const first = Math.max(from, now - DAYS_KEPT_MS);
  return { step, from: Math.floor(first / ms) * ms, to: Math.ceil(Math.max(first, Math.min(to, now + ms)) / ms) * ms };
}

function nameOf(part: UsagePart, row: UsageRow): string {
  if (part !== "day" && part !== "hour") return row[part];
  const time = new Date(row.at).toISOString();
  return part === "day" ? time.slice(0, 10) : `${time.slice(0, 13)}:00Z`;
}

function newGroup(names: readonly string[]): Group {
  return { names, counts: noCounts(), unpriced: 0, cost: undefined };
}

function tokensOf({ input, output, other }: UsageCounts): number {
  return input + output + other;
}

function toSums({ counts, unpriced, cost }: Group): UsageSums {
  return { ...counts, tokens: tokensOf(counts), unpriced, cost: cost === undefined ? null : formatCost(cost) };
}

/** Returns the order of rows: by time, then those with the most tokens first. */
function compare(by: readonly UsagePart[]) {
  const time = by.findIndex((part) => part === "day" || part === "hour");
  const text = (one = "", other = "") => one < other ? -1 : one > other ? 1 : 0;
  return (one: Group, other: Group): number =>
    (time < 0 ? 0 : text(one.names[time], other.names[time])) ||
    tokensOf(other.counts) - tokensOf(one.counts) || other.counts.requests - one.counts.requests ||
    text(one.names.join("\n"), other.names.join("\n"));
}

/** Makes reports. */
export class UsageReports {
  readonly #parts: UsageReportParts;

  /** @param parts Their dependencies */
  constructor(parts: UsageReportParts) {
    this.#parts = parts;
  }

  /**
   * @param query The query
   * @returns The report
   * @throws {UsageRefusal} When it asks for what is not kept, or for too much
   * @throws {UsageUnavailable} When usage can't be read
   */
  async report(query: UsageQuery): Promise<UsageReport> {
    const { usage, config: { currency }, now } = this.#parts;
    const range = toRange(query, now());
    const groups = new Map<string, Group>();
    const total = newGroup([]);
    const priceOf = this.#prices();
    for await (const rows of usage.read(range)) {
      for (const row of rows) {
        if (query.key !== undefined && row.key !== query.key) continue;
        if (query.provider !== undefined && row.provider !== query.provider) continue;
        if (query.model !== undefined && row.model !== query.model) continue;
        if (query.operation !== undefined && row.operation !== query.operation) continue;
        const names = query.by.map((part) => nameOf(part, row));
        const id = names.join("\0");
        let group = groups.get(id);
        if (group === undefined) groups.set(id, group = newGroup(names));
        const price = priceOf(row);
        add(group, row, price);
        add(total, row, price);
      }
      if (groups.size > MAX_GROUPS) throw new UsageRefusal("by", `more than ${MAX_GROUPS} rows: ask for less`);
    }
    const all = Array.from(groups.values()).sort(compare(query.by));
    return {
      from: new Date(range.from).toISOString(),
      to: new Date(range.to).toISOString(),
      by: query.by,
      currency,
      backend: usage.backend,
      rows: await this.#toLines(query.by, all.slice(0, query.limit)),
      left: Math.max(0, all.length - query.limit),
      totals: toSums(total),
    };
  }

  /** Returns a function that finds prices, and looks for each only once. */
  #prices(): (row: UsageRow) => Price | undefined {
    const { prices, providers } = this.#parts.config;
    const found = new Map<string, Price | undefined>();
    return ({ provider, model }) => {
      const id = `${provider}\0${model}`;
      if (!found.has(id)) {
        const own = Object.hasOwn(providers, provider) ? providers[provider]?.prices : undefined;
        found.set(id, findPrice(model, own, prices));
      }
      return found.get(id);
    };
  }

  /** Makes the rows of the report. A key gets its name for people too, if that can be looked up. */
  #toLines(by: readonly UsagePart[], groups: readonly Group[]): Promise<UsageLine[]> {
    const keyIndex = by.indexOf("key");
    return Promise.all(groups.map(async (group) => {
      const id = group.names[keyIndex];
      const key = id === undefined ? undefined : await this.#parts.keys.get(id).catch(() => undefined);
      const about = Object.fromEntries(by.map((part, index) => [part, group.names[index] ?? ""]));
      return { ...about, ...(key?.name !== undefined && { name: key.name }), ...toSums(group) };
    }));
  }
}

function add(group: Group, { counts }: UsageRow, price: Price | undefined): void {
  addCounts(group.counts, counts);
  group.unpriced += price === undefined ? tokensOf(counts) : counts.other;
  if (price !== undefined && counts.input + counts.output > 0) group.cost = (group.cost ?? 0n) + costOf(price, counts);
}
