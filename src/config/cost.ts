/**
 * The exact cost of usage by the price of a model, in whole units of 10^-24 of the currency.
 *
 * @module
 */
import {
  addAmounts,
  type BillingClass,
  type ClassAmounts,
  INPUT_CLASSES,
  OUTPUT_CLASSES,
  UNIT_CLASSES,
  type UnitClass,
  type UsagePart,
} from "../exchange/billing.ts";
import { FACTOR_DECIMALS, type FactorWhen, type Price, RATE_DECIMALS } from "./prices.ts";
import { type Applied, findApplied, type MissingPrice, scaledOf } from "./scaled_price.ts";

/** Decimals of a cost: of a rate, six more for the million, and of two factors. */
const COST_DECIMALS = 24;
/** Units of a cost in one unit of a rate: for a million tokens, a thousand calls and an hour. */
export const PER_TOKEN: bigint = 10n ** BigInt(COST_DECIMALS - RATE_DECIMALS - 6);
const PER_CALL = 10n ** BigInt(COST_DECIMALS - RATE_DECIMALS - 3);
const PER_HOUR = 10n ** BigInt(COST_DECIMALS - RATE_DECIMALS);
const HOUR_MS = 3_600_000n;
/** A cost by time that has no end as a decimal is rounded up at its 12th decimal. */
const TIME_UNIT = 10n ** 12n;
const FACTOR_ONE = 10n ** BigInt(FACTOR_DECIMALS);
/** Units of a cost in 10^-9 of the currency: limits count money in these. */
const NANO = 10n ** 15n;

/** A cost of nothing. */
export const NO_COST: Cost = { amount: 0n };

const TIME_CLASSES: ReadonlySet<BillingClass> = new Set(["audioMs", "videoMs", "sessionMs"]);
const UNITS: ReadonlySet<string> = new Set(UNIT_CLASSES);
const INPUTS: ReadonlySet<string> = new Set(INPUT_CLASSES);
export const isUnit = (name: BillingClass): name is UnitClass => UNITS.has(name);
/** The classes of the same side: a token is input or output. */
const sideOf = (name: BillingClass): readonly BillingClass[] =>
  INPUTS.has(name) ? INPUT_CLASSES : OUTPUT_CLASSES;

/** Lists the classes that have an amount. */
export function amountsOf(classes: ClassAmounts): [BillingClass, number][] {
  const entries = Object.entries(classes) as [BillingClass, number | undefined][];
  return entries.filter((entry): entry is [BillingClass, number] => (entry[1] ?? 0) > 0);
}

/** The cost of usage. */
export interface Cost {
  /** Units of 10^-24 of the currency; `undefined` if nothing has a price. */
  readonly amount: bigint | undefined;
  /** Part of the price that is missing: the cost is `undefined`, or a lower bound. */
  readonly missing?: MissingPrice | undefined;
  /** Amounts of the classes without a rate: the cost is a lower bound. */
  readonly unpriced?: ClassAmounts | undefined;
}

/** A class of a cost: a billing class, or `stated` for a cost that the provider stated. */
export type CostClass = BillingClass | "stated";

/** The cost of a call, and its parts by class. Together they are the amount. */
export interface CallCost extends Cost {
  /** Units of 10^-24 of the currency. Classes that cost nothing are left out. */
  readonly classes: Readonly<Partial<Record<CostClass, bigint>>>;
}

const roundUp = (value: bigint, unit: bigint): bigint => (value + unit - 1n) / unit * unit;

/** Returns the cost of an amount of a class that is not tokens. */
function unitCost(name: UnitClass, amount: number, rate: bigint): bigint {
  const cost = BigInt(amount) * rate;
  if (name === "characters") return cost * PER_TOKEN;
  if (!TIME_CLASSES.has(name)) return cost * PER_CALL;
  const scaled = cost * PER_HOUR;
  return scaled % HOUR_MS === 0n ? scaled / HOUR_MS : roundUp(scaled / HOUR_MS + 1n, TIME_UNIT);
}

/** Multiplies the cost of tokens with factors. More than two factors are rounded up. */
export function multiply(cost: bigint, factors: readonly bigint[]): bigint {
  let product = cost;
  let divisor = 1n;
  for (const times of factors) {
    product *= times;
    divisor *= FACTOR_ONE;
  }
  return (product + divisor - 1n) / divisor;
}

/** A cost with an amount. */
type KnownCost = Cost & { readonly amount: bigint };

/** Adds up the cost of all classes that have a rate. */
export function addUp(classes: ClassAmounts, { rates, factors }: Applied): KnownCost {
  let tokens = 0n;
  let units = 0n;
  const unpriced: Partial<Record<BillingClass, number>> = {};
  for (const [name, amount] of amountsOf(classes)) {
    const rate = rates[name];
    if (rate !== undefined && isUnit(name)) units += unitCost(name, amount, rate);
    else if (rate !== undefined) tokens += BigInt(amount) * rate * PER_TOKEN;
    else if (name !== "requests") unpriced[name] = amount; // most calls have no fee of their own
  }
  const amount = multiply(tokens, factors) + units;
  return Object.keys(unpriced).length === 0 ? { amount } : { amount, unpriced };
}

/**
 * Computes the cost of a part of a call. Nothing is priced by a row for other conditions.
 *
 * @param at Time for dated rows, milliseconds since 1970
 */
