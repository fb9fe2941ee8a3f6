/**
 * Usage as text, part by part: JSON lines, and comma-separated values.
 *
 * @module
 */
import { DIMENSIONS } from "../config/dimensions.ts";
import type { Rest } from "./counts.ts";
import { toCsvLine } from "./csv.ts";
import type { UsageExportRow, UsageReport } from "./report.ts";
import {
  CLASS_COLUMNS,
  COST_COLUMNS,
  SUM_COLUMNS,
  toClassValues,
  toCostValues,
} from "./report_csv.ts";
import { inParts } from "./usage_memory.ts";

/** Formats of an export, with their media types. */
export const EXPORT_TYPES = {
  jsonl: "application/x-ndjson",
  csv: "text/csv; charset=utf-8",
} as const;
/** Name of a format. */
export type ExportFormat = keyof typeof EXPORT_TYPES;

const COLUMNS: readonly (keyof UsageExportRow)[] = [
  "from",
  "step",
  "key",
  "provider",
  "model",
  "operation",
  "team",
  ...SUM_COLUMNS,
  "currency",
];

const toJsonLine = (row: UsageExportRow): string => `${JSON.stringify(row)}\n`;

const toExportLine = (row: UsageExportRow): string =>
  toCsvLine([
    ...COLUMNS.map((name) => row[name]),
    ...toClassValues(row),
    row.tariff,
    ...toCostValues(row),
    ...DIMENSIONS.map((name) => row[name]),
    row.payer,
  ]);

/**
 * Formats an export, part by part. The first part waits for the first rows, so that an export that
 * cannot begin fails there.
 */
export async function* toExportText(
  format: ExportFormat,
  parts: AsyncIterable<readonly UsageExportRow[]>,
): AsyncIterable<string> {
  const names = [...COLUMNS, ...CLASS_COLUMNS, "tariff", ...COST_COLUMNS, ...DIMENSIONS, "payer"];
  let head = format === "csv" ? toCsvLine(names) : "";
  const toText = format === "csv" ? toExportLine : toJsonLine;
  for await (const rows of parts) {
    yield head + rows.map(toText).join("");
    head = "";
  }
  if (head !== "") yield head;
}

/** Formats a report as JSON, part by part. */
export async function* toReportText(
  { rows, ...about }: UsageReport,
  rest: Rest,
): AsyncIterable<string> {
  yield `${JSON.stringify(about).slice(0, -1)},"rows":[`;
  let comma = "";
  for (const some of inParts(rows)) {
    yield comma + some.map((row) => JSON.stringify(row)).join(",");
    comma = ",";
    await rest();
  }
  yield "]}";
}
