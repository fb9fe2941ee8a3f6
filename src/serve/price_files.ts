/**
 * Prices in files: each setting of prices that names a file is replaced by its content.
 *
 * @module
 */
import { resolve } from "node:path";
import { ConfigError, type ConfigIssue } from "../config/config.ts";
import type { Json } from "../config/environment.ts";
import { checkPriceFile } from "../config/price_table.ts";
import { readJsonFile } from "./json_file.ts";

/** Replaces prices with mistakes, so that no other setting is refused because it needs prices. */
const ANY_PRICE = { "*": { input: 0 } };

/** The files of prices in a configuration. */
export interface PriceFiles {
  /** Their paths. */
  readonly files: readonly string[];
  readonly issues: readonly ConfigIssue[];
}

const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Lists the settings that can contain prices: their path, and the object with the prices. */
function listHolders({ providers, ...rest }: Json, input: Json): [path: string, holder: Json][] {
  const holders: [string, Json][] = "prices" in rest ? [["prices", input]] : [];
  for (const [name, provider] of Object.entries(isObject(providers) ? providers : {})) {
    if (isObject(provider)) holders.push([`providers.${name}.prices`, provider]);
  }
  return holders;
}

/**
 * Reads the prices of a file.
 *
 * @param path The setting that names it
 * @throws {ConfigError} With every mistake and its line
 */
export function readPriceFile(file: string, path: string, currency: string): Json {
  const read = readJsonFile(file, path);
  const checked = checkPriceFile(read.input, currency);
  const message = "expected each name once: an earlier line has the same";
  const repeated = read.listRepeated().map((source) => ({ path, message, source }));
  const issues = "prices" in checked
    ? repeated
    : [...checked.map((each) => ({ ...each, source: read.lineOf(each.path) })), ...repeated];
  if (issues.length > 0) throw new ConfigError(issues);
  return read.input.prices as Json; // it was checked
}

/**
 * Replaces the names of price files by their prices. Prices in the configuration itself replace
 * those of the same name in the file. A price is never a text, so a model can be named `file`.
 *
 * @param input The settings, changed in place
 * @param directory Directory that relative paths start from
 */
export function layPriceFiles(input: Json, directory: string): PriceFiles {
  const currency = typeof input.currency === "string" ? input.currency : "USD";
  const files: string[] = [];
  const issues: ConfigIssue[] = [];
  for (const [path, holder] of listHolders(input, input)) {
    const { prices } = holder;
    if (!isObject(prices) || typeof prices.file !== "string" || prices.file === "") continue;
    const { file, ...own } = prices;
    const place = resolve(directory, String(file));
    files.push(place);
    try {
      holder.prices = { ...readPriceFile(place, `${path}.file`, currency), ...own };
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      issues.push(...error.issues);
      holder.prices = { ...ANY_PRICE, ...own };
    }
  }
  return { files, issues };
}
