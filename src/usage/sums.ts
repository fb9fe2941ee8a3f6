/**
 * Sums of usage and their cost by current prices. A cost is stated only if both the amounts and a
 * price are known.
 *
 * @module
 */
import { addClassCosts, type CostClass, formatCost } from "../config/cost.ts";
import { addAmounts, type ClassAmounts } from "../exchange/billing.ts";
import { moreOf, toClasses } from "./classes.ts";
import {
  addCounts,
  addMore,
  CLASS_COUNTS,
  type ClassCount,
  noCounts,
  type UsageCounts,
  type UsageRow,
} from "./counts.ts";
import type { UsageOrder } from "./query.ts";
import { type RowCost, tokensIn } from "./row_cost.ts";

/** Sums of usage, as a report states them. */
export type UsageSums = Readonly<UsageCounts> & {
  /** Input, output and other tokens. */
  readonly tokens: number;
  /** Number of those tokens that have no price. */
  readonly unpriced: number;
  /** Exact cost of everything else, as a decimal number; `null` if nothing has a price. */
  readonly cost: string | null;
  /** The part of the cost that is for estimated tokens. */
  readonly estimatedCost: string | null;
} & ClassSums;

/** Sums by billing class. Those without an amount are left out. */
export type ClassSums = { readonly [Name in ClassCount]?: number } & {
  /** True if something has no price: the cost is a lower bound. */
  readonly costIsPartial: boolean;
  /** Amounts that have no price, by billing class. */
  readonly unpricedClasses?: ClassAmounts;
  /** The amount and the cost of each class, and the cost that providers stated. */
  readonly classes: Readonly<Partial<Record<CostClass, CountedClass>>>;
  /** The amount of the class, in a report by class. */
  readonly amount?: number;
};

/** The sum of one class. */
export interface CountedClass {
  /** Tokens, calls, characters or milliseconds; of `stated`, 10^-10 of the currency. */
  readonly amount: number;
  /** Exact cost of the amount that has a price, as a decimal number; `null` if none has one. */
  readonly cost: string | null;
}

/** The sums of one row of a report. */
export interface Group {
  /** Values of the dimensions, in the order of the query. */
  readonly names: readonly string[];
  readonly counts: UsageCounts;
  more: readonly number[] | undefined;
  /** The amount of a class, in a report by class. */
  amount: number | undefined;
  unpriced: number;
  unpricedClasses: ClassAmounts | undefined;
  cost: bigint | undefined;
  readonly classCosts: Partial<Record<CostClass, bigint>>;
  estimatedCost: bigint;
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

const addClassAmounts = (one: ClassAmounts | undefined, other: ClassAmounts | undefined) =>
  one === undefined || other === undefined ? one ?? other : addAmounts(one, other);

/** Adds the sums of another group. */
export function addGroup(group: Group, more: Group): void {
  addCounts(group.counts, more.counts);
  group.more = addMore(group.more, more.more);
  if (more.amount !== undefined) group.amount = (group.amount ?? 0) + more.amount;
  group.unpriced += more.unpriced;
  group.unpricedClasses = addClassAmounts(group.unpricedClasses, more.unpricedClasses);
  if (more.cost !== undefined) group.cost = (group.cost ?? 0n) + more.cost;
  addClassCosts(group.classCosts, more.classCosts);
  group.estimatedCost += more.estimatedCost;
}

/** Returns zero sums for some values of the dimensions. */
export function newGroup(names: readonly string[]): Group {
  return {
    names,
    counts: noCounts(),
    more: undefined,
    amount: undefined,
    unpriced: 0,
    unpricedClasses: undefined,
    cost: undefined,
    classCosts: {},
    estimatedCost: 0n,
  };
}

/**
 * Adds a row to sums.
 *
 * @param amount The amount of its class, if it is the part of a row
 */
export function addRow(group: Group, row: UsageRow, cost: RowCost, amount?: number): void {
  addCounts(group.counts, row.counts);
  group.more = addMore(group.more, row.more);
  if (amount !== undefined) group.amount = (group.amount ?? 0) + amount;
  if (cost.unpriced !== undefined) {
    group.unpriced += tokensIn(cost.unpriced);
    group.unpricedClasses = addClassAmounts(group.unpricedClasses, cost.unpriced);
  }
  if (cost.amount === undefined) return;
  group.cost = (group.cost ?? 0n) + cost.amount;
  addClassCosts(group.classCosts, cost.classes);
  group.estimatedCost += cost.estimated;
}

/** Returns the amount and the cost of each class. */
function toClassSums(group: Group): ClassSums["classes"] {
  const { cost, classCosts, unpricedClasses = {}, more } = group;
  const amounts: Partial<Record<CostClass, number>> = toClasses(group);
  const stated = moreOf(more, "statedCost");
  if (stated > 0) amounts.stated = stated;
  const sums = (Object.entries(amounts) as [CostClass, number][]).map(([name, amount]) => {
    const isUnpriced = name !== "stated" && (unpricedClasses[name] ?? 0) > 0;
    const known = classCosts[name] ?? (isUnpriced || cost === undefined ? undefined : 0n);
    return [name, { amount, cost: known === undefined ? null : formatCost(known) }];
  });
  return Object.fromEntries(sums);
}

/** Returns the sums in the form of a report. */
export function toSums(group: Group): UsageSums {
  const { counts, more, amount, unpriced, unpricedClasses, cost, estimatedCost } = group;
  const named = CLASS_COUNTS.map((name, index) => [name, more?.[index] ?? 0] as const);
  return {
    ...counts,
    tokens: tokensOf(counts),
    unpriced,
    cost: cost === undefined ? null : formatCost(cost),
    estimatedCost: cost === undefined ? null : formatCost(estimatedCost),
    ...(more && Object.fromEntries(named.filter(([, sum]) => sum > 0))),
    ...(amount !== undefined && { amount }),
    costIsPartial: cost !== undefined && unpricedClasses !== undefined,
    ...(unpricedClasses && { unpricedClasses }),
    classes: toClassSums(group),
  };
}
