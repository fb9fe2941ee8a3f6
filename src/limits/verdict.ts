/**
 * The verdict on limits that are reached: a refusal, or a note where a limit only observes.
 *
 * @module
 */
import { formatBudget, formatRate } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { type LimitName, policyOf, type Standing } from "./limiter.ts";
import { toRateLimitHeaders } from "./rate_limit_headers.ts";

const CODES = {
  requests: "rate_limit_exceeded",
  tokens: "rate_limit_exceeded",
  budget: "budget_exceeded",
  concurrency: "concurrency_limit_exceeded",
} as const;

/** Describes a limit for an error message, in the notation of the config. */
function describe({ subject: { name, limits }, name: limited, limit }: Standing): string {
  const owner = name.startsWith("key:") ? "this gateway key" : "this provider, for all keys";
  const { requests, tokens, budget } = limits;
  if (limited === "requests" && requests) return `${formatRate(requests)} requests for ${owner}`;
  if (limited === "tokens" && tokens) return `${formatRate(tokens)} tokens for ${owner}`;
  if (limited === "budget" && budget) return `${formatBudget(budget)} tokens for ${owner}`;
  return `${limit} at once for ${owner}`;
}

/**
 * Creates the refusal, for the limit that takes longest to reset.
 *
 * @param exceeded Limits that are reached, at least one
 * @param standings State of all limits
 * @returns The error to throw
 */
export function toRefusal(exceeded: readonly Standing[], standings: readonly Standing[]): GatewayError {
  const worst = exceeded.reduce((one, other) => other.resetMs > one.resetMs ? other : one);
  return new GatewayError(CODES[worst.name], {
    detail: describe(worst),
    retryAfterMs: Math.max(1, worst.resetMs),
    limit: policyOf(worst),
    headers: toRateLimitHeaders(standings),
  });
}

/**
 * Judges the limits that are reached: an enforced one refuses the exchange, one in observe mode is only noted.
 *
 * @param reached Limits that are reached
 * @param standings State of all limits
 * @returns The first reached limit, when all of them only observe; `undefined` when none is reached
 * @throws {GatewayError} If one of them is enforced
 */
export function judge(reached: readonly Standing[], standings: readonly Standing[]): LimitName | undefined {
  const enforced = reached.filter(({ subject }) => subject.limits.mode !== "observe");
  if (enforced.length > 0) throw toRefusal(enforced, standings);
  return reached[0]?.name;
}
