/**
 * `sallyport prices import`: prices from a published table, as a file of prices. Nothing is
 * fetched.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, resolve } from "node:path";
import process from "node:process";
import { ConfigError } from "../../config/config.ts";
import { matchesGlob } from "../../config/glob.ts";
import { formatMistake } from "../../config/issue.ts";
import { checkPriceFile, type PriceFile } from "../../config/price_table.ts";
import { codeOf } from "../../errors/system_error.ts";
import { readJsonFile } from "../../serve/json_file.ts";
import { CommandLineError, print } from "../command.ts";
import type { CommandOptions } from "../options.ts";
import { toReport } from "./diff.ts";
import { CURRENCY, type Findings, isObject, type TableQuery } from "./findings.ts";
import { readGenaiPrices } from "./genai_prices.ts";
import { readLitellm } from "./litellm.ts";
import { mergePrices } from "./merge.ts";
import { readModelsDev } from "./models_dev.ts";

/** Readers of tables by format. They return `undefined` for another form of content. */
const FORMATS: Readonly<
  Record<string, (table: unknown, query: TableQuery) => Findings | undefined>
> = {
  "litellm": (table, query) => isObject(table) ? readLitellm(table, query) : undefined,
  "models.dev": (table, query) => isObject(table) ? readModelsDev(table, query) : undefined,
  "genai-prices": (table, query) =>
    Array.isArray(table) ? readGenaiPrices(table, query) : undefined,
};

/** The options of an import. */
interface Import {
  readonly file: string;
  readonly format: string;
  /** Name of the provider in the configuration, if it was given. */
  readonly name: string | undefined;
  readonly query: TableQuery;
  /** The file to write. */
  readonly out: string;
  readonly isDry: boolean;
}

function readOptions({ operand, format, models, provider, out, "dry-run": isDry }: CommandOptions) {
  if (operand === undefined) throw new CommandLineError("name the file of the table");
  if (format === undefined || !Object.hasOwn(FORMATS, format)) {
    throw new CommandLineError(`--format takes ${Object.keys(FORMATS).join(", ")}`);
  }
  const [, name, inTable = ""] = /^(?:([^=]+)=)?([^=]+)$/.exec(provider ?? "") ?? [];
  if (inTable === "") {
    throw new CommandLineError(
      "--provider takes the provider's name in the table, such as openai, or a=openai",
    );
  }
  if (out === undefined || out === "") {
    throw new CommandLineError("--out takes the file of prices to write, such as prices.json");
  }
  const patterns = (models ?? "*").split(",").map((each) => each.trim());
  const isWanted = (model: string) => patterns.some((pattern) => matchesGlob(model, pattern));
  return {
    file: operand,
    format,
    name,
    query: { provider: inTable, isWanted },
    out: resolve(out),
    isDry: isDry ?? false,
  } satisfies Import;
}

function readTable(file: string): { readonly table: unknown; readonly digest: string } {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    throw new CommandLineError(`cannot read the table ${file} (${codeOf(error)})`);
  }
  const digest = createHash("sha256").update(bytes).digest("hex");
  try {
    return { table: JSON.parse(new TextDecoder().decode(bytes)), digest };
  } catch {
    throw new CommandLineError(`cannot parse the table ${file}: it is not JSON`);
  }
}

/** Reads the file that an earlier import wrote. @throws {ConfigError} For a mistake in it */
function readOld(file: string): PriceFile {
  if (!existsSync(file)) return { currency: CURRENCY, prices: {} };
  const read = readJsonFile(file, "out");
  const checked = checkPriceFile(read.input, CURRENCY);
  if ("prices" in checked) return checked;
  throw new ConfigError(checked.map((each) => ({ ...each, source: read.lineOf(each.path) })));
}

function write(file: string, content: PriceFile): void {
  const draft = `${file}.${process.pid}.tmp`;
  try {
    writeFileSync(draft, `${JSON.stringify(content, null, 2)}\n`);
    renameSync(draft, file);
  } catch (error) {
    throw new CommandLineError(`cannot write ${file} (${codeOf(error)})`);
  }
}

/**
 * Imports prices.
 *
 * @throws {CommandLineError} For a mistake in the command or the table
 * @throws {ConfigError} For a mistake in the file that is there
 */
export function pricesCommand(options: CommandOptions): void {
  const { file, format, name, query, out, isDry } = readOptions(options);
  const { table, digest } = readTable(file);
  const findings = FORMATS[format]?.(table, query);
  if (findings === undefined) {
    throw new CommandLineError(`${file} does not have the form of a table of ${format}`);
  }
  const old = readOld(out);
  const date = new Date().toISOString().slice(0, 10);
  const source = `${format} ${query.provider}`;
  const merged = mergePrices(
    old.prices,
    findings.prices,
    `${date}T00:00:00Z`,
    (model, price) => price.source === source && query.isWanted(model) && !findings.has(model),
  );
  const { added, changed, closed } = merged;
  const isChanged = added.length + changed.length + closed.length > 0;
  print(toReport(old.prices, merged, findings));
  if (findings.prices.size === 0) {
    throw new CommandLineError(
      `the table has no price of a wanted model of ${query.provider}: see --provider and --models`,
    );
  }
  const next: PriceFile = {
    currency: CURRENCY,
    source: `${source}, ${basename(file)}`.slice(0, 256),
    date,
    digest,
    prices: merged.prices,
  };
  const checked = checkPriceFile(next, CURRENCY);
  if (!("prices" in checked)) {
    throw new CommandLineError(
      `cannot write the prices: ${checked.map(formatMistake).join("; ")}`,
    );
  }
  if (isDry) return print(`${out} was not written (--dry-run)\n`);
  if (!isChanged) return print(`${out} was not written: no price has changed\n`);
  write(out, next);
  const setting = name === undefined ? "prices" : `providers.${name}.prices`;
  print(`${out} was written. To use it, set ${setting} to { "file": "${basename(out)}" }\n`);
}
