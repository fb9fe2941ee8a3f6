/**
 * `sallyport keys`.
 *
 * @module
 */
import { createReadStream } from "node:fs";
import process from "node:process";
import { createInterface } from "node:readline";
import * as v from "valibot";
import { type Author, type Changes, compareSettings } from "../admin/changes.ts";
import {
  KEY_STATE_FORM,
  KEY_STATES,
  KeyAdministration,
  type KeyPageQuery,
  type KeyView,
} from "../admin/key_administration.ts";
import { gatewayKeyId } from "../keys/key_format.ts";
import { DEFAULT_OVERLAP } from "../keys/lifecycle.ts";
import type { KeyRegistry } from "../keys/key_store.ts";
import { exportKeys, type ImportCounts, importKeys, readKeyLines } from "../keys/key_transfer.ts";
import { exportTeams, importTeams, isTeamLine, readTeamLines } from "../keys/team_transfer.ts";
import { readDurableText } from "../config/durable.ts";
import { describeIssue } from "../config/issue.ts";
import { KeyPatchSchema, type KeyPolicy } from "../config/key.ts";
import { noteOnBudget } from "../config/limit_forms.ts";
import type { LimitSet, WrittenLimits } from "../config/limit_set.ts";
import { parseDuration } from "../config/units.ts";
import type { Config } from "../config/config.ts";
import type { Assembly } from "../serve/compose.ts";
import {
  describeKeyLimits,
  describeMissingTeams,
  describeTeamLimits,
} from "../serve/stored_mistakes.ts";
import { CommandLineError, report } from "./command.ts";
import { LIMIT_OPTIONS, specOf } from "./command_table.ts";
import type { CommandOptions } from "./options.ts";
import { printJson, printText, toKeyLines, toTable } from "./key_text.ts";
import { readRunningUse } from "./running_use.ts";
import { bold } from "./table.ts";
import { openChanges, readAuthor, withStores } from "./with_stores.ts";

