/** The results as text for people. */
import { goalFor, isWithin, toText } from "./goals.ts";
import type { Comparison, Result, Row } from "./session.ts";
import type { Spread } from "./statistics.ts";

function toFigure(value: number): string {
  if (!Number.isFinite(value)) return "-";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

function toText3({ median, min, max }: Spread): string {
  return `${toFigure(median).padStart(9)}  ${`(${toFigure(min)}..${toFigure(max)})`.padEnd(20)}`;
}

function toDetails({ details, answers }: Row): string {
  const shown: readonly [string, string, string][] = [
    ["cpuUs", "cpu", "µs"],
    ["p99Us", "p99", "µs"],
    ["p50Ms", "delay p50", "ms"],
    ["p99Ms", "p99", "ms"],
    ["p999Ms", "p99.9", "ms"],
    ["maxMs", "max", "ms"],
  ];
  const texts = shown.flatMap(([key, label, unit]) => {
    const value = details[key];
    return value === undefined ? [] : [`${label} ${toFigure(value)} ${unit}`];
  });
  if (answers !== undefined) {
    const count = answers.count.toLocaleString("en");
    texts.push(answers.wrong === 0 ? `all ${count} right` : `${answers.wrong} of ${count} WRONG`);
  }
  if (details.busy !== undefined) texts.push(`core ${(details.busy * 100).toFixed(0)} % busy`);
  return texts.join(", ");
}

function toRowLine(row: Row, name: Result["name"], width: number): string {
  const notes = [toDetails(row)].filter((text) => text !== "");
  const goal = name === "memory" || name === "quiet" ? goalFor(name, row.subject) : undefined;
  if (goal !== undefined) {
    notes.push(
      `goal ${toText(goal)}: ${isWithin({ value: row.spread.median }, goal) ? "met" : "MISSED"}`,
    );
  }
  if (row.isNoisy) notes.push(`NOISY: others had ${(row.foreign * 100).toFixed(0)} % of its core`);
  for (const objection of row.objections) notes.push(`NOT QUOTABLE: ${objection}`);
  return `  ${row.subject.padEnd(width)}${toText3(row.spread)}  ${notes.join("; ")}`.trimEnd();
}

function toComparisonLine(
  { subject, base, spread, byCpu, goal, isMet, isQuotable }: Comparison,
  result: Result,
): string {
  const sign = result.compare === "ratio" ? "/" : "-";
  const notes: string[] = [];
  if (byCpu !== undefined) {
    notes.push(`by cpu ${toFigure(byCpu.median)} (${toFigure(byCpu.min)}..${toFigure(byCpu.max)})`);
  }
  if (goal !== undefined) notes.push(`goal ${toText(goal)}: ${isMet ? "met" : "MISSED"}`);
  if (!isQuotable) notes.push("NOT QUOTABLE");
  return `  ${subject} ${sign} ${base}${toText3(spread)}  ${notes.join("; ")}`.trimEnd();
}

/**
 * A result as text.
 *
 * @param result The result
 * @returns Lines: the median and range of each subject, then each gateway compared with its base
 */
export function toReport(result: Result): string {
  const lines = [`\n${result.name}: ${result.title} (${result.unit})`];
  const width = Math.max(...result.rows.map(({ subject }) => subject.length));
  for (const row of result.rows) lines.push(toRowLine(row, result.name, width));
  for (const comparison of result.comparisons) lines.push(toComparisonLine(comparison, result));
  return lines.join("\n");
}
