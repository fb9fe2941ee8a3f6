/**
 * The use of limits as administrators see it.
 *
 * @module
 */
import { formatMoney } from "../config/units.ts";
import { isMoney, isWindowed, type LimitName } from "../config/limit_kinds.ts";
import type { LimitStatus } from "../limits/limiter.ts";

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

/** Describes the status of one limit for administrators. */
export function toLimitUse(status: LimitStatus): LimitUse {
  const { name, limit, used } = status;
  const { spend } = status.subject.limits;
  const amounts = isMoney(name) && spend !== undefined
    ? {
      limit: Number(formatMoney(limit)),
      used: Number(formatMoney(used)),
      currency: spend.currency,
    }
    : { limit, used };
  return {
    name,
    ...amounts,
    ...(isWindowed(name) && { resetsIn: `${Math.ceil(status.resetMs / 1000)}s` }),
  };
}
