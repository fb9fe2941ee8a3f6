/**
 * `sallyport usage`.
 *
 * If usage is stored in Redis, it is read there: Redis has the counts of all gateways. Otherwise
 * the running gateway's admin listener is called. If none runs, the usage file is read.
 *
 * @module
 */
import process from "node:process";
import { UsageQuerySchema } from "../admin/api/usage.ts";
import { USAGE_DIMENSIONS } from "../usage/query.ts";
import type { UsageLine, UsageReport, UsageReports } from "../usage/report.ts";
import type { UsageSums } from "../usage/sums.ts";
import { toReportCsv } from "../usage/report_csv.ts";
import { loadConfig } from "../serve/load_config.ts";
import { USAGE_COUNTS } from "../usage/counts.ts";
import { CommandLineError, print } from "./command.ts";
import { USAGE_FILTERS } from "./command_table.ts";
import type { CommandOptions } from "./options.ts";
import { alignColumns, bold } from "./table.ts";
import { ofExport, toExportPath, withPrices } from "./usage_prices.ts";
import { readQuery, readReport, toCommandLineError, toTexts, withUsage } from "./usage_source.ts";

/** Number of decimals of a cost in the table. JSON and CSV have the exact cost. */
const SHOWN_DECIMALS = 4;
/** Number of characters of a name in the table. */
const MAX_NAME = 40;

const ASKED = [...USAGE_FILTERS, "limit"] as const;

async function findReport(options: CommandOptions): Promise<UsageReport> {
  const { prices } = options;
  const texts = toTexts(options, ASKED);
  const query = readQuery(UsageQuerySchema, texts);
  const loaded = loadConfig(options.config);
  const ofStore = (reports: UsageReports) => reports.report(query);
  if (prices !== undefined) {
    const repriced = withPrices(loaded, prices);
    return await withUsage(repriced, {
      path: toExportPath(texts),
      ofGateway: (parts) => ofStore(ofExport(parts, repriced.config)),
      ofStore,
    });
  }
  return await withUsage(loaded, {
    path: `/v1/usage?${new URLSearchParams(texts)}`,
    ofGateway: readReport,
    ofStore,
  });
}

/** Formats a whole number with its digits in groups of three. */
const toCount = (count: number): string => String(count).replace(/\B(?=(?:[0-9]{3})+$)/g, ",");

/** Formats a cost for people, rounded half up. A cost above zero is never shown as zero. */
function toMoney(cost: string | null): string {
  if (cost === null) return "-";
  const [whole = "0", decimals = ""] = cost.split(".");
  const kept = decimals.slice(0, SHOWN_DECIMALS).padEnd(SHOWN_DECIMALS, "0");
  const up = decimals.charAt(SHOWN_DECIMALS) >= "5" ? 1n : 0n;
  const digits = String(BigInt(whole + kept) + up).padStart(SHOWN_DECIMALS + 1, "0");
  if (/^0+$/.test(digits) && /[1-9]/.test(decimals)) {
    return `<0.${"1".padStart(SHOWN_DECIMALS, "0")}`;
  }
  return `${toCount(Number(digits.slice(0, -SHOWN_DECIMALS)))}.${digits.slice(-SHOWN_DECIMALS)}`;
}

/** True if sums include estimates. A class has no calls, and earlier versions counted only these. */
const hasEstimates = ({ estimated, estimatedInput, estimatedOutput }: UsageSums): boolean =>
  estimated + estimatedInput + estimatedOutput > 0;

/** Formats the cost of a row. `>=` marks a lower bound, `~` a cost with estimated tokens. */
function toCost(sums: UsageSums): string {
  const { cost, costIsPartial } = sums;
  if (cost === null) return "-";
  const mark = hasEstimates(sums) ? "~" : "";
  const text = toMoney(cost);
  if (!costIsPartial) return mark + text;
  return text.startsWith("<") ? ">0" : `>=${mark}${text}`;
}

/** Notes for counts whose names need an explanation. */
const NOTES: readonly [keyof UsageSums, string][] = [
  ["partial", "partial: broke off; the tokens that the provider had stated until then are counted"],
  [
    "estimated",
    "estimated: the provider stated no tokens; ~ marks sums with estimated tokens",
  ],
  ["unmetered", "unmetered: the provider stated no tokens; these can have cost something"],
  ["failed", "failed: refused by the provider, or never reached it"],
  ["written", "written: tokens of input that were written to the provider's cache"],
  ["other", "other: tokens that were stated in sum only"],
  [
    "unpriced",
    "unpriced: tokens without a price, which are no part of the cost; " +
    "see prices in the configuration",
  ],
];

/** Sums that can include estimated tokens. */
const ESTIMATED: ReadonlySet<keyof UsageSums> = new Set([
  "input",
  "output",
  "other",
  "tokens",
  "unpriced",
]);

