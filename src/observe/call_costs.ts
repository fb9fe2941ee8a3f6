/**
 * The costs of settled calls for the log and the metrics, by the prices of a configuration.
 *
 * @module
 */
import type { CallCost } from "../config/cost.ts";
import type { PriceBook } from "../config/price_book.ts";
import type { ExchangeRecord } from "../exchange/record.ts";

/** The facts of a record that decide its cost. */
export type PricedRecord = Pick<
  ExchangeRecord,
  "usage" | "provider" | "model" | "startedAt" | "durationMs"
>;

/** Computes the cost of each call once, however many observers ask. */
export class CallCosts {
  /** Currency of all costs. */
  readonly currency: string;
  readonly #prices: PriceBook;
  readonly #costs = new WeakMap<PricedRecord, CallCost>();

  constructor(prices: PriceBook, currency: string) {
    this.#prices = prices;
    this.currency = currency;
  }

  /**
   * Returns the cost of a call, which has no amount if nothing has a price; `undefined` for a call
   * without usage.
   */
  of(record: PricedRecord): CallCost | undefined {
    const { usage, provider, model, startedAt, durationMs } = record;
    if (usage === undefined || provider === undefined || model === undefined) return undefined;
    let cost = this.#costs.get(record);
    if (cost === undefined) {
      cost = this.#prices.costOf(usage, { provider, model }, startedAt + durationMs);
      this.#costs.set(record, cost);
    }
    return cost;
  }
}
