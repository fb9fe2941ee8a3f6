/**
 * The rates and factors of a price that apply to a call.
 *
 * @module
 */
import { BILLING_CLASSES, type BillingClass, type Tariff } from "../exchange/billing.ts";
import { geoOf, tierOf } from "./price_conditions.ts";
import {
  type Decimal,
  FACTOR_DECIMALS,
  type FactorWhen,
  type HoursOfDays,
  type Price,
  RATE_DECIMALS,
  type Rates,
  type RowWhen,
} from "./prices.ts";

/** Classes that cost as much as another class if they have no rate: providers bill them so. */
const FALLBACKS: Partial<Record<BillingClass, BillingClass>> = {
  cacheRead: "input",
  cacheWrite: "input",
  inputImage: "input",
  inputVideo: "input",
  cacheReadImage: "cacheRead",
  reasoning: "output",
};

/** Part of a price that is missing: the price of the model, or one for a part of its tariff. */
export type MissingPrice = "price" | "tier" | "geo" | "row";

/** Rates of a row, in units of 10^-9, with their fallbacks. */
export type ScaledRates = Readonly<Partial<Record<BillingClass, bigint>>>;

/** Rates under conditions. */
export interface ScaledRow {
  readonly when: RowWhen;
  readonly rates: ScaledRates;
}

/** A factor under conditions, in units of 10^-4. */
export interface ScaledFactor {
  readonly when: FactorWhen;
  readonly times: bigint;
}

/** A price whose numbers were read. */
export interface ScaledPrice {
  readonly rows: readonly ScaledRow[];
  readonly factors: readonly ScaledFactor[];
}

function scale(value: Decimal, decimals: number): bigint {
  const [whole = "0", rest = ""] = String(value).split(".");
  return BigInt(whole + rest.padEnd(decimals, "0"));
}

function scaleRates(rates: Rates): ScaledRates {
  const scaled: Partial<Record<BillingClass, bigint>> = {};
  for (const name of BILLING_CLASSES) {
    let from: BillingClass | undefined = name;
    while (from !== undefined && rates[from] === undefined) from = FALLBACKS[from];
    const rate = from && rates[from];
    if (rate !== undefined) scaled[name] = scale(rate, RATE_DECIMALS);
  }
  return scaled;
}

const read = new WeakMap<Price, ScaledPrice>();

/** Reads the numbers of a price once. Its rates without conditions are the first row. */
export function scaledOf(price: Price): ScaledPrice {
  let scaled = read.get(price);
  if (scaled !== undefined) return scaled;
  const { rows = [], factors = [], cached, cacheRead = cached } = price;
  const flat: Rates = { ...price, ...(cacheRead !== undefined && { cacheRead }) };
  const flatRates = scaleRates(flat);
  const scaledRows: ScaledRow[] = [];
  if (Object.keys(flatRates).length > 0) scaledRows.push({ when: {}, rates: flatRates });
  for (const { when = {}, rates } of rows) scaledRows.push({ when, rates: scaleRates(rates) });
  const scaledFactors = factors.map(({ when, times }) => ({
    when,
    times: scale(times, FACTOR_DECIMALS),
  }));
  scaled = { rows: scaledRows, factors: scaledFactors };
  read.set(price, scaled);
  return scaled;
}

function isInHours(hours: readonly HoursOfDays[], at: number): boolean {
  const date = new Date(at);
  const minute = date.toISOString().slice(11, 16);
  return hours.some(({ days, from, to }) =>
    days.includes(date.getUTCDay()) && minute >= from && minute < to
  );
}

function isFactorMet({ tier, geo, since, until }: FactorWhen, tariff: Tariff, at: number): boolean {
  if (tier !== undefined && tierOf(tier) !== tierOf(tariff.tier)) return false;
  if (geo !== undefined && geoOf(geo) !== geoOf(tariff.geo)) return false;
  if (since !== undefined && at < Date.parse(since)) return false;
  return until === undefined || at < Date.parse(until);
}

function isRowMet(when: RowWhen, tariff: Tariff, at: number): boolean {
  const { over = -1, from = 0, hours, asked = {} } = when;
  if (!isFactorMet(when, tariff, at)) return false;
  if (tariff.context <= over || tariff.context < from) return false;
  if (hours !== undefined && !isInHours(hours, at)) return false;
  return Object.entries(asked).every(([name, value]) => tariff.asked?.[name] === value);
}

/** The rates and the factors that apply to a tariff. */
export interface Applied {
  readonly rates: ScaledRates;
  readonly factors: readonly bigint[];
}

/** Finds the rates and factors of a tariff, or the part of the price that is missing. */
export function findApplied(price: Price, tariff: Tariff, at: number): Applied | MissingPrice {
  const { rows, factors } = scaledOf(price);
  const row = rows.findLast(({ when }) => isRowMet(when, tariff, at));
  if (row === undefined) return "row";
  const met = factors.filter(({ when }) => isFactorMet(when, tariff, at));
  const named = [row, ...met].map(({ when }) => when);
  const tier = tierOf(tariff.tier);
  if (tier !== "" && !named.some((when) => when.tier === tier)) return "tier";
  const geo = geoOf(tariff.geo);
  if (geo !== "" && !named.some((when) => when.geo === geo)) return "geo";
  return { rates: row.rates, factors: met.map(({ times }) => times) };
}
