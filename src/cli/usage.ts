/**
 * `sallyport usage`.
 *
 * If usage is kept in Redis, it is read there: Redis has the counts of all gateways. Otherwise the running gateway is
 * asked at its admin listener; if none runs, the file that it has left is read.
 *
 * @module
 */
import process from "node:process";
import * as v from "valibot";
import { describeIssue } from "../config/issue.ts";
import { UsageQuerySchema } from "../admin/api/usage.ts";
import {
  USAGE_PARTS,
  type UsageLine,
  UsageRefusal,
  type UsageReport,
  UsageReports,
  type UsageSums,
} from "../usage/report.ts";
import { assemble } from "../serve/compose.ts";
import { loadConfig, type LoadedConfig } from "../serve/load_config.ts";
import { USAGE_COUNTS, UsageUnavailable } from "../usage/counts.ts";
import { type AdminAnswer, askAdmin, toAdminUrl } from "./ask_admin.ts";
import { CommandLineError, print } from "./command.ts";
import type { CommandOptions } from "./options.ts";
import { alignColumns, bold, toPlain } from "./table.ts";

/** The longest silence of the gateway. Milliseconds. */
const ASK_MS = 30_000;
/** The number of decimals of a cost in the table; JSON and CSV state it exactly. */
const SHOWN_DECIMALS = 4;
/** The number of characters of a name that the table shows. */
const MAX_NAME = 40;

const ASKED = ["by", "last", "from", "to", "key", "provider", "model", "operation", "limit"] as const;

/** Returns the options of the query that were given, as texts. */
function toTexts(options: CommandOptions): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const name of ASKED) {
    const text = options[name];
    if (text === "") throw new CommandLineError(`--${name} is empty: give a value, or leave it out`);
    if (text !== undefined) texts[name] = text;
  }
  return texts;
}

function readQuery(texts: Readonly<Record<string, string>>) {
  const result = v.safeParse(UsageQuerySchema, texts);
  if (result.success) return result.output;
  const { path, message } = describeIssue(result.issues[0]);
  throw new CommandLineError(`--${path}: ${message}`);
}

const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
const sums = {
  ...v.entriesFromList([...USAGE_COUNTS, "tokens", "unpriced"], count),
  cost: v.nullable(v.pipe(v.string(), v.regex(/^[0-9]+(?:\.[0-9]{1,12})?$/))),
};
/** Schema of a gateway's answer. */
const ReportSchema = v.object({
  from: v.string(),
  to: v.string(),
  by: v.array(v.picklist(USAGE_PARTS)),
  currency: v.string(),
  backend: v.picklist(["memory", "file", "redis"]),
  left: count,
  rows: v.array(v.object({ ...v.entriesFromList([...USAGE_PARTS, "name"], v.exactOptional(v.string())), ...sums })),
  totals: v.object(sums),
});

/** Asks the gateway that runs. @returns Its answer; `undefined` where nobody listens */
async function askGateway(url: string, token: string): Promise<AdminAnswer | undefined> {
  try {
    return await askAdmin(url, { timeout: ASK_MS, token });
  } catch {
    throw new CommandLineError(`the gateway at ${new URL(url).origin} does not answer as it should`);
  }
}

function readAnswer({ status, text }: AdminAnswer, origin: string): UsageReport {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    throw new CommandLineError(`what answers at ${origin} is no gateway: see admin in the configuration`);
  }
  if (status === 200 && v.is(ReportSchema, content)) return content;
  if (status === 200) throw new CommandLineError(`what answers at ${origin} is no gateway of this version`);
  if (status === 401) {
    throw new CommandLineError(`the gateway at ${origin} has another admin.token than the configuration`);
  }
  const { error } = content as { error?: { message?: unknown } };
  throw new CommandLineError(
    `the gateway at ${origin} answers ${status}: ${toPlain(String(error?.message ?? "no reason"))}`,
  );
}

/** Reads usage from its store, without a gateway. */
async function readKept({ config, directory }: LoadedConfig, query: v.InferOutput<typeof UsageQuerySchema>) {
  const assembly = await assemble(config, { directory, report: () => {}, isServing: false });
  try {
    const { usage, keys } = assembly;
    return await new UsageReports({ usage, config, keys, now: Date.now }).report(query);
  } finally {
    await assembly.close();
  }
}

async function findReport(loaded: LoadedConfig, options: CommandOptions): Promise<UsageReport> {
  const texts = toTexts(options);
  const query = readQuery(texts);
  const { redis, admin, keys } = loaded.config;
  if (redis !== undefined) return await readKept(loaded, query);
  const hasFile = !Array.isArray(keys);
  if (admin?.token !== undefined && admin.port !== 0) {
    const origin = toAdminUrl(admin);
    const answer = await askGateway(`${origin}/v1/usage?${new URLSearchParams(texts)}`, admin.token);
    if (answer !== undefined) return readAnswer(answer, origin);
    if (!hasFile) throw new CommandLineError(`no gateway runs at ${origin}, which alone knows what was used`);
    print(`no gateway runs at ${origin}: this is what the last one has left\n`, process.stderr);
  }
  if (hasFile) return await readKept(loaded, query);
  throw new CommandLineError("usage is known to the gateway alone: configure admin with a port and a token to ask it");
}

