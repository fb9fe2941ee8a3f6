/**
 * `sallyport reconcile`: compares the gateway's usage with the provider's export.
 *
 * @module
 */
import process from "node:process";
import { isDate } from "../../config/calendar.ts";
import { formatCost, parseCost } from "../../config/cost.ts";
import { loadConfig, type LoadedConfig } from "../../serve/load_config.ts";
import { CommandLineError, print } from "../command.ts";
import type { CommandOptions } from "../options.ts";
import { alignColumns, toPlain } from "../table.ts";
import { readAnthropicExport } from "./anthropic_export.ts";
import { compare, type Comparison } from "./compare.ts";
import { COMPARED } from "./compared_classes.ts";
import {
  type Costs,
  type Difference,
  type DifferenceName,
  DIFFERENCES,
  type Measures,
  sizeOf,
  sumUnexplained,
  totalOf,
} from "./difference.ts";
import { type ExportName, fetchExport, type Period } from "./fetch_export.ts";
import { readGatewayUsage } from "./gateway_usage.ts";
import { readOpenaiExport } from "./openai_export.ts";
import { type PlacedEntry, type ProviderExport, readExportFile } from "./provider_export.ts";

const READERS = { openai: readOpenaiExport, anthropic: readAnthropicExport } as const;
const HOSTS = { openai: "api.openai.com", anthropic: "api.anthropic.com" } as const;
const DAY_MS = 86_400_000;
const DEFAULT_DAYS = 7;
/** Decimals of the money that is shown. */
const SHOWN_DECIMALS = 6;

const toDay = (at: number): string => new Date(at).toISOString().slice(0, 10);
const dayAfter = (day: string): string => toDay(Date.parse(day) + DAY_MS);

/** The largest difference without exit status 1. */
interface Tolerance {
  /** Units of 10^-24 of the currency. */
  readonly money: bigint;
  /** Part of the provider's cost and tokens; `undefined` if it is an amount of money. */
  readonly part: number | undefined;
}

function readTolerance(text = "0"): Tolerance {
  const [, number = "", percent] = /^(\d+(?:\.\d{1,9})?)(%)?$/.exec(text) ?? [];
  if (number === "") {
    throw new CommandLineError("--tolerance takes an amount such as 0.05, or a part such as 0.5%");
  }
  return percent === undefined
    ? { money: parseCost(number), part: undefined }
    : { money: 0n, part: Number(number) / 100 };
}

function readName({ openai, anthropic, fetch: asked }: CommandOptions): ExportName {
  const given = [
    ...(openai === undefined ? [] : ["openai"]),
    ...(anthropic === undefined ? [] : ["anthropic"]),
    ...(asked === undefined ? [] : [asked]),
  ];
  const [name] = given;
  if (given.length === 1 && (name === "openai" || name === "anthropic")) return name;
  throw new CommandLineError(
    "reconcile takes one of --openai FILE, --anthropic FILE, --fetch openai or --fetch anthropic",
  );
}

function readDays({ from, to }: CommandOptions): Partial<Period> {
  for (const [name, text] of Object.entries({ from, to })) {
    if (text !== undefined && !isDate(text)) {
      throw new CommandLineError(`--${name} takes a day such as 2026-11-01`);
    }
  }
  return { ...(from !== undefined && { from }), ...(to !== undefined && { to }) };
}

/** Finds the providers of the configuration whose usage is compared. */
function findProviders(
  { config }: LoadedConfig,
  named: string | undefined,
  name: ExportName,
): string[] {
  const { providers } = config;
  if (named !== undefined) {
    if (Object.hasOwn(providers, named)) return [named];
    throw new CommandLineError(`--provider takes one of ${Object.keys(providers).join(", ")}`);
  }
  const all = Object.entries(providers);
  const own = all.filter(([, provider]) =>
    provider.upstreams.some((upstream) => new URL(upstream).hostname === HOSTS[name])
  );
  const found = own.length > 0 ? own : all;
  if (own.length > 0 || all.length === 1) return found.map(([each]) => each);
  throw new CommandLineError(`no provider calls ${HOSTS[name]}: name it with --provider`);
}

/** Drops entries of other days, and returns the period that remains. */
function inPeriod(
  { usage, costs }: ProviderExport,
  days: Partial<Period>,
): { readonly exported: ProviderExport; readonly period: Period } {
  const all = [...usage, ...costs].map(({ day }) => day).toSorted();
  const first = all[0];
  const last = all.at(-1);
  if (first === undefined || last === undefined) {
    throw new CommandLineError("the export has no usage and no costs");
  }
  const period = { from: days.from ?? first, to: days.to ?? dayAfter(last) };
  const isIn = ({ day }: { readonly day: string }) => day >= period.from && day < period.to;
  return { exported: { usage: usage.filter(isIn), costs: costs.filter(isIn) }, period };
}

async function readEntries(
  options: CommandOptions,
  name: ExportName,
  { from, to }: Partial<Period>,
): Promise<PlacedEntry[]> {
  const files = options[name];
  if (files !== undefined) return files.flatMap(readExportFile);
  const end = to ?? toDay(Date.now());
  const start = from ?? toDay(Date.parse(end) - DEFAULT_DAYS * DAY_MS);
  return await fetchExport(name, { from: start, to: end }, options["base-url"]);
}

