/**
 * Exports of a provider's usage and costs, in one form for all providers.
 *
 * @module
 */
import { readFileSync } from "node:fs";
import { parseCost } from "../../config/cost.ts";
import type { ClassAmounts } from "../../exchange/billing.ts";
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

/**
 * Reads an amount of money, which can be negative.
 *
 * @throws {CommandLineError} If it is no decimal
 */
export function readMoney(value: unknown): bigint {
  const text = String(value);
  const exact = multiplyExactly(text.replace(/^-/, ""), 1);
  if (exact === undefined) throw new CommandLineError("the export has an amount that is no number");
  return text.startsWith("-") ? -parseCost(exact) : parseCost(exact);
}

/** @throws {CommandLineError} If an amount is in another currency than the prices */
export function assertCurrency(value: unknown, currency: string): void {
  if (String(value).toUpperCase() === currency) return;
  throw new CommandLineError(
    `the export has amounts in another currency than ${currency}: see currency in the configuration`,
  );
}

/** Returns the name of a model without the date of its version, which callers can leave out. */
export const withoutDate = (model: string): string =>
  model.replace(/[-@](?:\d{4}-\d\d-\d\d|20\d{6})$/, "");

/**
 * Joins the entries of pages.
 *
 * @throws {CommandLineError} If the last page is missing
 */
export function joinPages(pages: readonly unknown[]): Entry[] {
  const entries = pages.flatMap((page) => {
    if (!isObject(page) || !Array.isArray(page.data)) {
      throw new CommandLineError("the export is not the answer of a usage or cost endpoint");
    }
    return page.data.filter(isObject);
  });
  const last = pages.at(-1);
  if (isObject(last) && last.has_more === true) {
    throw new CommandLineError("the export is not complete: its last page says that more follow");
  }
  return entries;
}

/** Reads an export: a page, or an array of the pages of one endpoint. */
export function readExportFile(file: string): Entry[] {
  let content: unknown;
  try {
    content = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    const reason = error instanceof SyntaxError ? "it is not JSON" : codeOf(error);
    throw new CommandLineError(`cannot read the export ${file} (${reason})`);
  }
  return joinPages(Array.isArray(content) ? content : [content]);
}
