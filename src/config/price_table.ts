/**
 * Files of prices, which `prices.file` of the configuration names. `sallyport prices import` writes
 * them.
 *
 * @module
 */
import * as v from "valibot";
import { describeIssue, expandUnion, type Mistake } from "./issue.ts";
import { CurrencySchema, type Prices, PricesSchema } from "./prices.ts";
import { shortText } from "./schema.ts";

/** The content of a file of prices. */
export interface PriceFile {
  /** Currency of all its prices. */
  readonly currency: string;
  /** A note: the table that they were imported from. */
  readonly source?: string | undefined;
  /** A note: the day of the last import, such as `2026-11-26`. */
  readonly date?: string | undefined;
  /** A note: SHA-256 of that table. */
  readonly digest?: string | undefined;
  readonly prices: Prices;
}

const dateForm = 'expected a day such as "2026-11-26"';
const digestForm = "expected a SHA-256 in hexadecimal";

/** @internal The schema of a file of prices. Unknown keys are mistakes. */
export const PriceFileSchema: v.GenericSchema<PriceFile> = v.strictObject({
  currency: CurrencySchema,
  source: v.optional(shortText),
  date: v.optional(v.pipe(v.string(dateForm), v.regex(/^\d{4}-\d\d-\d\d$/, dateForm))),
  digest: v.optional(v.pipe(v.string(digestForm), v.regex(/^[0-9a-f]{64}$/, digestForm))),
  prices: PricesSchema,
}, "expected an object");

/** Finds prices in another currency. The paths are relative to the prices. */
export function findForeignPrices(
  prices: Prices,
  currency: string,
): { readonly path: readonly string[]; readonly message: string }[] {
  return Object.entries(prices).flatMap(([model, price]) =>
    price.currency === undefined || price.currency === currency ? [] : [{
      path: [model, "currency"],
      message: `expected ${currency}, the currency of all prices`,
    }]
  );
}

/**
 * Checks the content of a file of prices.
 *
 * @param currency The currency of all prices
 * @returns The file, or its mistakes
 */
export function checkPriceFile(
  input: unknown,
  currency: string,
): PriceFile | readonly Mistake[] {
  const result = v.safeParse(PriceFileSchema, input);
  if (!result.success) {
    const issues = result.issues.flatMap(expandUnion).map((issue) => describeIssue(issue));
    return issues.filter(({ path }, index) =>
      issues.findIndex((earlier) => earlier.path === path) === index
    );
  }
  const { output } = result;
  const message = `expected ${currency}, the currency of all prices`;
  const issues = findForeignPrices(output.prices, currency).map((each) => ({
    ...each,
    path: ["prices", ...each.path].join("."),
  }));
  if (output.currency !== currency) issues.unshift({ path: "currency", message });
  return issues.length > 0 ? issues : output;
}
