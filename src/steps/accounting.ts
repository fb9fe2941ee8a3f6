/**
 * The prices and estimates of one gateway, from which its calls are charged:
 *
 * - `token_account.ts` decides the amounts to reserve, before a call, from `counted_call.ts` and
 *   `call_price.ts`; `fixed_price.ts` for calls whose answer states no usage
 * - `usage_at_end.ts` completes the usage of a call at its end: `charge.ts` decides it, and
 *   `request_usage.ts` adds the tariff that the request asks for
 * - `later_usage.ts` corrects the charge of a call whose usage is stated in a later answer
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { PriceBook } from "../config/price_book.ts";
import { TokenEstimator } from "../limits/estimate.ts";

/** The settings of a gateway that decide about costs. */
type PricedConfig = Pick<Config, "prices" | "currency" | "providers">;

/** Estimates and prices of one gateway. */
export interface Accounting {
  readonly config: PricedConfig;
  readonly book: PriceBook;
  readonly estimator: TokenEstimator;
}

export function createAccounting(config: PricedConfig): Accounting {
  return { config, book: new PriceBook(config), estimator: new TokenEstimator() };
}
