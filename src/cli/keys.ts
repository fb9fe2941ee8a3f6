/**
 * `sallyport keys`.
 *
 * @module
 */
import { createReadStream } from "node:fs";
import process from "node:process";
import { createInterface } from "node:readline";
import * as v from "valibot";
import { KeyAdministration, type KeyView } from "../admin/key_administration.ts";
import { gatewayKeyId } from "../keys/key_format.ts";
import { DEFAULT_OVERLAP } from "../keys/lifecycle.ts";
import { type KeyRegistry, KeyStoreError } from "../keys/key_store.ts";
import { exportKeys, importKeys, readKeyLines } from "../keys/key_transfer.ts";
import { readDurableText } from "../config/durable.ts";
import { keysInRedis } from "../config/keys.ts";
import { describeIssue } from "../config/issue.ts";
import { KeyPatchSchema, type KeyPolicy } from "../config/key.ts";
import { assemble } from "../serve/compose.ts";
import { loadConfig } from "../serve/load_config.ts";
import type { WrittenLimits } from "../config/limit_set.ts";
import { parseDuration } from "../config/units.ts";
import { CommandLineError } from "./command.ts";
import { LIMIT_OPTIONS, specOf } from "./command_table.ts";
import type { CommandOptions } from "./options.ts";
import { alignColumns, bold, toPlain } from "./table.ts";

const DEFAULT_LISTED = 50;
const MAX_LISTED = 1_000_000;
/** The value that removes a setting. */
const OFF = "off";
/** The number of characters of a name that the list shows. */
const MAX_NAME = 40;

/**
 * The longest time until a key expires, a hundred years. A longer one is a typing error.
 * Milliseconds.
 */
const MAX_EXPIRY_MS = 36_500 * 86_400_000;
/** Options that set a key's permissions. */
const SETTINGS = [
  "name",
  "providers",
  "models",
  "operations",
  "team",
  "durable",
  "expires",
  "metadata",
] as const;
type SettingName = typeof SETTINGS[number] | keyof WrittenLimits;
/** Messages for options whose form differs from the configuration's. */
const FORMS: Readonly<Record<string, string>> = {
  expires: 'expected a duration such as "90d", up to 36500d, a day such as 2027-01-31, ' +
    "or a time such as 2027-01-31T00:00:00Z",
};

function splitList(option: string, text: string): string[] {
  const items = text.split(",").map((item) => item.trim()).filter((item) => item !== "");
  if (items.length === 0) {
    throw new CommandLineError(`--${option} expects one name or several, with commas between them`);
  }
  return items;
}

/** Reads the end of a key. A day is the key's last one: the key ends with it (UTC). */
function toExpiry(text: string): string {
  if (/^\d{4}-\d{2}-\d{2}$/.test(text)) return `${text}T23:59:59.999Z`;
  const ms = parseDuration(text);
  return ms <= MAX_EXPIRY_MS ? new Date(Date.now() + ms).toISOString() : text;
}

function toMetadata(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(pairs.map((pair) => {
    const [name = "", ...value] = pair.split("=");
    if (name === "" || value.join("=") === "") {
      throw new CommandLineError("--metadata expects name=value");
    }
    return [name, value.join("=")];
  }));
}

/** Reads an option. `null` removes the setting. */
function readOption(options: CommandOptions, name: SettingName): unknown {
  const given = [options[name] ?? []].flat();
  const [text = ""] = given;
  if (given.length === 1 && text === OFF) return null;
  // An unset variable in a script produces an empty value. It must not create a key without limits.
  if (given.includes("")) {
    throw new CommandLineError(`--${name} is empty: set a value, or leave it out`);
  }
  switch (name) {
    case "providers":
    case "models":
    case "operations":
      return splitList(name, text);
    case "expires":
      return toExpiry(text);
    case "durable":
      return readDurableText(text);
    case "metadata":
      return toMetadata(given);
    case "budget":
      return given.flatMap((each) => splitList(name, each));
    case "concurrency":
      return /^[0-9]+$/.test(text) ? Number(text) : NaN;
    default:
      return text;
  }
}

/** Reads the policy of a key from the options. A setting that is `undefined` is removed. */
function readPolicy(options: CommandOptions): Partial<KeyPolicy> {
  const read = (names: readonly SettingName[]) =>
    names.filter((name) => options[name] !== undefined)
      .map((name) => [name, readOption(options, name)] as const);
  const limits = read(LIMIT_OPTIONS);
  const input = Object.fromEntries([
    ...read(SETTINGS),
    ...(limits.length > 0 ? [["limits", Object.fromEntries(limits)] as const] : []),
  ]);
  const result = v.safeParse(KeyPatchSchema, input);
  if (result.success) return result.output;
  const { path, message } = describeIssue(result.issues[0]);
  const [option = ""] = path.replace(/^limits\./, "").split(/\W/);
  throw new CommandLineError(`--${option}: ${FORMS[option] ?? message}`);
}

