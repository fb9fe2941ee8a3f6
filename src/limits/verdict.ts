/**
 * The verdict on an exchange: a refusal, or the terms of its lease. All limiters reach it from the state of the limits
 * before the exchange was counted.
 *
 * @module
 */
import { formatBudget, formatRate } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Lease, Standing } from "./limiter.ts";

const CODES = {
  requests: "rate_limit_exceeded",
  tokens: "rate_limit_exceeded",
  budget: "budget_exceeded",
  concurrency: "concurrency_limit_exceeded",
} as const;

/** Structured fields hold integers of 15 digits at most (RFC 9651 §3.3.1). */
const MAX_FIELD_INTEGER = 999_999_999_999_999;
const toInteger = (count: number): number => Math.min(count, MAX_FIELD_INTEGER);

/**
 * Enforces limits: one that is reached refuses the exchange, or is only noted in observe mode.
 *
 * @param standings State of all limits, without this exchange
 * @returns The terms of its lease
 * @throws {GatewayError} If an enforced limit is reached
 */
export function enforce(standings: readonly Standing[]): Pick<Lease, "headers" | "observed"> {
  const refusing = findRefusing(standings);
  if (refusing.length > 0) throw toRefusal(refusing, standings);
  return { headers: toHeaders(standings, 1), observed: standings.find(isReached)?.name };
}

/**
 * Finds the limits that refuse an exchange.
 *
 * @param standings State of all limits, without this exchange
 * @returns Those that are reached and enforced
 */
export function findRefusing(standings: readonly Standing[]): Standing[] {
  return standings.filter((standing) => isReached(standing) && standing.subject.limits.mode !== "observe");
}

const isReached = ({ used, limit }: Standing): boolean => used >= limit;

/** Creates the refusal, for the limit that takes longest to reset. */
function toRefusal(refusing: readonly Standing[], standings: readonly Standing[]): GatewayError {
  const worst = refusing.reduce((one, other) => other.resetMs > one.resetMs ? other : one);
  return new GatewayError(CODES[worst.name], {
    detail: describe(worst),
    retryAfterMs: Math.max(1, worst.resetMs),
    limit: toPolicyName(worst),
    headers: toHeaders(standings, 0),
  });
}

/** Describes a limit for an error message, in the notation of the config. */
function describe({ subject: { name, limits }, name: limited, limit }: Standing): string {
  const owner = name.startsWith("key:") ? "this gateway key" : "this provider, for all keys";
  const { requests, tokens, budget } = limits;
  if (limited === "requests" && requests) return `${formatRate(requests)} requests for ${owner}`;
  if (limited === "tokens" && tokens) return `${formatRate(tokens)} tokens for ${owner}`;
  if (limited === "budget" && budget) return `${formatBudget(budget)} tokens for ${owner}`;
  return `${limit} at once for ${owner}`;
}

/** Returns the name of a limit in headers, log and metrics. */
function toPolicyName({ subject, name }: Standing): string {
  return subject.name.startsWith("key:") ? name : `provider-${name}`;
}

/**
 * Writes the two fields of draft-ietf-httpapi-ratelimit-headers-10, which do not collide with a provider's
 * `x-ratelimit-*`.
 *
 * @param standings State of the limits
 * @param admitted 1 if this exchange is admitted and not counted in them, else 0
 * @returns `ratelimit-policy` and `ratelimit`, or nothing where nothing is limited
 */
function toHeaders(standings: readonly Standing[], admitted: 0 | 1): Record<string, string> {
  if (standings.length === 0) return {};
  let policies = "";
  let rests = "";
  for (const standing of standings) {
    const { subject: { limits }, name, limit, used, resetMs } = standing;
    const policy = `${policies === "" ? "" : ", "}"${toPolicyName(standing)}"`;
    const window = name === "requests" ? limits.requests : name === "tokens" ? limits.tokens : undefined;
    const unit = name === "requests" ? "" : `;qu="${name === "concurrency" ? "concurrent-requests" : "tokens"}"`;
    const every = window === undefined ? "" : `;w=${Math.ceil(window.windowMs / 1000)}`;
    policies += `${policy};q=${toInteger(limit)}${unit}${every}`;
    const taken = name === "requests" || name === "concurrency" ? admitted : 0;
    const reset = name === "concurrency" ? "" : `;t=${Math.ceil(resetMs / 1000)}`;
    rests += `${policy};r=${toInteger(Math.max(0, limit - used - taken))}${reset}`;
  }
  return { "ratelimit-policy": policies, ratelimit: rests };
}
