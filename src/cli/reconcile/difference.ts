/**
 * Differences between the gateway's usage and the provider's export. Each has a name.
 *
 * @module
 */
import { type BillingClass, type ClassAmounts, UNIT_CLASSES } from "../../exchange/billing.ts";

/** Name of a difference. */
export type DifferenceName =
  | "elsewhere"
  | "surplus"
  | "missing"
  | "estimated"
  | "writes"
  | "classes"
  | "delay"
  | "priority"
  | "unpriced"
  | "prices"
  | "rounding"
  | "tools"
  | "storage"
  | "containers"
  | "tax"
  | "credits"
  | "other";

/** Names of differences, and whether they need no action. */
export const DIFFERENCES: Readonly<
  Record<DifferenceName, readonly [isExplained: boolean, text: string]>
> = {
  elsewhere: [true, "calls with other keys or projects, which did not pass the gateway"],
  surplus: [false, "the provider counts more: calls that probably did not pass the gateway"],
  missing: [false, "the gateway counts more: usage of another account, or an incomplete export"],
  estimated: [false, "tokens that the gateway estimated, because no answer stated them"],
  writes: [false, "cache writes that the gateway counts as other input"],
  classes: [false, "the sums of tokens are equal, and their classes differ"],
  delay: [true, "delay: the provider's last day is not complete yet"],
  priority: [true, "the priority tier is a commitment: the provider's costs leave it out"],
  unpriced: [false, "tokens without a price in the configuration"],
  prices: [false, "the counts are equal, and the prices differ"],
  rounding: [true, "rounding of the provider's amounts"],
  tools: [false, "calls of tools, which the export does not state by model"],
  storage: [true, "storage, which no call states"],
  containers: [true, "containers and sessions, which are billed by time"],
  tax: [true, "tax"],
  credits: [true, "credits and discounts: the amount is below the list price"],
  other: [false, "costs of a kind that is not known"],
};

/** Costs by class, in units of 10^-24; `all` for a cost that is not divided. */
export type Costs = Readonly<Partial<Record<BillingClass | "all", bigint>>>;

/** A difference. */
export interface Difference {
  readonly name: DifferenceName;
  readonly day: string;
  /** The model, or the line of the bill. */
  readonly model: string;
  /** The provider's counts, less the gateway's. Classes that are equal are left out. */
  readonly counts: ClassAmounts;
  /** The provider's costs by its list, less the gateway's. Those that are equal are left out. */
  readonly costs: Costs;
}

/** Returns an amount without its sign. */
export const absolute = (value: bigint): bigint => value < 0n ? -value : value;

/** Adds up costs without their signs: classes do not balance each other. */
export function sizeOf(costs: Costs): bigint {
  return Object.values(costs).reduce((sum, cost) => sum + absolute(cost), 0n);
}

/** Adds up some costs. */
export function totalOf(costs: Costs): bigint {
  return Object.values(costs).reduce((sum, cost) => sum + cost, 0n);
}

/** Adds the costs of each class. */
export function addCosts(one: Costs, other: Costs): Costs {
  const sums: Partial<Record<BillingClass | "all", bigint>> = { ...one };
  for (const [name, cost] of Object.entries(other) as [BillingClass | "all", bigint][]) {
    sums[name] = (sums[name] ?? 0n) + cost;
  }
  return sums;
}

/** Sums of counts: `tokens` of all classes, and each class that is not tokens. */
export type Measures = Readonly<Record<string, number>>;

/** Adds the sizes of some counts to sums. */
export function addMeasures(sums: Measures, counts: ClassAmounts): Measures {
  const next: Record<string, number> = { ...sums };
  for (const [name, count] of Object.entries(counts)) {
    const measure = UNIT_CLASSES.some((each) => each === name) ? name : "tokens";
    next[measure] = (next[measure] ?? 0) + Math.abs(count);
  }
  return next;
}

/** The differences that need an action: their costs and their counts, as absolute amounts. */
export function sumUnexplained(
  differences: readonly Difference[],
): { readonly cost: bigint; readonly counts: Measures } {
  let cost = 0n;
  let sums: Measures = { tokens: 0 };
  for (const { name, counts, costs } of differences) {
    if (DIFFERENCES[name][0]) continue;
    cost += sizeOf(costs);
    sums = addMeasures(sums, counts);
  }
  return { cost, counts: sums };
}