/** Counts without their own column. A note has their sum. */
const UNSHOWN: ReadonlySet<string> = new Set(["estimatedInput", "estimatedOutput"]);

/**
 * Describes the estimated part of the sums. Counts of earlier versions have only the number of
 * calls.
 */
function toEstimatedNote(sums: UsageSums): string {
  const { tokens, cost, estimatedCost } = sums;
  const estimated = sums.estimatedInput + sums.estimatedOutput;
  if (estimated === 0) return "";
  const ofCost = cost === null ? "" : `, ${toMoney(estimatedCost)} of ${toMoney(cost)}`;
  return `: ${toCount(estimated)} of ${toCount(tokens)} tokens${ofCost}`;
}

function toDay(time: string): string {
  return time.slice(0, 16).replace("T", " ");
}

/** Returns the columns of numbers: those that have any, and by class its amount alone. */
function numbersOf({ by, totals }: UsageReport): readonly (keyof UsageSums)[] {
  const isPlain = new Set<string>(["requests", "input", "output", "tokens"]);
  const all = by.includes("class")
    ? ["unpriced" as const]
    : [...USAGE_COUNTS, "tokens" as const, "unpriced" as const, "written" as const];
  const shown = all.filter((name) =>
    isPlain.has(name) || ((totals[name] ?? 0) > 0 && !UNSHOWN.has(name))
  );
  return by.includes("class") ? ["amount", ...shown] : shown;
}

/** Describes the amounts without a price. */
function toPartialNote({ costIsPartial, unpricedClasses = {} }: UsageSums): readonly string[] {
  if (!costIsPartial) return [];
  const amounts = Object.entries(unpricedClasses).map(([name, amount]) =>
    `${name} ${toCount(amount)}`
  );
  return [`>= is a lower bound: no price for ${amounts.join(", ")}`];
}

function toTable(report: UsageReport): string {
  const { from, to, by, currency, backend, rows, left, totals } = report;
  const period = `${toDay(from)} to ${toDay(to)} UTC`;
  const kept = backend === "memory" ? "\nkept in memory: lost when the gateway ends" : "";
  if (rows.length === 0) return `nothing was used from ${period}${kept}`;
  const texts = [...by, ...(rows.some(({ name }) => name !== undefined) ? ["name" as const] : [])];
  const numbers = numbersOf(report);
  const toCell = (name: keyof UsageSums, line: UsageLine) => {
    const value = line[name];
    const mark = hasEstimates(line) && ESTIMATED.has(name) ? "~" : "";
    return typeof value === "number" ? mark + toCount(value) : "";
  };
  const toRow = (line: UsageLine) => {
    return [
      ...texts.map((name) => Array.from(line[name] ?? "").slice(0, MAX_NAME).join("")),
      ...numbers.map((name) => toCell(name, line)),
      toCost(line),
    ];
  };
  const head = [...texts, ...numbers, `cost ${currency}`].map((title) => title.toUpperCase());
  const total = [
    ...texts.map((_, index) => index === 0 ? "total" : ""),
    ...toRow(totals).slice(texts.length),
  ];
  const cells = [...rows.map(toRow), total];
  const lines = alignColumns(head, cells, (column) => column >= texts.length).split("\n");
  return [
    period,
    "",
    ...lines.slice(0, -1),
    ...lines.slice(-1).map(bold),
    ...(left > 0
      ? ["", `${toCount(left)} more rows are part of the total: --limit N shows more`]
      : []),
    "",
    ...NOTES.filter(([name]) => Number(totals[name]) > 0).map(([name, note]) =>
      name === "estimated" ? note + toEstimatedNote(totals) : note
    ),
    ...toPartialNote(totals),
  ].join("\n").trimEnd() + kept;
}

/**
 * Formats the report as CSV: all rows, always the same columns for the same query, times in UTC,
 * exact costs.
 */
function toCsv({ by, currency, rows }: UsageReport): string {
  return toReportCsv(USAGE_DIMENSIONS.filter((part) => by.includes(part)), currency, rows);
}

/**
 * Shows usage.
 *
 * @throws {CommandLineError} For a mistake in the command, or if usage can't be read
 */
export async function usageCommand(options: CommandOptions): Promise<void> {
  if (options.json && options.csv) {
    throw new CommandLineError("usage accepts either --json or --csv");
  }
  try {
    const report = await findReport(options);
    if (options.json) return void print(`${JSON.stringify(report, null, 2)}\n`);
    if (!options.csv) return void print(`${toTable(report)}\n`);
    print(toCsv(report));
    if (report.left > 0) {
      print(`${report.left} more rows are left out: --limit N prints more\n`, process.stderr);
    }
  } catch (error) {
    throw toCommandLineError(error);
  }
}
