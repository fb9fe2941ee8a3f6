/**
 * The use of limits as administrators see it.
 *
 * @module
 */
import { formatMoney } from "../config/units.ts";
import { isWindowed, type LimitName } from "../limits/limit_kinds.ts";
import type { Standing } from "../limits/limiter.ts";

/** The use of one limit. */
export interface LimitUse {
  /** Name of the limit; `spend` is the budget of money. */
  readonly name: LimitName;
  /** The maximum. For money, in its currency. */
  readonly limit: number;
  /** The used amount. */
  readonly used: number;
  /** Currency of a budget of money. */
  readonly currency?: string;
  /** Time until the limit resets, such as `30s`. */
  readonly resetsIn?: string;
}

/** Describes the state of one limit for administrators. */
export function toLimitUse(standing: Standing): LimitUse {
  const { name, limit, used } = standing;
  const { spend } = standing.subject.limits;
  const amounts = name === "spend" && spend !== undefined
    ? {
      limit: Number(formatMoney(limit)),
      used: Number(formatMoney(used)),
      currency: spend.currency,
    }
    : { limit, used };
  return {
    name,
    ...amounts,
    ...(isWindowed(name) && { resetsIn: `${Math.ceil(standing.resetMs / 1000)}s` }),
  };
}
