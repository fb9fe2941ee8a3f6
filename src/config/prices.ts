/**
 * Prices as settings, and the exact cost of tokens in whole units of 10^-12 of the currency.
 *
 * @module
 */
import * as v from "valibot";
import { matchesGlob } from "./glob.ts";
import { strictObject } from "./schema.ts";

/** Prices of a million tokens of one model. */
export interface Price {
  /** Price of prompt tokens. */
  readonly input: number;
  /** Price of answer tokens, reasoning included. */
  readonly output: number;
  /** Price of prompt tokens from the provider's cache; default: the same as `input`. */
  readonly cached?: number | undefined;
}

/** Prices by the model's name, in which `*` matches any characters. */
export type Prices = Readonly<Record<string, Price>>;

const MAX_PRICE = 1e6;
/**
 * Maximum number of decimals in a price: the price of one token, in 10^-12 of the currency, is then
 * a whole number.
 */
const DECIMALS = 6;
/** Decimals of a cost: the decimals of a price, and six more for the million. */
const COST_DECIMALS = 2 * DECIMALS;

const priceForm =
  `expected a price of a million tokens from 0 to ${MAX_PRICE}, with ${DECIMALS} decimals at most`;
const price = v.pipe(
  v.number(priceForm),
  v.minValue(0, priceForm),
  v.maxValue(MAX_PRICE, priceForm),
  v.check(
    (value) => new RegExp(`^[0-9]+(?:\\.[0-9]{1,${DECIMALS}})?$`).test(String(value)),
    priceForm,
  ),
);

const pricesForm = 'expected an object such as { "gpt-4o": { "input": 2.5, "output": 10 } }';

/** @internal Prices as written in the configuration. */
export const PricesSchema: v.GenericSchema<Prices> = v.record(
  v.pipe(
    v.string(),
    v.regex(/[^0-9]/, "expected the name of a model"), // an index of an array is not a name
    v.maxLength(256, "expected at most 256 characters"),
  ),
  strictObject(
    {
      input: v.pipe(price, v.description("A million tokens of prompts")),
      output: v.pipe(price, v.description("A million tokens of answers, reasoning included")),
      cached: v.optional(
        v.pipe(
          price,
          v.description(
            "A million tokens of prompts from the provider's cache; as input if left out",
          ),
        ),
      ),
    },
    "expected an object with input and output",
  ),
  pricesForm,
);

/** @internal The schema of the currency. */
export const CurrencySchema: v.GenericSchema<string> = v.pipe(
  v.string('expected a currency such as "USD"'),
  v.regex(/^[A-Z]{3}$/, 'expected a currency such as "USD"'),
);

/** Converts the price of a million tokens to the price of one, in 10^-12 of the currency. */
function toUnits(value: number): bigint {
  const [whole = "0", decimals = ""] = String(value).split(".");
  return BigInt(whole + decimals.padEnd(DECIMALS, "0"));
}

/**
 * Finds the price of a model: by its name, else by the longest pattern that matches it. A
 * provider's own prices have precedence over the prices for all.
 *
 * @param tables Prices, highest precedence first
 */
export function findPrice(
  model: string,
  ...tables: readonly (Prices | undefined)[]
): Price | undefined {
  for (const prices of tables) {
    if (prices === undefined) continue;
    if (Object.hasOwn(prices, model)) return prices[model];
    const [pattern] = Object.keys(prices)
      .filter((name) => name.includes("*") && matchesGlob(model, name))
      .sort((one, other) => other.length - one.length);
    if (pattern !== undefined) return prices[pattern];
  }
  return undefined;
}

/**
 * Combines two prices from the higher one of each part. For any call, the result is at least as
 * high as either.
 */
export function dearestOf(one: Price, other: Price): Price {
  return {
    input: Math.max(one.input, other.input),
    output: Math.max(one.output, other.output),
    cached: Math.max(one.cached ?? one.input, other.cached ?? other.input),
  };
}

/** Numbers of tokens whose cost is computed. */
export interface PricedTokens {
  readonly input: number;
  readonly cached: number;
  readonly output: number;
}

/**
 * Computes the cost of tokens, in 10^-12 of the currency.
 *
 * @param price Price of a million tokens
 * @param tokens Whole numbers; `cached` is part of `input`
 */
export function costOf({ input, output, cached = input }: Price, tokens: PricedTokens): bigint {
  const fromCache = Math.min(tokens.cached, tokens.input);
  return BigInt(tokens.input - fromCache) * toUnits(input) + BigInt(fromCache) * toUnits(cached) +
    BigInt(tokens.output) * toUnits(output);
}

/** Writes a cost in units of 10^-12 of the currency exactly, such as `0.0125`. */
export function formatCost(cost: bigint): string {
  const digits = String(cost).padStart(COST_DECIMALS + 1, "0");
  const decimals = digits.slice(-COST_DECIMALS).replace(/0+$/, "");
  return digits.slice(0, -COST_DECIMALS) + (decimals === "" ? "" : `.${decimals}`);
}
