/**
 * Calls whose answer states no usage: the operator's price for them (`callPrices`), and the refusal
 * of those without a price, if tokens or money are limited.
 *
 * @module
 */
import { parseCost, toNano } from "../config/cost.ts";
import type { ProviderConfig } from "../config/provider.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { isSuccess } from "../http/message.ts";
import { findUsageParameter } from "../inbound/query.ts";
import {
  FREE_RESERVATION,
  limitsAmounts,
  type LimitSubject,
  NO_AMOUNTS,
} from "../limits/limiter.ts";
import type { ResolvedOperation } from "../operations/router.ts";
import { hasCost, hasUnstatedCost } from "../operations/table.ts";
import type { Account } from "./counted_call.ts";
import type { Flow, Provider } from "./flow.ts";

/**
 * Returns the operator's price for a call whose answer states no usage (`callPrices`).
 *
 * @returns Units of 10^-9 of the currency; `undefined` if the operator set none
 */
function fixedPriceOf(
  { name, group }: Pick<ResolvedOperation, "name" | "group">,
  { callPrices = {} }: Pick<ProviderConfig, "callPrices">,
): number | undefined {
  const price = [name, group].filter((each) => each !== undefined)
    .map((each) => Object.hasOwn(callPrices, each) ? callPrices[each] : undefined)
    .find((each) => each !== undefined);
  return price === undefined ? undefined : toNano(parseCost(String(price)));
}

/**
 * Refuses a call whose cost no answer states, if tokens or money are limited.
 *
 * @throws {GatewayError} `operation_not_metered`
 */
export function assertMetered(
  operation: ResolvedOperation,
  url: string,
  provider: Provider,
  subjects: readonly LimitSubject[],
): void {
  if (!hasCost(operation) || !subjects.some(limitsAmounts)) return;
  const param = findUsageParameter(url, provider.shape);
  if (param !== undefined) {
    throw unmetered(`send it without ?${param}=, which hides the usage in the answer`, param);
  }
  if (hasUnstatedCost(operation) && fixedPriceOf(operation, provider) === undefined) {
    throw unmetered("the gateway's operator has to set its price in callPrices");
  }
}

const unmetered = (detail: string, param?: string): GatewayError =>
  new GatewayError("operation_not_metered", { detail, ...(param !== undefined && { param }) });

/** Account of a call of which no limit counts an amount. */
export const NO_AMOUNTS_ACCOUNT: Account = {
  reservation: FREE_RESERVATION,
  isPriced: true,
  toAmounts: () => NO_AMOUNTS,
};

/** Returns whether the cost of a call counts: in a limit of its subjects, or in its run. */
export const countsCost = ({ operation, needsReservation, run }: Flow): boolean =>
  needsReservation || (run !== undefined && hasCost(operation));

/**
 * Returns the account of a call whose answer states no usage: the operator's price, if the call
 * succeeds.
 */
export function toFixedAccount(flow: Flow): Account {
  if (!countsCost(flow)) return NO_AMOUNTS_ACCOUNT;
  const { operation, provider, exchange } = flow;
  const price = fixedPriceOf(operation, provider);
  const amounts = { tokens: 0, spend: price ?? 0 };
  return {
    isPriced: price !== undefined,
    reservation: { expected: amounts, most: amounts },
    toAmounts: () => {
      const { answeredStatus } = exchange;
      const hasSucceeded = answeredStatus !== undefined && isSuccess(answeredStatus);
      return hasSucceeded ? amounts : NO_AMOUNTS;
    },
  };
}