function readPatch(options: CommandOptions): Partial<KeyPolicy> {
  const patch = readPolicy(options);
  if (Object.keys(patch).length > 0) return patch;
  throw new CommandLineError(
    `keys update expects a change: --${[...SETTINGS, ...LIMIT_OPTIONS].join(", --")}`,
  );
}

function toDay(time: unknown): string {
  return typeof time === "string" ? time.slice(0, 16).replace("T", " ") : "";
}

/** Formats a list of allowed names. Without a list, all are allowed. */
function toNames(names: readonly string[] | undefined): string {
  return names === undefined ? "all" : names.join(",") || "none";
}

/** Formats a budget. Money includes its currency, tokens have no unit. */
const toBudget = (budget: string): string => budget.includes(" ") ? budget : `${budget} tokens`;

/** Texts of limits. */
const LIMIT_TEXTS: Readonly<Record<keyof WrittenLimits, (limit: unknown) => string>> = {
  requests: (rate) => `${rate} requests`,
  tokens: (rate) => `${rate} tokens`,
  concurrency: (count) => `${count} at once`,
  budget: (budget) => [budget].flat().map((each) => toBudget(String(each))).join(", "),
  mode: (mode) => mode === "enforce" ? "" : `(${mode === "observe" ? "observed" : mode})`,
};

function toLimits(limits: WrittenLimits): string {
  const texts = LIMIT_OPTIONS.map((name) => limits[name] && LIMIT_TEXTS[name](limits[name]));
  return texts.filter(Boolean).join(", ");
}

/** Returns the cells of a key, in the order of the titles in {@link toTable}. */
function toCells(key: KeyView): string[] {
  const { id, name = "", state, expires, lastUsed, team = "", providers, models, limits } = key;
  return [
    id,
    Array.from(name).slice(0, MAX_NAME).join(""),
    state,
    toDay(expires),
    toDay(lastUsed),
    team,
    toNames(providers),
    toNames(models),
    limits === undefined ? "" : toLimits(limits),
  ];
}

/** Formats keys as a table. */
function toTable(keys: readonly KeyView[]): string {
  const head = [
    "ID",
    "NAME",
    "STATE",
    "EXPIRES",
    "LAST USED",
    "TEAM",
    "PROVIDERS",
    "MODELS",
    "LIMITS",
  ];
  return alignColumns(head, keys.map(toCells));
}

/** Formats the use of a limit, as the admin API reports it. */
function toUse(use: Readonly<Record<string, unknown>>): string {
  const { name, used, limit, currency, resetsIn } = use;
  const unit = currency === undefined ? "" : ` ${currency}`;
  const reset = resetsIn === undefined ? "" : `, renewed in ${resetsIn}`;
  return `${name} ${used} of ${limit}${unit}${reset}`;
}

function toText(value: unknown): string {
  if (Array.isArray(value)) {
    return typeof value[0] === "object" ? value.map(toUse).join("; ") : value.join(", ");
  }
  if (typeof value !== "object" || value === null) return String(value);
  const parts = Object.entries(value).filter(([, part]) => part !== undefined);
  return parts.map(([name, part]) => `${name} ${part}`).join(", ");
}

/** Labels of fields whose names have several words. */
const LABELS: Readonly<Record<string, string>> = {
  lastUsed: "last used",
  previousExpires: "old secret until",
};

/** Formats a key, a line for each field. All commands print the id and the name first. */
function toLines(view: KeyView): string {
  const { id, name, limits, ...others } = view;
  const written = limits && toLimits(limits);
  const fields = Object.entries({ id, name, limits: written, ...others })
    .filter(([, value]) => value !== undefined)
    .map(([field, value]) => [LABELS[field] ?? field, toPlain(toText(value))] as const);
  const width = Math.max(...fields.map(([label]) => label.length));
  return fields.map(([label, text]) => `${label.padEnd(width)}  ${text}`).join("\n");
}

/**
 * Prints a new key, which is shown only once. Only the key is printed to standard output, the rest
 * to standard error.
 */
function printNew({ key, view }: { key: string; view: KeyView }, isJson: boolean): void {
  if (isJson) return printJson({ ...view, key });
  process.stdout.write(`${key}\n`);
  process.stderr.write(`${toLines(view)}\n${bold("Keep the key now: it is shown this once.")}\n`);
}

function printJson(content: unknown): void {
  process.stdout.write(`${JSON.stringify(content, null, 2)}\n`);
}

