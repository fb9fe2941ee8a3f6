/**
 * `sallyport keys`.
 *
 * @module
 */
import process from "node:process";
import { styleText } from "node:util";
import * as v from "valibot";
import { KeyAdministration, type KeyView } from "../access/key_administration.ts";
import { KeyStoreError } from "../access/key_store.ts";
import { type KeyPolicy, KeyPolicySchema } from "../key_config.ts";
import { assemble } from "../serve/assemble.ts";
import { loadConfig } from "../serve/load_config.ts";
import { parseDuration } from "../units.ts";
import { type CommandOptions, UsageError } from "./command.ts";

const DEFAULT_LISTED = 50;
const MAX_LISTED = 1_000_000;
/** What takes a setting away. */
const OFF = "off";

function splitList(text: string): string[] {
  return text.split(",").map((item) => item.trim()).filter((item) => item !== "");
}

function toExpiry(text: string): string {
  const ms = parseDuration(text);
  return Number.isNaN(ms) ? text : new Date(Date.now() + ms).toISOString();
}

function toMetadata(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(pairs.map((pair) => {
    const [name = "", ...value] = pair.split("=");
    if (name === "" || value.length === 0) throw new UsageError("--metadata takes name=value");
    return [name, value.join("=")];
  }));
}

/** What the options say of a key; `off` as `undefined`, which takes the setting away. */
function readPolicy(options: CommandOptions): Partial<KeyPolicy> {
  const { name, providers, models, expires, metadata, requests, tokens, concurrency, budget, mode } = options;
  const given = <T>(text: string | undefined, read: (text: string) => T) =>
    text && text !== OFF ? read(text) : undefined;
  const limits = {
    requests: given(requests, String),
    tokens: given(tokens, String),
    concurrency: given(concurrency, Number),
    budget: given(budget, String),
    mode: given(mode, String),
  };
  const hasLimits = Object.values(limits).some((limit) => limit !== undefined);
  const input = {
    name: given(name, String),
    providers: given(providers, splitList),
    models: given(models, splitList),
    expires: given(expires, toExpiry),
    metadata: metadata === undefined ? undefined : toMetadata(metadata),
    limits: hasLimits ? limits : undefined,
  };
  const result = v.safeParse(KeyPolicySchema, input);
  if (!result.success) {
    const [{ message, path = [] }] = result.issues;
    throw new UsageError(`--${String(path.at(-1)?.key ?? path[0]?.key ?? "name")}: ${message}`);
  }
  const set = Object.entries(result.output).filter(([, value]) => value !== undefined);
  const cleared = Object.entries({ name, providers, models, expiresAt: expires }).filter(([, text]) => text === OFF);
  const clearedLimits = Object.entries({ requests, tokens, concurrency, budget, mode }).filter(([, text]) =>
    text === OFF
  );
  const policy: Partial<KeyPolicy> = {
    ...Object.fromEntries(set),
    ...Object.fromEntries(cleared.map(([key]) => [key, undefined])),
  };
  if (clearedLimits.length === 0) return policy;
  return {
    ...policy,
    limits: { ...policy.limits, ...Object.fromEntries(clearedLimits.map(([key]) => [key, undefined])) },
  };
}

const bold = (text: string) => process.stdout.isTTY ? styleText("bold", text) : text;

function toDay(time: unknown): string {
  return typeof time === "string" ? time.slice(0, 16).replace("T", " ") : "";
}

function toLimits({ requests, tokens, concurrency, budget, mode }: NonNullable<KeyView["limits"]>): string {
  const parts = [
    requests && `${requests} requests`,
    tokens && `${tokens} tokens`,
    concurrency && `${concurrency} at once`,
    budget && `${budget} tokens`,
    mode === "observe" && "(observed)",
  ];
  return parts.filter(Boolean).join(", ");
}

/** The keys in columns as wide as what stands in them. */
function toTable(keys: readonly KeyView[]): string {
  const head = ["ID", "NAME", "STATE", "EXPIRES", "LAST USED", "PROVIDERS", "MODELS", "LIMITS"];
  const rows = keys.map(({ id, name = "", state, expires, lastUsed, providers, models, limits }) => [
    ...[id, name.slice(0, 40), state, toDay(expires), toDay(lastUsed)],
    ...[providers?.join(",") ?? "all", models?.join(",") ?? "all", limits === undefined ? "" : toLimits(limits)],
  ]);
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const toLine = (row: readonly string[]) =>
    row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ").trimEnd();
  return [bold(toLine(head)), ...rows.map(toLine)].join("\n");
}

