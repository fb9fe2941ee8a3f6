/**
 * Models whose providers bill tokens that are written to a cache at more than input. If the price
 * of such a model has no `cacheWrite`, they are priced as input, which is too low.
 *
 * @module
 */
import type { Misfit } from "./cross_checks.ts";
import { matchesGlob } from "./glob.ts";
import { listPriceTables, type PriceSettings } from "./price_book.ts";
import type { Price, PriceRow } from "./prices.ts";

/** OpenAI bills cache writes from this version of GPT on. */
const FIRST_GPT = 5.6;
const GPT = /(?:^|[/.])gpt-(\d+(?:\.\d+)?)/;
/** A name that stands for the models that a pattern such as `gpt-*` matches. */
const SAMPLES = ["gpt-5.6", "gpt-6", "gpt-6.2-sol"];

/** True if a provider bills cache writes of this model, or of a model that this pattern matches. */
function writesCaches(name: string): boolean {
  if (/(?:^|[/.])claude/.test(name)) return true;
  const version = GPT.exec(name)?.[1];
  if (version !== undefined && !name.includes("*")) return Number(version) >= FIRST_GPT;
  return name.startsWith("gpt") && SAMPLES.some((sample) => matchesGlob(sample, name));
}

/** True if all rates of a price for text have a rate of cache writes. */
function hasWrites({ rows = [], ...flat }: Price): boolean {
  const all: PriceRow["rates"][] = [flat, ...rows.map(({ rates }) => rates)];
  return all.every(({ input, cacheWrite }) => input === undefined || cacheWrite !== undefined);
}

/** Finds prices without `cacheWrite` of models that write caches. */
export function findMissingWrites(settings: PriceSettings): Misfit[] {
  return listPriceTables(settings).flatMap(([path, table]) =>
    Object.entries(table).flatMap(([name, price]) =>
      hasWrites(price) || !writesCaches(name) ? [] : [{
        path: [...path, name],
        message: "has no cacheWrite: tokens that this model writes to a cache are priced as " +
          "input, and its provider bills more for them",
      }]
    )
  );
}
