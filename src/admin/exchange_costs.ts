/**
 * Costs of settled exchanges for operators, by current prices.
 *
 * @module
 */
import { formatCost } from "../config/cost.ts";
import type { CallCosts } from "../observe/call_costs.ts";
import type { LiveCost, LiveExchange } from "../observe/live/live_report.ts";

/** Adds the cost of each exchange whose usage is known. */
export type WithCosts = (exchanges: readonly LiveExchange[]) => readonly LiveExchange[];

function toLiveCost(exchange: LiveExchange, costs: CallCosts): LiveCost | undefined {
  const cost = costs.of(exchange);
  if (cost === undefined) return undefined;
  const { amount, classes, unpriced } = cost;
  return {
    total: amount === undefined ? null : formatCost(amount),
    currency: costs.currency,
    classes: Object.fromEntries(
      Object.entries(classes).map(([name, each]) => [name, formatCost(each)]),
    ),
    ...(unpriced && { unpriced }),
  };
}

/** Creates the function that adds costs. @param costs `undefined` if there are no prices */
export function createWithCosts(costs: CallCosts | undefined): WithCosts {
  if (costs === undefined) return (exchanges) => exchanges;
  return (exchanges) =>
    exchanges.map((exchange) => {
      const cost = toLiveCost(exchange, costs);
      return cost === undefined ? exchange : { ...exchange, cost };
    });
}
