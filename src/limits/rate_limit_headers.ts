/**
 * Limits in the headers of a response.
 *
 * @module
 */
import { policyOf, type Standing } from "./limiter.ts";

/** Structured fields hold integers of 15 digits at most (RFC 9651 §3.3.1). */
const MAX_FIELD_INTEGER = 999_999_999_999_999;
const toInteger = (count: number): number => Math.min(count, MAX_FIELD_INTEGER);

/**
 * The two fields of draft-ietf-httpapi-ratelimit-headers-10, which do not collide with a provider's `x-ratelimit-*`.
 *
 * @param standings State of the limits
 * @returns `ratelimit-policy` and `ratelimit`, or nothing where nothing is limited
 */
export function toRateLimitHeaders(standings: readonly Standing[]): Record<string, string> {
  if (standings.length === 0) return {};
  let policies = "";
  let rests = "";
  for (const { subject, name, limit, used, resetMs } of standings) {
    const policy = `${policies === "" ? "" : ", "}"${policyOf({ subject, name })}"`;
    const window = name === "requests"
      ? subject.limits.requests
      : name === "tokens"
      ? subject.limits.tokens
      : undefined;
    const unit = name === "requests" ? "" : `;qu="${name === "concurrency" ? "concurrent-requests" : "tokens"}"`;
    const every = window === undefined ? "" : `;w=${Math.ceil(window.windowMs / 1000)}`;
    policies += `${policy};q=${toInteger(limit)}${unit}${every}`;
    const reset = name === "concurrency" ? "" : `;t=${Math.ceil(resetMs / 1000)}`;
    rests += `${policy};r=${toInteger(Math.max(0, limit - used))}${reset}`;
  }
  return { "ratelimit-policy": policies, ratelimit: rests };
}