function printText(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Reads the largest number of keys to list. */
function readLimit(text: string | undefined): number {
  const limit = text === undefined ? DEFAULT_LISTED : Number(text);
  const isInRange = limit >= 1 && limit <= MAX_LISTED;
  if (Number.isInteger(limit) && isInRange) return limit;
  throw new CommandLineError("--limit expects a whole number from 1 to 1000000");
}

async function list(keys: KeyAdministration, options: CommandOptions): Promise<void> {
  const limit = readLimit(options.limit);
  const { search, team } = options;
  const found = await keys.list({ limit: limit + 1, search, team });
  const shown = found.slice(0, limit);
  if (options.json) return printJson(shown);
  if (shown.length === 0) {
    const isAll = search === undefined && team === undefined;
    return printText(
      isAll ? "no keys: make one by sallyport keys create --name NAME" : "no key matches",
    );
  }
  printText(toTable(shown));
  if (found.length > limit) {
    process.stderr.write(
      `the newest ${limit} are shown: --limit N shows more, --search TEXT finds\n`,
    );
  }
}

/** The number of lines that are printed at once. */
const PRINTED_AT_ONCE = 1000;

async function printExport(keys: KeyRegistry): Promise<void> {
  const { lines, damaged } = await exportKeys(keys);
  for (let start = 0; start < lines.length; start += PRINTED_AT_ONCE) {
    printText(lines.slice(start, start + PRINTED_AT_ONCE).join("\n"));
  }
  if (damaged.length > 0) {
    process.stderr.write(`left out because their records are damaged: ${damaged.join(", ")}\n`);
  }
}

/** Reads the lines of a file, or of standard input if no file is named. */
async function readLines(file: string | undefined): Promise<string[]> {
  const input = file === undefined || file === "-" ? process.stdin : createReadStream(file);
  const lines: string[] = [];
  try {
    // readline does not forward errors of the stream.
    const failed = new Promise<never>((_, reject) => input.once("error", reject));
    const reading = (async () => {
      for await (const line of createInterface({ input, crlfDelay: Infinity })) lines.push(line);
    })();
    await Promise.race([reading, failed]);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : "unknown";
    throw new CommandLineError(`Cannot read the keys to import: ${code}`);
  }
  return lines;
}

async function printImport(keys: KeyRegistry, options: CommandOptions): Promise<void> {
  const records = readKeyLines(await readLines(options.operand));
  const counts = await importKeys(keys, records, { isReplacing: options.replace === true });
  if (options.json) return printJson(counts);
  const { added, replaced, same } = counts;
  const keysAdded = added === 1 ? "1 key" : `${added} keys`;
  printText(`${keysAdded} added, ${replaced} replaced, ${same} there already`);
}

async function confirm(keys: KeyRegistry): Promise<void> {
  if (keys.confirm === undefined) {
    throw new CommandLineError("keys confirm is for keys in Redis: no others get lost");
  }
  const hasLost = await keys.confirm();
  printText(
    hasLost
      ? "confirmed: callers with other keys are unknown from now on"
      : "no key was missed so far",
  );
}

/** Reads the time for which the old secret stays valid. Milliseconds. */
function readOverlap({ overlap, now }: CommandOptions): number {
  if (now && overlap !== undefined) {
    throw new CommandLineError("keys rotate accepts --now or --overlap, not both");
  }
  const overlapMs = now ? 0 : parseDuration(overlap ?? DEFAULT_OVERLAP);
  if (Number.isNaN(overlapMs)) {
    throw new CommandLineError('--overlap expects a duration such as "24h"');
  }
  return overlapMs;
}

async function run(
  options: CommandOptions,
  registry: KeyRegistry,
  keys: KeyAdministration,
): Promise<void> {
  const { operand = "" } = options;
  const id = gatewayKeyId(operand) ?? operand;
  const isJson = options.json === true;
  const show = (view: KeyView) => isJson ? printJson(view) : printText(toLines(view));
  switch (options.command) {
    case "keys create":
      return printNew(await keys.create(readPolicy(options)), isJson);
    case "keys list":
      return await list(keys, options);
    case "keys show":
      return show(await keys.show(id));
    case "keys update":
      return show(await keys.update(id, readPatch(options)));
    case "keys revoke":
      return show(await keys.revoke(id));
    case "keys disable":
      return show(await keys.disable(id));
    case "keys enable":
      return show(await keys.enable(id));
    case "keys rotate":
      return printNew(await keys.rotate(id, readOverlap(options)), isJson);
    case "keys export":
      return await printExport(registry);
    case "keys import":
      return await printImport(registry, options);
    case "keys confirm":
      return await confirm(registry);
  }
}

/**
 * Manages gateway keys in the configured store.
 *
 * @throws {CommandLineError} For a mistake in the command, or if the change is refused
 */
export async function keysCommand(options: CommandOptions): Promise<void> {
  const { command, operand } = options;
  const { operand: wanted } = specOf(command);
  if (wanted === "ID" && operand === undefined) {
    throw new CommandLineError(`${command} expects the id of a key`);
  }
  const { config, directory } = loadConfig(options.config);
  // A Redis that only counts limits is not needed. Errors are thrown and printed once, so `report`
  // does nothing.
  const redis = keysInRedis(config.keys) !== undefined ? config.redis : undefined;
  const assembly = await assemble({ ...config, redis }, {
    directory,
    report: () => {},
    isServing: false,
  });
  const { keys, parts: { digest } } = assembly;
  try {
    await run(options, keys, new KeyAdministration({ keys, digest, now: Date.now, config }));
  } catch (error) {
    if (error instanceof KeyStoreError) throw new CommandLineError(error.message);
    throw error;
  } finally {
    await assembly.close();
  }
}