export function costOf(price: Price | undefined, { classes, tariff }: UsagePart, at: number): Cost {
  if (price === undefined) return { amount: undefined, missing: "price" };
  const applied = findApplied(price, tariff, at);
  if (typeof applied === "string") return { amount: undefined, missing: applied };
  return addUp(classes, applied);
}

/**
 * Computes the cost of a part of a call, class by class. Everything without a price is unpriced, also
 * if the model has no price.
 */
export function costByClass(price: Price | undefined, part: UsagePart, at: number): CallCost {
  const applied = price === undefined ? "price" : findApplied(price, part.tariff, at);
  const amounts = amountsOf(part.classes);
  if (typeof applied === "string") {
    const unpriced = Object.fromEntries(amounts.filter(([name]) => name !== "requests"));
    return { amount: undefined, classes: {}, missing: applied, unpriced };
  }
  const { rates, factors } = applied;
  const classes: Partial<Record<CostClass, bigint>> = {};
  let unpriced: Partial<Record<BillingClass, number>> | undefined;
  let sum = 0n;
  for (const [name, amount] of amounts) {
    const rate = rates[name];
    if (rate === undefined) {
      if (name !== "requests") (unpriced ??= {})[name] = amount; // as in addUp
      continue;
    }
    const cost = isUnit(name)
      ? unitCost(name, amount, rate)
      : multiply(BigInt(amount) * rate * PER_TOKEN, factors);
    if (cost > 0n) classes[name] = cost;
    sum += cost;
  }
  return { amount: sum, classes, ...(unpriced && { unpriced }) };
}

/** Returns the larger of two amounts. */
export const larger = (one: bigint, other: bigint): bigint => one > other ? one : other;
/** Returns the largest of some amounts, and at least a certain amount. */
export const largest = (values: readonly bigint[], least: bigint): bigint =>
  values.reduce(larger, least);

/** Kind of a factor. At most one factor of each kind is expected to match a call. */
const kindOf = ({ tier, geo }: FactorWhen): "tier" | "geo" | "time" =>
  tier !== undefined ? "tier" : geo !== undefined ? "geo" : "time";

/**
 * Computes the cost of a part of a call for a budget: its cost, or, where a price is missing, its
 * cost by the dearest rates and factors of the model.
 */
export function budgetCostOf(price: Price, part: UsagePart, at: number): bigint {
  const { amount, unpriced } = costOf(price, part, at);
  if (amount !== undefined && unpriced === undefined) return amount;
  const { rows, factors } = scaledOf(price);
  const ratesOf = (names: readonly BillingClass[]): bigint[] =>
    rows.flatMap(({ rates }) => names.map((name) => rates[name] ?? 0n));
  const rates: Partial<Record<BillingClass, bigint>> = {};
  for (const [name] of amountsOf(part.classes)) {
    const own = ratesOf([name]);
    const isPriced = isUnit(name) || rows.some((row) => row.rates[name] !== undefined);
    rates[name] = largest(isPriced ? own : ratesOf(sideOf(name)), 0n);
  }
  const dearest = (["tier", "geo", "time"] as const).map((kind) => {
    const times = factors.filter(({ when }) => kindOf(when) === kind).map((each) => each.times);
    return largest(times, FACTOR_ONE);
  });
  return addUp(part.classes, { rates, factors: dearest }).amount;
}

/** Adds two costs. The sum has an amount if one of them has. */
export function addCosts(one: Cost, other: Cost): Cost {
  const amount = one.amount === undefined || other.amount === undefined
    ? one.amount ?? other.amount
    : one.amount + other.amount;
  const missing = one.missing ?? other.missing;
  const unpriced = one.unpriced === undefined || other.unpriced === undefined
    ? one.unpriced ?? other.unpriced
    : addAmounts(one.unpriced, other.unpriced);
  return { amount, ...(missing && { missing }), ...(unpriced && { unpriced }) };
}

/** Adds the costs of each class to some sums, which are changed in place. */
export function addClassCosts(
  sums: Partial<Record<CostClass, bigint>>,
  costs: CallCost["classes"],
): void {
  for (const key in costs) {
    const name = key as CostClass;
    sums[name] = (sums[name] ?? 0n) + (costs[name] ?? 0n);
  }
}

/** Adds two costs of a call. */
export function addCallCosts(one: CallCost, other: CallCost): CallCost {
  const classes = { ...one.classes };
  addClassCosts(classes, other.classes);
  return { ...addCosts(one, other), classes };
}

/** Reads a cost that was stated as a decimal number. Further decimals are dropped. */
export function parseCost(text: string): bigint {
  const [whole = "0", rest = ""] = text.split(".");
  return BigInt(whole + rest.slice(0, COST_DECIMALS).padEnd(COST_DECIMALS, "0"));
}

/** Returns a cost in whole units of 10^-9 of the currency, rounded up. */
export function toNano(cost: bigint): number {
  return Number(roundUp(cost, NANO) / NANO);
}

/** Returns a cost as a number of the currency, for metrics: its last digits are rounded. */
export function toNumber(cost: bigint): number {
  return Number(cost) / 10 ** COST_DECIMALS;
}

/** Writes a cost exactly, such as `0.0125`. */
export function formatCost(cost: bigint): string {
  const digits = String(cost).padStart(COST_DECIMALS + 1, "0");
  const decimals = digits.slice(-COST_DECIMALS).replace(/0+$/, "");
  return digits.slice(0, -COST_DECIMALS) + (decimals === "" ? "" : `.${decimals}`);
}
