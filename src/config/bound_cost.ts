/**
 * The most that a call can cost, before it is sent.
 *
 * @module
 */
import type {
  BillingClass,
  ClassAmounts,
  InputClass,
  OutputClass,
  Tariff,
  UsagePart,
} from "../exchange/billing.ts";
import { addUp, amountsOf, budgetCostOf, larger, largest, multiply, PER_TOKEN } from "./cost.ts";
import type { Price } from "./prices.ts";
import { type Applied, findApplied, type MissingPrice, scaledOf } from "./scaled_price.ts";

/** The most that a call can use, before it is sent. */
export interface Bound {
  /** Tokens of input, of any class that the request allows. */
  readonly input: number;
  /** Tokens of output, reasoning included. */
  readonly output: number;
  /** True if the request asks for the cache's longer time. */
  readonly hasLongWrites?: boolean;
  /** Kinds of content other than text in the request, or in the answer that it asks for. */
  readonly modalities?: readonly ("Audio" | "Image" | "Video")[];
  /** Tiers and regions that can serve it. Default: the standard ones. */
  readonly tiers?: readonly (string | undefined)[];
  readonly geos?: readonly (string | undefined)[];
  readonly asked?: Tariff["asked"];
  /** The most calls of tools, and other units. */
  readonly units?: ClassAmounts;
}

/** The most that a call can cost. */
export interface BoundCost {
  /** Units of 10^-24 of the currency, for the classes that have a rate. */
  readonly amount: bigint;
  /** A class, a tier or a region that the call can meet, and that has no price. */
  readonly missing?: BillingClass | MissingPrice | undefined;
}

/** Lists the classes that a bounded call can use, of one side. */
function possibleClasses({ hasLongWrites, modalities = [] }: Bound) {
  const inputs: InputClass[] = ["input", "cacheWrite"];
  const outputs: OutputClass[] = ["output", "reasoning"];
  if (hasLongWrites) inputs.push("cacheWriteLong");
  for (const kind of modalities) {
    inputs.push(`input${kind}`);
    outputs.push(`output${kind}`);
  }
  return { inputs, outputs };
}

/** Adds up the dearest classes of each side. */
function addBound(bound: Bound, applied: Applied): BoundCost {
  const { inputs, outputs } = possibleClasses(bound);
  let missing: BillingClass | undefined;
  let tokens = 0n;
  for (const [count, names] of [[bound.input, inputs], [bound.output, outputs]] as const) {
    if (count === 0) continue;
    missing ??= names.find((name) => applied.rates[name] === undefined);
    const rate = largest(names.map((name) => applied.rates[name] ?? 0n), 0n);
    tokens += BigInt(count) * rate * PER_TOKEN;
  }
  const { amount, unpriced = {} } = addUp({ requests: 1, ...bound.units }, applied);
  const [unit] = amountsOf(unpriced);
  return {
    amount: multiply(tokens, applied.factors) + (amount ?? 0n),
    missing: missing ?? unit?.[0],
  };
}

/**
 * Computes the most that a call can cost: by the dearest tariff that it can meet.
 *
 * @param at Time of the call, milliseconds since 1970
 */
export function findBoundCost(price: Price, bound: Bound, at: number): BoundCost {
  const { tiers = [undefined], geos = [undefined], asked } = bound;
  const thresholds = scaledOf(price).rows
    .map(({ when }) => when.over === undefined ? when.from ?? 0 : when.over + 1)
    .filter((context) => context <= bound.input);
  let amount = 0n;
  let missing: BoundCost["missing"];
  for (const context of new Set([0, ...thresholds])) {
    for (const tier of tiers) {
      for (const geo of geos) {
        const applied = findApplied(price, { tier, geo, context, asked }, at);
        const one = typeof applied === "string"
          ? { amount: budgetCostOf(price, toPart(bound), at), missing: applied }
          : addBound(bound, applied);
        amount = larger(amount, one.amount);
        missing ??= one.missing;
      }
    }
  }
  return { amount, missing };
}

/** Returns a bound as a part of usage. */
const toPart = ({ input, output, units }: Bound): UsagePart => ({
  classes: { input, output, ...units },
  tariff: { context: input },
});
