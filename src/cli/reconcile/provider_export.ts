/**
 * Exports of a provider's usage and costs, in one form for all providers.
 *
 * @module
 */
import { readFileSync } from "node:fs";
import { parseCost } from "../../config/cost.ts";
import type { BillingClass, ClassAmounts } from "../../exchange/billing.ts";
import { codeOf } from "../../errors/system_error.ts";
import { CommandLineError } from "../command.ts";
import { multiplyExactly } from "../prices/decimal.ts";
import { isObject } from "../prices/findings.ts";

/** Usage of a model in a day. */
export interface ProviderUsage {
  /** The day in UTC, such as `2026-11-25`. */
  readonly day: string;
  readonly model: string;
  /** Ids of the key and the project at the provider, as far as they are stated. */
  readonly owners: readonly string[];
  readonly classes: ClassAmounts;
  /** True if the provider's costs leave this usage out. */
  readonly isFree: boolean;
}

/** Kind of a cost: of a model's tokens, or of something that no call states. */
export type CostKind = "model" | "tools" | "storage" | "containers" | "tax" | "credits" | "other";

/** A cost in a day. Amounts are in units of 10^-24 of the currency. */
export interface ProviderCost {
  readonly day: string;
  readonly kind: CostKind;
  /** The model, or the name of the line. */
  readonly name: string;
  /** The class of tokens, if the line states it. */
  readonly ofClass?: BillingClass | undefined;
  readonly owners: readonly string[];
  /** By the price list. */
  readonly list: bigint;
  /** After discounts. */
  readonly amount: bigint;
}

/** The export of a provider. */
export interface ProviderExport {
  readonly usage: readonly ProviderUsage[];
  readonly costs: readonly ProviderCost[];
}

/** An entry of JSON. */
export type Entry = Readonly<Record<string, unknown>>;

/** Returns a count; 0 without one. */
export const countOf = (value: unknown): number => typeof value === "number" ? value : 0;

/** Returns the texts among some values. */
export const textsOf = (...values: unknown[]): string[] =>
  values.filter((value): value is string => typeof value === "string" && value !== "");

/** The place of an entry in an export, such as `usage.json: data[3]`. */
export type Place = string;

/** An entry with its place. */
export interface PlacedEntry {
  readonly entry: Entry;
  readonly place: Place;
}

/** Where a result was found. */
export interface Position {
  readonly day: string;
  readonly place: Place;
}

/** Returns an error that names a place. @param text The state, such as `expected an array` */
export const mistakeAt = (place: Place, text: string): CommandLineError =>
  new CommandLineError(`cannot read the export ${place}: ${text}`);

/**
 * Reads an amount of money, which can be negative.
 *
 * @throws {CommandLineError} If it is no decimal
 */
export function readMoney(value: unknown, place: Place): bigint {
  const text = String(value);
  const exact = multiplyExactly(text.replace(/^-/, ""), 1);
  if (exact === undefined) throw mistakeAt(place, "it has an amount that is no number");
  return text.startsWith("-") ? -parseCost(exact) : parseCost(exact);
}

/** @throws {CommandLineError} If an amount is in another currency than the prices */
export function assertCurrency(value: unknown, currency: string, place: Place): void {
  if (String(value).toUpperCase() === currency) return;
  throw mistakeAt(
    place,
    `it has an amount in another currency than ${currency}: see currency in the configuration`,
  );
}

/** Returns the name of a model without the date of its version, which callers can leave out. */
export const withoutDate = (model: string): string =>
  model.replace(/[-@](?:\d{4}-\d\d-\d\d|20\d{6})$/, "");

/** Lists the entries of a page. */
function listEntries(page: unknown, place: Place): PlacedEntry[] {
  if (!isObject(page) || !Array.isArray(page.data)) {
    throw mistakeAt(
      `${place}data`,
      "expected an array, as in an answer of a usage or cost endpoint",
    );
  }
  return page.data.map((entry: unknown, index) => {
    const own = `${place}data[${index}]`;
    if (!isObject(entry)) throw mistakeAt(own, "expected an object");
    return { entry, place: own };
  });
}

/**
 * Joins the entries of pages.
 *
 * @param name The file or the address, for errors
 * @throws {CommandLineError} For a mistake, and if the last page is missing
 */
export function joinPages(pages: readonly unknown[], name: string): PlacedEntry[] {
  const entries = pages.flatMap((page, index) =>
    listEntries(page, pages.length > 1 ? `${name}: [${index}].` : `${name}: `)
  );
  const last = pages.at(-1);
  if (isObject(last) && last.has_more === true) {
    throw mistakeAt(name, "it is not complete: its last page says that more follow");
  }
  return entries;
}

/** Reads an export: a page, or an array of the pages of one endpoint. */
export function readExportFile(file: string): PlacedEntry[] {
  let content: unknown;
  try {
    content = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    const reason = error instanceof SyntaxError ? "it is not JSON" : codeOf(error);
    throw new CommandLineError(`cannot read the export ${file} (${reason})`);
  }
  return joinPages(Array.isArray(content) ? content : [content], file);
}
