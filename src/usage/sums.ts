/**
 * Sums of usage and their cost by current prices. A cost is stated only if both the tokens and a
 * price are known.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { costOf, formatCost } from "../config/cost.ts";
import { PriceBook } from "../config/price_book.ts";
import type { Price } from "../config/prices.ts";
import { partsOf } from "../exchange/billing.ts";
import { addCounts, noCounts, type UsageCounts, type UsageRow } from "./counts.ts";
import type { UsageOrder } from "./query.ts";

/** Sums of usage, as a report states them. */
export type UsageSums = Readonly<UsageCounts> & {
  /** Input, output and other tokens. */
  readonly tokens: number;
  /** Number of those tokens that have no price. */
  readonly unpriced: number;
  /** Exact cost of the other tokens, as a decimal number; `null` if none has a price. */
  readonly cost: string | null;
  /** The part of the cost that is for estimated tokens. */
  readonly estimatedCost: string | null;
};

/** The sums of one row of a report. */
export interface Group {
  /** Values of the dimensions, in the order of the query. */
  readonly names: readonly string[];
  readonly counts: UsageCounts;
  unpriced: number;
  cost: bigint | undefined;
  estimatedCost: bigint;
}

/** Returns a function that finds the price of a row. Each price is looked up once. */
export function createPricing(
  settings: Pick<Config, "prices" | "providers">,
): (row: UsageRow) => Price | undefined {
  const prices = new PriceBook(settings);
  return (row) => prices.find(row);
}

/** Returns the sum of input, output and other tokens. */
export function tokensOf({ input, output, other }: Readonly<UsageCounts>): number {
  return input + output + other;
}

/** Returns the sum that orders a group in a report. */
export function valueOf({ counts, unpriced, cost }: Group, order: UsageOrder): number | bigint {
  if (order === "cost") return cost ?? 0n;
  if (order === "unpriced") return unpriced;
  return order === "tokens" ? tokensOf(counts) : counts[order];
}

/** Adds the sums of another group. */
export function addGroup(group: Group, more: Group): void {
  addCounts(group.counts, more.counts);
  group.unpriced += more.unpriced;
  if (more.cost !== undefined) group.cost = (group.cost ?? 0n) + more.cost;
  group.estimatedCost += more.estimatedCost;
}

/** Returns zero sums for some values of the dimensions. */
export function newGroup(names: readonly string[]): Group {
  return { names, counts: noCounts(), unpriced: 0, cost: undefined, estimatedCost: 0n };
}

/** Computes the cost of some counts; `undefined` without a price. */
function costOfTokens(
  price: Price | undefined,
  { input, output, cached = 0, other = 0 }:
    & Pick<UsageCounts, "input" | "output">
    & Partial<UsageCounts>,
  at: number,
): bigint | undefined {
  const [part] = partsOf({ total: input + output + other, input, output, cached });
  return part && costOf(price, part, at).amount;
}

/** Adds a row to sums. */
export function addRow(group: Group, { counts, at }: UsageRow, price: Price | undefined): void {
  addCounts(group.counts, counts);
  const cost = costOfTokens(price, counts, at);
  group.unpriced += cost === undefined ? tokensOf(counts) : 0;
  if (cost === undefined || tokensOf(counts) === 0) return;
  group.cost = (group.cost ?? 0n) + cost;
  if (counts.estimated === 0) return;
  const estimated = { input: counts.estimatedInput, output: counts.estimatedOutput };
  group.estimatedCost += costOfTokens(price, estimated, at) ?? 0n;
}

/** Returns the sums in the form of a report. */
export function toSums(group: Group): UsageSums {
  const { counts, unpriced, cost, estimatedCost } = group;
  return {
    ...counts,
    tokens: tokensOf(counts),
    unpriced,
    cost: cost === undefined ? null : formatCost(cost),
    estimatedCost: cost === undefined ? null : formatCost(estimatedCost),
  };
}