function toText(value: unknown): string {
  if (Array.isArray(value) && typeof value[0] === "object") {
    return value.map(({ name, used, limit, resetsIn }) =>
      `${name} ${used} of ${limit}${resetsIn === undefined ? "" : `, anew in ${resetsIn}`}`
    ).join("; ");
  }
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value !== "object" || value === null) return String(value);
  return Object.entries(value).filter(([, part]) => part !== undefined).map(([name, part]) => `${name} ${part}`).join(
    ", ",
  );
}

function toLines(view: KeyView): string {
  const fields = Object.entries(view).filter(([, value]) => value !== undefined);
  const width = Math.max(...fields.map(([name]) => name.length));
  return fields.map(([name, value]) => `${name.padEnd(width)}  ${toText(value)}`).join("\n");
}

/** A key is shown this once; where only the key goes on to another program, the rest stands on stderr. */
function printNew({ key, view }: { key: string; view: KeyView }, isJson: boolean): void {
  if (isJson) return print({ ...view, key }, "");
  process.stdout.write(`${key}\n`);
  process.stderr.write(`${toLines(view)}\n${bold("Keep the key now: it is shown this once.")}\n`);
}

function print(content: unknown, text: string): void {
  process.stdout.write(text === "" ? `${JSON.stringify(content, null, 2)}\n` : `${text}\n`);
}

async function list(keys: KeyAdministration, options: CommandOptions): Promise<void> {
  const limit = options.limit === undefined ? DEFAULT_LISTED : Number(options.limit);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LISTED) {
    throw new UsageError("--limit takes a whole number from 1 to 1000000");
  }
  const found = await keys.list({ limit: limit + 1, search: options.search });
  const shown = found.slice(0, limit);
  if (options.json) return print(shown, "");
  if (shown.length === 0) return print(undefined, "no keys: make one by sallyport keys create --name NAME");
  print(undefined, toTable(shown));
  if (found.length > limit) {
    process.stderr.write(`the newest ${limit} are shown: --limit N shows more, --search TEXT finds\n`);
  }
}

async function act(
  keys: KeyAdministration,
  verb: string | undefined,
  id: string,
  options: CommandOptions,
): Promise<void> {
  const isJson = options.json === true;
  const show = (view: KeyView) => print(view, isJson ? "" : toLines(view));
  switch (verb) {
    case "create":
      return printNew(await keys.create(readPolicy(options)), isJson);
    case "list":
      return await list(keys, options);
    case "show":
      return show(await keys.show(id));
    case "update":
      return show(await keys.update(id, readPolicy(options)));
    case "revoke":
      return show(await keys.revoke(id));
    case "rotate": {
      const overlapMs = parseDuration(options.overlap ?? "0s");
      if (Number.isNaN(overlapMs)) throw new UsageError('--overlap takes a duration such as "24h"');
      return printNew(await keys.rotate(id, overlapMs), isJson);
    }
  }
}

/**
 * Manages gateway keys where the configuration says that they are.
 *
 * @param options The verb and what it takes
 * @throws {UsageError} For a mistake in the command, and when the change is refused
 */
export async function keysCommand(options: CommandOptions): Promise<void> {
  const [verb, id, ...rest] = options.operands ?? [];
  const needsId = verb !== "create" && verb !== "list";
  if (rest.length > 0 || (!needsId && id !== undefined)) throw new UsageError(`unexpected argument: ${rest[0] ?? id}`);
  if (needsId && verb !== undefined && id === undefined) throw new UsageError(`keys ${verb} takes the id of a key`);
  const { config, directory } = loadConfig(options.config);
  const report = (text: string): void => void process.stderr.write(`sallyport: ${text}\n`);
  const assembly = await assemble(config, { directory, report, isServing: false });
  const { keys, parts: { digest } } = assembly;
  const providers = Object.keys(config.providers);
  try {
    await act(new KeyAdministration({ keys, digest, now: Date.now, providers }), verb, id ?? "", options);
  } catch (error) {
    if (error instanceof KeyStoreError) throw new UsageError(error.message);
    throw error;
  } finally {
    await assembly.close();
  }
}
