/**
 * The report of an import: the differences to the file, and everything that was not taken.
 *
 * @module
 */
import type { Price, PriceRow, Prices } from "../../config/prices.ts";
import { toPlain } from "../table.ts";
import { type Findings, type Reason, REASONS } from "./findings.ts";
import type { Merged } from "./merge.ts";
import { rowsOf } from "./row_set.ts";

const toText = (value: unknown): string =>
  typeof value === "object" ? JSON.stringify(value) : String(value);

function toConditions(when: object): string {
  const parts = Object.entries(when).map(([name, value]) => `${name} ${toText(value)}`);
  return parts.length === 0 ? "" : `[${parts.join(", ")}] `;
}

function toRow({ when = {}, rates }: PriceRow): string {
  const parts = Object.entries(rates).map(([name, rate]) => `${name} ${rate}`);
  return toConditions(when) + parts.join(", ");
}

/** Lists the rows and factors of a price, each as a line. A missing price has none. */
function toLines(price: Price | undefined): string[] {
  if (price === undefined) return [];
  return [
    ...rowsOf(price).map(toRow),
    ...(price.factors ?? []).map(({ when, times }) => `${toConditions(when)}tokens x ${times}`),
  ];
}

/** Formats the lines that only one of two prices has. */
function toChange(model: string, old: Price | undefined, next: Price | undefined): string[] {
  const before = toLines(old);
  const after = toLines(next);
  const removed = before.filter((line) => !after.includes(line));
  const added = after.filter((line) => !before.includes(line));
  return [
    `  ${model}`,
    ...removed.map((line) => `    - ${line}`),
    ...added.map((line) => `    + ${line}`),
  ];
}

/** Formats the report. */
export function toReport(old: Prices, merged: Merged, findings: Findings): string {
  const lines: string[] = [];
  for (const kind of ["added", "changed", "closed"] as const) {
    if (merged[kind].length === 0) continue;
    lines.push(`${kind} (${merged[kind].length}):`);
    for (const model of merged[kind].toSorted()) {
      const before = Object.hasOwn(old, model) ? old[model] : undefined;
      lines.push(...toChange(model, before, merged.prices[model]));
    }
  }
  if (merged.unchanged.length > 0) {
    lines.push(`unchanged (${merged.unchanged.length}): ${merged.unchanged.toSorted().join(", ")}`);
  }
  for (const reason of Object.keys(REASONS) as Reason[]) {
    const found = findings.list(reason);
    if (found.length === 0) continue;
    lines.push(`${REASONS[reason]}:`);
    for (const [key, models] of found) lines.push(`  ${key} (${models.join(", ")})`);
  }
  return lines.map((line) => `${toPlain(line)}\n`).join("");
}