/** Formats a whole number with its digits in groups of three. */
const toCount = (count: number): string => String(count).replace(/\B(?=(?:[0-9]{3})+$)/g, ",");

/** Formats a cost for people, rounded half up; a cost above zero is never shown as zero. */
function toMoney(cost: string | null): string {
  if (cost === null) return "-";
  const [whole = "0", decimals = ""] = cost.split(".");
  const kept = decimals.slice(0, SHOWN_DECIMALS).padEnd(SHOWN_DECIMALS, "0");
  const up = Number(decimals[SHOWN_DECIMALS] ?? 0) >= 5 ? 1n : 0n;
  const digits = String(BigInt(whole + kept) + up).padStart(SHOWN_DECIMALS + 1, "0");
  if (/^0+$/.test(digits) && /[1-9]/.test(decimals)) return `<0.${"1".padStart(SHOWN_DECIMALS, "0")}`;
  return `${toCount(Number(digits.slice(0, -SHOWN_DECIMALS)))}.${digits.slice(-SHOWN_DECIMALS)}`;
}

/** Notes that explain counts whose name alone is not clear. */
const NOTES: readonly [keyof UsageSums, string][] = [
  ["partial", "partial: broke off; what the provider had stated until then is counted"],
  ["unmetered", "unmetered: the provider stated no tokens; these may have cost something"],
  ["failed", "failed: refused by the provider, or never reached it"],
  ["other", "other: tokens that were stated in sum only"],
  ["unpriced", "unpriced: tokens without a price, which are no part of the cost; see prices in the configuration"],
];

function toDay(time: string): string {
  return time.slice(0, 16).replace("T", " ");
}

function toTable({ from, to, by, currency, backend, rows, left, totals }: UsageReport): string {
  const period = `${toDay(from)} to ${toDay(to)} UTC`;
  const kept = backend === "memory" ? "\nkept in the gateway's memory: its end forgets it" : "";
  if (rows.length === 0) return `nothing was used from ${period}${kept}`;
  const texts = [...by, ...(rows.some(({ name }) => name !== undefined) ? ["name" as const] : [])];
  const isPlain = new Set<string>(["requests", "input", "output", "tokens"]);
  const numbers = [...USAGE_COUNTS, "tokens" as const, "unpriced" as const]
    .filter((name) => isPlain.has(name) || totals[name] > 0);
  const toRow = (line: UsageLine) => [
    ...texts.map((name) => Array.from(line[name] ?? "").slice(0, MAX_NAME).join("")),
    ...numbers.map((name) => toCount(line[name])),
    toMoney(line.cost),
  ];
  const head = [...texts, ...numbers, `cost ${currency}`].map((title) => title.toUpperCase());
  const total = [...texts.map((_, index) => index === 0 ? "total" : ""), ...toRow(totals).slice(texts.length)];
  const lines = alignColumns(head, [...rows.map(toRow), total], (column) => column >= texts.length).split("\n");
  const sum = lines.pop() ?? "";
  return [
    period,
    "",
    ...lines,
    bold(sum),
    ...(left > 0 ? ["", `${toCount(left)} more rows are part of the total: --limit N shows more`] : []),
    "",
    ...NOTES.filter(([name]) => Number(totals[name]) > 0).map(([, note]) => note),
  ].join("\n").trimEnd() + kept;
}

/** Formats one field of a CSV (RFC 4180 §2). A value that a spreadsheet would take for a formula is made a text. */
function toField(value: unknown): string {
  const text = toPlain(String(value ?? ""));
  const safe = /^[=+\-@]/.test(text) ? `'${text}` : text;
  return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Formats the report as CSV: all rows, and always the same columns for the same query; times in UTC, costs exact. */
function toCsv({ by, currency, rows }: UsageReport): string {
  const texts = USAGE_PARTS.filter((part) => by.includes(part)).flatMap((part) =>
    part === "key" ? [part, "name"] : part
  );
  const names = [...texts, ...USAGE_COUNTS, "tokens", "unpriced", "cost"] as (keyof UsageLine)[];
  const lines = [
    [...names, "currency"],
    ...rows.map((row) => [...names.map((name) => row[name]), row.cost === null ? "" : currency]),
  ];
  return lines.map((line) => `${line.map(toField).join(",")}\r\n`).join("");
}

/**
 * Shows what was used.
 *
 * @param options The query, and the format of the output
 * @throws {CommandLineError} For a mistake in the command, and when usage can't be read
 */
export async function usageCommand(options: CommandOptions): Promise<void> {
  if (options.json && options.csv) throw new CommandLineError("usage takes either --json or --csv");
  try {
    const report = await findReport(loadConfig(options.config), options);
    if (options.json) return void print(`${JSON.stringify(report, null, 2)}\n`);
    if (!options.csv) return void print(`${toTable(report)}\n`);
    print(toCsv(report));
    if (report.left > 0) print(`${report.left} more rows are left out: --limit N prints more\n`, process.stderr);
  } catch (error) {
    if (error instanceof UsageUnavailable) throw new CommandLineError(error.message);
    if (error instanceof UsageRefusal) throw new CommandLineError(`--${error.param}: ${error.message}`);
    throw error;
  }
}
