/**
 * The cost of a row of usage by current prices: by billing class and tariff, at the row's time.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { type CallCost, costByClass, type CostClass, costOf } from "../config/cost.ts";
import { PriceBook } from "../config/price_book.ts";
import type { Price } from "../config/prices.ts";
import type { BillingClass, ClassAmounts } from "../exchange/billing.ts";
import { addClasses, addStatedCost, isTokenClass, moreOf, toClasses } from "./classes.ts";
import { noCounts, type UsageRow } from "./counts.ts";
import { readTariff, type StoredTariff, timeOf } from "./tariff.ts";
import type { OpenCounts } from "./usage_table.ts";

/** Units of a cost, which are 10^-24 of the currency, in 10^-10 of the currency. */
const STATED_UNIT = 10n ** 14n;

/** The settings that state prices. */
export type PricedConfig = Pick<Config, "prices" | "providers">;

/** The cost of a row. */
export interface RowCost {
  /** Units of 10^-24 of the currency; `undefined` if nothing has a price. */
  readonly amount: bigint | undefined;
  /** Its parts by class. Classes that cost nothing are left out. */
  readonly classes: CallCost["classes"];
  /** The part of the cost that is for estimated tokens. */
  readonly estimated: bigint;
  /** Amounts without a price, by class. */
  readonly unpriced: ClassAmounts | undefined;
}

/** A part of a row that is of one class. */
export interface ClassPart {
  readonly name: CostClass;
  /** Its amount: tokens, calls, characters or milliseconds; of `stated`, 10^-10 of the currency. */
  readonly amount: number;
  readonly row: UsageRow;
  readonly cost: RowCost;
}

const NOTHING: RowCost = { amount: undefined, classes: {}, estimated: 0n, unpriced: undefined };

/** Returns the amounts that need a price. The number of calls needs none. */
function needsPrice({ requests: _, ...classes }: ClassAmounts): ClassAmounts | undefined {
  return Object.keys(classes).length === 0 ? undefined : classes;
}

/** Returns whether some amounts have more classes than others. */
function hasMore(amounts: ClassAmounts | undefined, others: ClassAmounts): boolean {
  return amounts !== undefined && Object.keys(amounts).length > Object.keys(others).length;
}

/** Computes costs. Each price is looked up once. */
export class RowPricing {
  readonly #config: PricedConfig;
  readonly #book: PriceBook;

  constructor(config: PricedConfig) {
    this.#config = config;
    this.#book = new PriceBook(config);
  }

  /** Computes the cost of a row. */
  costOf(row: UsageRow): RowCost {
    const stored = readTariff(row.tariff);
    if (this.#isStated(row, stored)) return toStatedCost(row);
    return this.#costOf(row, toClasses(row), stored);
  }

  /** Divides a row by class. Together, the parts have its counts and its cost. */
  *byClass(row: UsageRow): Iterable<ClassPart> {
    const stored = readTariff(row.tariff);
    const isStated = this.#isStated(row, stored);
    const classes = toClasses(row);
    const stated = moreOf(row.more, "statedCost");
    if (stated > 0) {
      const part = toPart(row, (open) => addStatedCost(open, stated));
      const cost = isStated ? toStatedCost(part) : NOTHING;
      yield { name: "stated", amount: stated, row: part, cost };
    }
    const { requests = 0, ...others } = classes;
    if (row.counts.requests > 0) {
      const part = ofCalls(row);
      const cost = isStated ? NOTHING : this.#costOf(part, { requests }, stored);
      yield { name: "requests", amount: row.counts.requests, row: part, cost };
    }
    for (const [name, amount] of Object.entries(others) as [BillingClass, number][]) {
      const part = toPart(row, (open) => addClasses(open, { [name]: amount }, false));
      const { counts } = part;
      if (name === "input") counts.estimatedInput = row.counts.estimatedInput;
      if (name === "output") {
        counts.estimatedOutput = row.counts.estimatedOutput;
        counts.other = Math.min(row.counts.other, amount);
        counts.output -= counts.other;
      }
      const cost = isStated ? NOTHING : this.#costOf(part, { [name]: amount }, stored);
      yield { name, amount, row: part, cost };
    }
  }

  /** True if the cost of a row is what its provider states. */
  #isStated({ provider }: UsageRow, { isStated }: StoredTariff): boolean {
    const { providers } = this.#config;
    return isStated && Object.hasOwn(providers, provider) &&
      providers[provider]?.statesCost === true;
  }

  #costOf(row: UsageRow, classes: ClassAmounts, stored: StoredTariff): RowCost {
    if (Object.keys(classes).length === 0) return NOTHING;
    const price = this.#book.find(row);
    const at = timeOf(row.at, stored);
    const part = { classes, tariff: stored.tariff };
    const { amount, classes: costs, unpriced } = costByClass(price, part, at);
    const needed = needsPrice(classes);
    if (amount === undefined) return { ...NOTHING, unpriced: needed };
    // A fee of nothing for calls alone is not a cost: their tokens are unknown, or free.
    if (needed === undefined && amount === 0n) return NOTHING;
    const isPriced = unpriced === undefined || amount > 0n || hasMore(needed, unpriced);
    if (!isPriced) return { ...NOTHING, unpriced };
    return { amount, classes: costs, estimated: estimatedOf(row, price, stored), unpriced };
  }
}

/** A row with a part of the counts of another. */
function toPart(row: UsageRow, add: (open: OpenCounts) => void): UsageRow & OpenCounts {
  const part = { ...row, counts: noCounts(), more: undefined };
  add(part);
  return part;
}

/** The calls of a row, without their tokens. */
function ofCalls(row: UsageRow): UsageRow {
  const { requests, partial, unmetered, failed, estimated } = row.counts;
  const counts = { ...noCounts(), requests, partial, unmetered, failed, estimated };
  return { ...row, counts, more: undefined };
}

function toStatedCost({ more }: UsageRow): RowCost {
  const amount = BigInt(moreOf(more, "statedCost")) * STATED_UNIT;
  return { amount, classes: { stated: amount }, estimated: 0n, unpriced: undefined };
}

function estimatedOf(
  { counts, at }: UsageRow,
  price: Price | undefined,
  stored: StoredTariff,
): bigint {
  const { estimatedInput: input, estimatedOutput: output } = counts;
  if (input + output === 0) return 0n;
  const { tariff } = stored;
  return costOf(price, { classes: { input, output }, tariff }, timeOf(at, stored)).amount ?? 0n;
}

/** Returns the number of tokens among some amounts. */
export function tokensIn(classes: ClassAmounts = {}): number {
  let sum = 0;
  for (const [name, amount] of Object.entries(classes) as [BillingClass, number][]) {
    if (isTokenClass(name)) sum += amount;
  }
  return sum;
}
