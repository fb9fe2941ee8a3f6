/**
 * A report of usage as comma-separated values. The command line and the console write the same.
 *
 * @module
 */
import type { CostClass } from "../config/cost.ts";
import { BILLING_CLASSES, type ClassAmounts } from "../exchange/billing.ts";
import { CLASS_COUNTS, type ClassCount, USAGE_COUNTS } from "./counts.ts";
import { toCsvLine } from "./csv.ts";
import type { UsageLine } from "./report.ts";
import type { UsageSums } from "./sums.ts";

/** Columns of sums, in order. Later columns are added at the end. */
export const SUM_COLUMNS: readonly (keyof UsageSums)[] = [
  ...USAGE_COUNTS,
  "tokens",
  "unpriced",
  "cost",
  "estimatedCost",
];
type ClassColumn = "amount" | "costIsPartial" | "unpricedClasses";

/** Columns of sums after the currency. */
export const CLASS_COLUMNS: readonly (ClassCount | ClassColumn)[] = [
  ...CLASS_COUNTS,
  "amount",
  "costIsPartial",
  "unpricedClasses",
];
const CLASSES: readonly CostClass[] = [...BILLING_CLASSES, "stated"];
/** The last columns: the amount and the cost of each class. */
export const COST_COLUMNS: readonly string[] = CLASSES.flatMap((name) => [
  `${name}.amount`,
  `${name}.cost`,
]);

/** Formats amounts by class, such as `cacheWriteLong=300 webSearches=2`. */
function formatClasses(classes: ClassAmounts = {}): string {
  return Object.entries(classes).map(([name, amount]) => `${name}=${amount}`).join(" ");
}

/** Returns the values of the columns after the currency. */
export function toClassValues(sums: UsageSums): readonly unknown[] {
  return CLASS_COLUMNS.map((name) => {
    if (name === "unpricedClasses") return formatClasses(sums.unpricedClasses);
    return name === "amount" ? sums.amount : sums[name] ?? 0;
  });
}

/** Returns the values of the last columns. The cost of a class without a price is empty. */
export function toCostValues({ classes }: UsageSums): readonly unknown[] {
  return CLASSES.flatMap((name) => {
    const { amount = 0, cost = "" } = classes[name] ?? {};
    return [amount, cost];
  });
}

/** Formats rows of a report, with exact costs and times in UTC. */
export function toReportCsv(
  dimensions: readonly (keyof UsageLine)[],
  currency: string,
  rows: readonly UsageLine[],
): string {
  const names = dimensions.flatMap((part) => part === "key" ? [part, "name" as const] : [part]);
  const head = [...names, ...SUM_COLUMNS, "currency", ...CLASS_COLUMNS, ...COST_COLUMNS];
  const lines = rows.map((row) => [
    ...[...names, ...SUM_COLUMNS].map((name) => row[name]),
    row.cost === null ? "" : currency,
    ...toClassValues(row),
    ...toCostValues(row),
  ]);
  return [head, ...lines].map(toCsvLine).join("");
}
