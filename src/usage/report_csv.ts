/**
 * A report of usage as comma-separated values. The command line and the console write the same.
 *
 * @module
 */
import type { CostClass } from "../config/cost.ts";
import { BILLING_CLASSES, type ClassAmounts } from "../exchange/billing.ts";
import { CLASS_COUNTS, USAGE_COUNTS } from "./counts.ts";
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
/** Columns of sums after the currency. */
const MORE_COLUMNS = [
  ...CLASS_COUNTS,
  "amount",
  "costIsPartial",
  "unpricedClasses",
] as const;
const CLASSES: readonly CostClass[] = [...BILLING_CLASSES, "stated"];
/** Names of all columns after the currency: those of sums, and two for each class. */
export const CLASS_COLUMNS: readonly string[] = [
  ...MORE_COLUMNS,
  ...CLASSES.flatMap((name) => [`${name}.amount`, `${name}.cost`]),
];

/** Formats amounts by class, such as `cacheWriteLong=300 webSearches=2`. */
function formatClasses(classes: ClassAmounts = {}): string {
  return Object.entries(classes).map(([name, amount]) => `${name}=${amount}`).join(" ");
}

/** Returns the values of the columns after the currency. The cost of an unpriced class is empty. */
export function toClassValues(sums: UsageSums): readonly unknown[] {
  const values = MORE_COLUMNS.map((name) => {
    if (name === "unpricedClasses") return formatClasses(sums.unpricedClasses);
    return name === "amount" ? sums.amount : sums[name] ?? 0;
  });
  const ofClasses = CLASSES.flatMap((name) => {
    const { amount = 0, cost = "" } = sums.classes[name] ?? {};
    return [amount, cost];
  });
  return [...values, ...ofClasses];
}

/** Formats rows of a report, with exact costs and times in UTC. */
export function toReportCsv(
  dimensions: readonly (keyof UsageLine)[],
  currency: string,
  rows: readonly UsageLine[],
): string {
  const names = dimensions.flatMap((part) => part === "key" ? [part, "name" as const] : [part]);
  const head = [...names, ...SUM_COLUMNS, "currency", ...CLASS_COLUMNS];
  const lines = rows.map((row) => [
    ...[...names, ...SUM_COLUMNS].map((name) => row[name]),
    row.cost === null ? "" : currency,
    ...toClassValues(row),
  ]);
  return [head, ...lines].map(toCsvLine).join("");
}
