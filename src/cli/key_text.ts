/**
 * Keys as text: a table of them, the lines of one, and what commands print.
 *
 * @module
 */
import process from "node:process";
import type { KeyView } from "../admin/key_administration.ts";
import { toLimits } from "./limit_texts.ts";
import { toLeftText } from "./running_use.ts";
import { alignColumns, toPlain } from "./table.ts";

/** The number of characters of a name that the list shows. */
const MAX_NAME = 40;

function toDay(time: unknown): string {
  return typeof time === "string" ? time.slice(0, 16).replace("T", " ") : "";
}

/** Formats a list of allowed names. Without a list, all are allowed. */
function toNames(names: readonly string[] | undefined): string {
  return names === undefined ? "all" : names.join(",") || "none";
}

/** A column of the list of keys. */
type Column = readonly [title: string, toCell: (key: KeyView) => string];

/** Validity of the secrets before the last rotation. Shown if a listed key has one. */
const OLD_SECRET: Column = ["OLD SECRET UNTIL", ({ previousExpires }) => toDay(previousExpires)];

/** The other columns: the first ones, and those after the old secret. */
const FIRST_COLUMNS: readonly Column[] = [
  ["ID", ({ id }) => id],
  ["NAME", ({ name = "" }) => Array.from(name).slice(0, MAX_NAME).join("")],
  ["STATE", ({ state }) => state],
  ["EXPIRES", ({ expires }) => toDay(expires)],
];
const LAST_COLUMNS: readonly Column[] = [
  ["LAST USED", ({ lastUsed }) => toDay(lastUsed)],
  ["TEAM", ({ team = "" }) => team],
  ["PROVIDERS", ({ providers }) => toNames(providers)],
  ["MODELS", ({ models }) => toNames(models)],
  ["LIMITS", ({ limits }) => limits === undefined ? "" : toLimits(limits)],
];

/** Formats keys as a table. */
export function toTable(keys: readonly KeyView[]): string {
  const isRotated = keys.some(({ previousExpires }) => previousExpires !== undefined);
  const columns = [...FIRST_COLUMNS, ...(isRotated ? [OLD_SECRET] : []), ...LAST_COLUMNS];
  return alignColumns(
    columns.map(([title]) => title),
    keys.map((key) => columns.map(([, toCell]) => toCell(key))),
  );
}

function toText(value: unknown): string {
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value !== "object" || value === null) return String(value);
  const parts = Object.entries(value).filter(([, part]) => part !== undefined);
  return parts.map(([name, part]) => `${name} ${part}`).join(", ");
}

/** Labels of fields whose names have several words. */
const LABELS: Readonly<Record<string, string>> = {
  lastUsed: "last used",
  previousExpires: "old secret until",
  heldKeys: "held keys",
};

/** Formats a key. All commands print the id and the name first. */
export function toKeyLines({ id, name, limits, use, ...others }: KeyView): string {
  const left = toLeftText(use);
  return toLines({ id, name, limits: limits && toLimits(limits), left, ...others });
}

/** Formats settings, a line for each. */
export function toLines(view: Readonly<Record<string, unknown>>): string {
  const fields = Object.entries(view)
    .filter(([, value]) => value !== undefined)
    .map(([field, value]) => [LABELS[field] ?? field, toPlain(toText(value))] as const);
  const width = Math.max(...fields.map(([label]) => label.length));
  return fields.map(([label, text]) => `${label.padEnd(width)}  ${text}`).join("\n");
}

/** Prints a value as JSON. */
export function printJson(content: unknown): void {
  process.stdout.write(`${JSON.stringify(content, null, 2)}\n`);
}

/** Prints a text, and ends its last line. */
export function printText(text: string): void {
  process.stdout.write(`${text}\n`);
}
