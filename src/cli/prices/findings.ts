/**
 * The result of reading a table of prices: the price of each model, and everything that was not
 * taken from the table.
 *
 * @module
 */
import { formatMistake, formatPath } from "../../config/issue.ts";
import { checkPriceFile } from "../../config/price_table.ts";
import { FACTOR_DECIMALS, type Price, RATE_DECIMALS } from "../../config/prices.ts";
import { decimalsOf, multiplyExactly, toDecimal } from "./decimal.ts";
import type { Decimal } from "../../config/prices.ts";

/** All published tables are in US dollars. */
export const CURRENCY = "USD";

/** Reasons why a key of a table was not taken. */
export const REASONS = {
  unknown: "not understood",
  unmetered: "understood, but without a billing class: these costs are not counted",
  zero: "0, which means free or unknown: left without a price",
  refused: "refused, and the model with it",
  note: "taken, with a note",
} as const;
/** Name of a reason. */
export type Reason = keyof typeof REASONS;

/** Returns the mistake for which a file of prices refuses a price, if there is one. */
function findMistake(model: string, price: Price): string | undefined {
  const checked = checkPriceFile({ currency: CURRENCY, prices: { [model]: price } }, CURRENCY);
  if (!("prices" in checked)) {
    const root = formatPath(["prices", model]);
    return checked.map(({ path, message }) =>
      formatMistake({ path: path.slice(root.length).replace(/^\./, ""), message })
    ).join("; ");
  }
  return Object.hasOwn(checked.prices, model) ? undefined : "expected another name of the model";
}

/** Prices by model, and findings about keys. */
export class Findings {
  /** Prices by the name of the model. */
  readonly prices: Map<string, Price> = new Map();
  /** Names of models by reason and text. */
  readonly #found = new Map<Reason, Map<string, Set<string>>>();
  readonly #refused = new Set<string>();
  readonly #seen = new Set<string>();

  /** Adds a finding about a key of a model. */
  add(reason: Reason, key: string, model: string): void {
    const texts = this.#found.get(reason) ?? new Map<string, Set<string>>();
    this.#found.set(reason, texts);
    texts.set(key, (texts.get(key) ?? new Set()).add(model));
    if (reason === "refused") this.#refused.add(model);
  }

  /** True if the table has a model, also if its price was not taken. */
  has(model: string): boolean {
    return this.#seen.has(model);
  }

  /**
   * Adds the price of a model; `undefined` if the table has none. A second, different one refuses
   * the model.
   */
  set(model: string, price: Price | undefined): void {
    this.#seen.add(model);
    if (price === undefined && !this.#refused.has(model)) {
      this.add("zero", "all of its prices", model);
    }
    if (price === undefined) return;
    const earlier = this.prices.get(model);
    if (earlier !== undefined && JSON.stringify(earlier) !== JSON.stringify(price)) {
      this.add("refused", "the table has two different prices under this name", model);
    }
    this.prices.set(model, price);
  }

  /** Removes the prices of refused models, and of those that a file of prices refuses. */
  finish(): void {
    for (const [model, price] of this.prices) {
      const mistake = findMistake(model, price);
      if (mistake !== undefined) this.add("refused", mistake, model);
    }
    for (const model of this.#refused) this.prices.delete(model);
  }

  /** Lists the findings with a reason: keys, and the models that have them. */
  list(reason: Reason): [key: string, models: string[]][] {
    return Array.from(
      this.#found.get(reason) ?? [],
      ([key, models]): [string, string[]] => [key, Array.from(models).toSorted()],
    ).toSorted(([one], [other]) => one < other ? -1 : 1);
  }

  /**
   * Reads a rate.
   *
   * @param times Factor from the table's unit to that of a price, such as a million
   * @returns `undefined` if it was not taken, with a finding that says why
   */
  rate(value: unknown, times: number, key: string, model: string): Decimal | undefined {
    const text = multiplyExactly(value, times);
    if (text === undefined) {
      if (value !== null) this.add("refused", `${key}: expected a decimal from 0`, model);
    } else if (decimalsOf(text) > RATE_DECIMALS) {
      this.add("refused", `${key}: more than ${RATE_DECIMALS} decimals`, model);
    } else if (text === "0") {
      this.add("zero", key, model);
    } else {
      return toDecimal(text);
    }
    return undefined;
  }

  /** Reads a factor, as {@link rate}. */
  factor(value: unknown, key: string, model: string): Decimal | undefined {
    const text = multiplyExactly(value, 1);
    if (text !== undefined && text !== "0" && decimalsOf(text) <= FACTOR_DECIMALS) {
      return toDecimal(text);
    }
    this.add(
      "refused",
      `${key}: expected a factor with ${FACTOR_DECIMALS} decimals at most`,
      model,
    );
    return undefined;
  }
}

/** Options of reading a table. */
export interface TableQuery {
  /** Name of the provider in the table. */
  readonly provider: string;
  /** True if a model is wanted, by its name without a prefix. */
  readonly isWanted: (model: string) => boolean;
}

/** True for an object of JSON. */
export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