const DEFAULT_LISTED = 50;
const MAX_LISTED = 1_000_000;
/** The value that removes a setting. */
const OFF = "off";

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
export function readOption(options: CommandOptions, name: SettingName): unknown {
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

/** Reads whether a key can use held keys. `null` removes the setting. */
function readHeldKeys(text: string): boolean | null {
  if (text === OFF) return null;
  if (text !== "on" && text !== "never") {
    throw new CommandLineError("--held-keys expects on, never, or off for the setting of its team");
  }
  return text === "on";
}

/** Reports a budget of so few tokens that money was probably meant. */
export function noteBudget(limits: LimitSet | undefined): void {
  const note = noteOnBudget(limits?.budget?.limit);
  if (note !== undefined) report(`warning: --budget: ${note}`);
}

/** Reads the policy of a key from the options. A setting that is `undefined` is removed. */
function readPolicy(options: CommandOptions): Partial<KeyPolicy> {
  const read = (names: readonly SettingName[]) =>
    names.filter((name) => options[name] !== undefined)
      .map((name) => [name, readOption(options, name)] as const);
  const limits = read(LIMIT_OPTIONS);
  const { "held-keys": heldKeys } = options;
  const input = Object.fromEntries([
    ...read(SETTINGS),
    ...(heldKeys === undefined ? [] : [["heldKeys", readHeldKeys(heldKeys)] as const]),
    ...(limits.length > 0 ? [["limits", Object.fromEntries(limits)] as const] : []),
  ]);
  const result = v.safeParse(KeyPatchSchema, input);
  if (result.success) {
    noteBudget(result.output.limits);
    return result.output;
  }
  const { path, message } = describeIssue(result.issues[0]);
  const [option = ""] = path.replace(/^limits\./, "").split(/\W/);
  throw new CommandLineError(`--${option}: ${FORMS[option] ?? message}`);
}

function readPatch(options: CommandOptions): Partial<KeyPolicy> {
  const patch = readPolicy(options);
  if (Object.keys(patch).length > 0) return patch;
  throw new CommandLineError(
    `keys update expects a change: --${[...SETTINGS, "held-keys", ...LIMIT_OPTIONS].join(", --")}`,
  );
}

/**
 * Prints a new key, which is shown only once. Only the key is printed to standard output, the rest
 * to standard error.
 */
function printNew({ key, view }: { key: string; view: KeyView }, isJson: boolean): void {
  if (isJson) return printJson({ ...view, key });
  process.stdout.write(`${key}\n`);
  process.stderr.write(
    `${toKeyLines(view)}\n${bold("Save the key now: it is shown only once.")}\n`,
  );
}

/** Reads the largest number of keys or changes to list. */
export function readLimit(text: string | undefined, most: number = MAX_LISTED): number {
  const limit = text === undefined ? DEFAULT_LISTED : Number(text);
  const isInRange = limit >= 1 && limit <= most;
  if (Number.isInteger(limit) && isInRange) return limit;
  throw new CommandLineError(`--limit expects a whole number from 1 to ${most}`);
}

function readState(text: string | undefined): KeyPageQuery["state"] {
  const state = KEY_STATES.find((each) => each === text);
  if (text !== undefined && state === undefined) {
    throw new CommandLineError(`--state: ${KEY_STATE_FORM}`);
  }
  return state;
}

/** Lists keys until there are as many as asked for: a page of one state can be shorter. */
async function findKeys(keys: KeyAdministration, query: KeyPageQuery): Promise<KeyView[]> {
  const found: KeyView[] = [];
  let after: string | undefined;
  do {
    const page = await keys.page({ ...query, after, limit: query.limit - found.length });
    found.push(...page.keys);
    after = page.next ?? undefined;
  } while (after !== undefined && found.length < query.limit);
  return found;
}

async function list(keys: KeyAdministration, options: CommandOptions): Promise<void> {
  const limit = readLimit(options.limit);
  const { search, team } = options;
  const state = readState(options.state);
  const found = await findKeys(keys, { limit: limit + 1, search, team, state });
  const shown = found.slice(0, limit);
  if (options.json) return printJson(shown);
  if (shown.length === 0) {
    const isAll = [search, team, state].every((each) => each === undefined);
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

/** Prints the created teams, and then all keys. */
async function printExport({ keys, teams: directory }: Assembly): Promise<void> {
  await directory.load();
  const teams = exportTeams(directory.stored);
  const exported = await exportKeys(keys);
  const lines = [...teams.lines, ...exported.lines];
  const damaged = [...teams.damaged, ...exported.damaged];
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

/**
 * Imports teams, and then the keys, which can belong to them. Limits that do not fit the
 * configuration are only reported, because they must not prevent the import of a backup.
 */
async function printImport(
  { keys, teams: directory }: Assembly,
  options: CommandOptions,
  { changes, config }: { readonly changes: Changes; readonly config: Config },
): Promise<void> {
  const lines = await readLines(options.operand);
  const teams = readTeamLines(lines);
  // Empty lines are skipped, and count for the numbers in messages.
  const records = readKeyLines(lines.map((line) => isTeamLine(line) ? "" : line));
  const by = readAuthor(options);
  const how = { isReplacing: options.replace === true };
  const ofTeams = await importTeams(directory, teams, how);
  await noteImport("team", ofTeams, changes, by);
  const ofKeys = await importKeys(keys, records, how);
  await noteImport("key", ofKeys, changes, by);
  const imported = Array.from(records.values());
  const misfits = [
    ...Array.from(teams).flatMap(([name, policy]) => describeTeamLimits(name, policy, config)),
    ...describeMissingTeams(imported, directory.byName),
    ...describeKeyLimits(imported, config),
  ];
  for (const line of misfits) report(`warning: ${line}`);
  if (options.json) return printJson(teams.size === 0 ? ofKeys : { ...ofKeys, teams: ofTeams });
  if (teams.size > 0) printText(toImportText("team", ofTeams));
  printText(toImportText("key", ofKeys));
}

/** Notes an import as one change, because it can add a million keys. */
async function noteImport(
  of: "key" | "team",
  { added, replaced }: ImportCounts,
  changes: Changes,
  by: Author,
): Promise<void> {
  if (added + replaced === 0) return;
  const settings = compareSettings({}, { added, replaced });
  await changes.add({ action: "import", of, id: "*", settings }, by);
}

function toImportText(of: "key" | "team", { added, replaced, same }: ImportCounts): string {
  const allAdded = added === 1 ? `1 ${of}` : `${added} ${of}s`;
  return `${allAdded} added, ${replaced} replaced, ${same} there already`;
}

async function confirm(keys: KeyRegistry): Promise<void> {
  if (keys.confirm === undefined) {
    throw new CommandLineError("keys confirm is only for keys in Redis");
  }
  const hasLost = await keys.confirm();
  printText(
    hasLost
      ? "confirmed: callers with other keys are unknown from now on"
      : "no gateway has noticed a loss of keys",
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

/** Shows a key, with the use of its limits if the gateway or Redis knows it. */
async function showKey(
  id: string,
  keys: KeyAdministration,
  assembly: Assembly,
  config: Config,
): Promise<KeyView> {
  const view = await keys.show(id);
  const { limits } = await assembly.keys.get(id) ?? {};
  if (limits === undefined) return view;
  const use = await readRunningUse(config, assembly, { name: `key:${id}`, limits });
  return use === undefined ? view : { ...view, use };
}

async function run(options: CommandOptions, assembly: Assembly, config: Config): Promise<void> {
  const { keys: registry, teams, parts: { digest } } = assembly;
  const changes = openChanges(assembly);
  const parts = { keys: registry, teams, digest, changes, now: Date.now, config };
  const keys = new KeyAdministration(parts);
  const { operand = "" } = options;
  const id = gatewayKeyId(operand) ?? operand;
  const isJson = options.json === true;
  const by = readAuthor(options);
  const show = (view: KeyView) => isJson ? printJson(view) : printText(toKeyLines(view));
  switch (options.command) {
    case "keys create":
      return printNew(await keys.create(readPolicy(options), by), isJson);
    case "keys list":
      return await list(keys, options);
    case "keys show":
      return show(await showKey(id, keys, assembly, config));
    case "keys update":
      return show(await keys.update(id, readPatch(options), by));
    case "keys revoke":
      return show(await keys.revoke(id, by));
    case "keys disable":
      return show(await keys.disable(id, by));
    case "keys enable":
      return show(await keys.enable(id, by));
    case "keys rotate":
      return printNew(await keys.rotate(id, readOverlap(options), by), isJson);
    case "keys export":
      return await printExport(assembly);
    case "keys import":
      return await printImport(assembly, options, { changes, config });
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
  await withStores(options, (assembly, config) => run(options, assembly, config));
}