/** Formats a difference of money with its sign, rounded for people. */
function toMoney(cost: bigint): string {
  const [whole = "0", decimals = ""] = formatCost(cost < 0n ? -cost : cost).split(".");
  const shown = decimals.slice(0, SHOWN_DECIMALS).replace(/0+$/, "");
  const text = shown === "" ? whole : `${whole}.${shown}`;
  const isTiny = cost !== 0n && /^0$/.test(text);
  return (cost < 0n ? "-" : "") + (isTiny ? "0.000001 or less" : text);
}

const toSignedMoney = (cost: bigint): string => (cost > 0n ? "+" : "") + toMoney(cost);

/** Formats differences of costs: their sum, or each class if a sum would hide some. */
function toCostText(costs: Costs): string {
  const total = totalOf(costs);
  const isBalanced = sizeOf(costs) !== (total < 0n ? -total : total);
  if (!isBalanced) return toSignedMoney(total);
  return Object.entries(costs).map(([name, cost]) => `${name} ${toSignedMoney(cost)}`).join(", ");
}

const toSigned = (value: number): string => value > 0 ? `+${value}` : String(value);

/** Formats the differences of one kind. */
function toSection(name: DifferenceName, found: readonly Difference[], hasCosts: boolean): string {
  const [isExplained, text] = DIFFERENCES[name];
  const classes = COMPARED.filter((each) => found.some(({ counts }) => (counts[each] ?? 0) !== 0));
  const head = ["day", "model", ...classes, ...(hasCosts ? ["cost"] : [])];
  const rows = found.map(({ day, model, counts, costs }) => [
    day,
    toPlain(model),
    ...classes.map((each) => toSigned(counts[each] ?? 0)),
    ...(hasCosts ? [toCostText(costs)] : []),
  ]);
  const table = alignColumns(head.map((each) => each.toUpperCase()), rows, (column) => column > 1);
  const lines = table.split("\n").map((line) => `  ${line}\n`).join("");
  return `\n${name}: ${text}${isExplained ? "" : " (!)"}\n${lines}`;
}

function toReport(comparison: Comparison, { from, to }: Period, currency: string): string {
  const { differences, compared, equal, hasCosts, gateway, list, billed } = comparison;
  const names = Object.keys(DIFFERENCES) as DifferenceName[];
  const sections = names.map((name) => {
    const found = differences.filter((each) => each.name === name);
    return found.length === 0 ? "" : toSection(name, found, hasCosts);
  });
  const costs = `\ncost: gateway ${toMoney(gateway)}, provider ${toMoney(list)} by its list, ` +
    `${toMoney(billed)} billed (${currency})\n`;
  return `${from} to ${to} UTC, the last day excluded\n` +
    `counts: ${equal} of ${compared} days and models are equal\n` +
    sections.join("") + (hasCosts ? costs : "\nno costs: the export has only usage\n");
}

/** True if the differences that need an action are within the tolerance. */
function isWithin(
  { differences, hasCosts, list, counted }: Comparison,
  within: Tolerance,
): boolean {
  const { cost, counts } = sumUnexplained(differences);
  const { money, part = 0 } = within;
  const areCounts = Object.entries(counts).every(([name, count]) =>
    count <= (counted[name] ?? 0) * part
  );
  if (within.part !== undefined) {
    const permille = BigInt(Math.round(part * 1e9));
    return cost * 10n ** 9n <= list * permille && areCounts;
  }
  if (!hasCosts || money === 0n) return areCounts && cost === 0n;
  return cost <= money;
}

/** Formats counts, such as `1200 tokens, 3 webSearches`. */
const toCounts = (counts: Measures): string =>
  Object.entries(counts).map(([name, count]) => `${count} ${name}`).join(", ");

/**
 * Compares, and sets exit status 1 beyond the tolerance.
 *
 * @throws {CommandLineError} For a mistake in the command or the export
 */
export async function reconcileCommand(options: CommandOptions): Promise<void> {
  const name = readName(options);
  const tolerance = readTolerance(options.tolerance);
  const days = readDays(options);
  const loaded = loadConfig(options.config);
  const { currency } = loaded.config;
  const providers = findProviders(loaded, options.provider, name);
  const entries = await readEntries(options, name, days);
  const { exported, period } = inPeriod(READERS[name](entries, currency), days);
  const owners = options.owners?.split(",").map((each) => each.trim());
  const gateway = await readGatewayUsage(loaded, providers, period);
  const comparison = compare(gateway, exported, owners, Date.now());
  print(toReport(comparison, period, currency));
  if (isWithin(comparison, tolerance)) return print("within the tolerance\n");
  const { cost, counts } = sumUnexplained(comparison.differences);
  const sums = `${toMoney(cost)} and ${toCounts(counts)}`;
  print(`beyond the tolerance: differences marked (!) are ${sums}\n`);
  process.exitCode = 1;
}
