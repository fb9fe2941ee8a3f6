/**
 * The most that a call can cost, before it is sent.
 *
 * @module
 */
import type {
  BillingClass,
  ClassAmounts,
  InputClass,
  MediaKind,
  OutputClass,
  Tariff,
  UsagePart,
} from "../exchange/billing.ts";
import {
  addUp,
  amountsOf,
  budgetCostOf,
  isUnit,
  larger,
  largest,
  multiply,
  PER_TOKEN,
} from "./cost.ts";
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
  /** Kinds of content other than text in the request, and in the answer that it asks for. */
  readonly inputKinds?: readonly MediaKind[];
  readonly outputKinds?: readonly MediaKind[];
  /** Tiers and regions that can serve it. Default: the standard ones. */
  readonly tiers?: readonly (string | undefined)[];
  readonly geos?: readonly (string | undefined)[];
  readonly asked?: Tariff["asked"];
  /** The most calls of tools, and other units. */
  readonly units?: ClassAmounts;
  /** Classes that the answer can state in place of text: a price by them needs no rate of text. */
  readonly inPlaceOfText?: readonly BillingClass[];
}

/** The most that a call can cost. */
export interface BoundCost {
  /** Units of 10^-24 of the currency, for the classes that have a rate. */
  readonly amount: bigint;
  /** A class, a tier or a region that the call can meet, and that has no price. */
  readonly missing?: BillingClass | MissingPrice | undefined;
}

/** Lists the classes that a bounded call can use, of one side. */
function possibleClasses({ hasLongWrites, inputKinds = [], outputKinds = [] }: Bound) {
  const inputs: InputClass[] = ["input", "cacheWrite"];
  const outputs: OutputClass[] = ["output", "reasoning"];
  if (hasLongWrites) inputs.push("cacheWriteLong");
  for (const kind of inputKinds) inputs.push(`input${kind}`);
  for (const kind of outputKinds) outputs.push(`output${kind}`);
  return { inputs, outputs };
}

/** Adds up the dearest classes of each side. */
function addBound(bound: Bound, applied: Applied): BoundCost {
  const { inputs, outputs } = possibleClasses(bound);
  const inPlace = bound.inPlaceOfText ?? [];
  const isPriced = (name: BillingClass) => applied.rates[name] !== undefined;
  const isInPlace = (name: BillingClass) => inPlace.includes(name) && isPriced(name);
  const isByUnits = inPlace.some((name) => isUnit(name) && isPriced(name));
  let missing: BillingClass | undefined;
  let tokens = 0n;
  for (const [count, names] of [[bound.input, inputs], [bound.output, outputs]] as const) {
    if (count === 0) continue;
    const needsAll = !isByUnits && !names.some(isInPlace);
    if (needsAll) missing ??= names.find((name) => !isPriced(name));
    const rate = largest(names.map((name) => applied.rates[name] ?? 0n), 0n);
    tokens += BigInt(count) * rate * PER_TOKEN;
  }
  const { amount, unpriced = {} } = addUp({ requests: 1, ...bound.units }, applied);
  const unit = amountsOf(unpriced).find(([name]) => !inPlace.includes(name));
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
  const { tiers = [undefined], geos = [undefined] } = bound;
  const thresholds = scaledOf(price).rows
    .map(({ when }) => when.over === undefined ? when.from ?? 0 : when.over + 1)
    .filter((context) => context <= bound.input);
  let amount = 0n;
  let missing: BoundCost["missing"];
  const tariffs = [...new Set([0, ...thresholds])].flatMap((context) =>
    possibleChoices(price, bound).flatMap((asked) =>
      tiers.flatMap((tier) => geos.map((geo): Tariff => ({ tier, geo, context, asked })))
    )
  );
  for (const tariff of tariffs) {
    const applied = findApplied(price, tariff, at);
    const one = typeof applied === "string"
      ? { amount: budgetBound(price, bound, tariff, at), missing: applied }
      : addBound(bound, applied);
    amount = larger(amount, one.amount);
    missing ??= one.missing;
  }
  return { amount, missing };
}

/**
 * Returns the choices with which some usage costs most, for an answer that does not state those that
 * its request leaves open.
 */
export function dearestChoices(
  price: Price,
  { classes, tariff }: UsagePart,
  at: number,
): Tariff["asked"] {
  const costOf = (asked: Tariff["asked"]): bigint =>
    budgetCostOf(price, { classes, tariff: { ...tariff, asked } }, at);
  return possibleChoices(price, tariff)
    .reduce((dearest, asked) => costOf(asked) > costOf(dearest) ? asked : dearest);
}

/** Lists the choices that a call can meet: the provider makes those that its request leaves open. */
function possibleChoices(price: Price, { asked }: Pick<Tariff, "asked">): Tariff["asked"][] {
  const made = Object.entries(asked ?? {}).filter(([, choice]) => choice !== "auto");
  const named = scaledOf(price).rows.flatMap(({ when }) => when.asked ? [when.asked] : []);
  return [asked, ...named.map((choices) => ({ ...choices, ...Object.fromEntries(made) }))];
}

/** Returns the most that a budget is charged for a tariff without a price. */
function budgetBound(price: Price, bound: Bound, tariff: Tariff, at: number): bigint {
  const { inputs, outputs } = possibleClasses(bound);
  const chargeOf = (classes: ClassAmounts) => budgetCostOf(price, { classes, tariff }, at);
  const dearest = (names: readonly BillingClass[], count: number) =>
    largest(names.map((name) => chargeOf({ [name]: count })), 0n);
  return dearest(inputs, bound.input) + dearest(outputs, bound.output) +
    chargeOf({ requests: 1, ...bound.units });
}
