/**
 * The verdict on an exchange: a refusal, or the terms of its lease. All limiters derive it from the
 * status of the limits before the exchange was counted.
 *
 * @module
 */
import { formatBudget, formatMoneyBudget, formatRate } from "../config/units.ts";
import type { LimitSet } from "../config/limit_set.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { isOfCalls, isWindowed, LIMIT_KINDS, type LimitName } from "../config/limit_kinds.ts";
import {
  isCountedByFirstLease,
  type Lease,
  limitOf,
  type LimitStatus,
  type Reservation,
  reservedOf,
  roomFor,
} from "./limiter.ts";

/** Structured fields allow integers of at most 15 digits (RFC 9651 §3.3.1). */
const MAX_FIELD_INTEGER = 999_999_999_999_999;
const toInteger = (count: number): number => Math.min(count, MAX_FIELD_INTEGER);

/**
 * Lease of an admitted exchange. Its headers are written when they are read, because those of most
 * leases are never shown.
 */
class AdmittedLease implements Lease {
  readonly statuses: readonly LimitStatus[];
  readonly observed: Lease["observed"];
  readonly release: Lease["release"];
  readonly #reservation: Reservation;

  constructor(terms: Terms, release: Lease["release"]) {
    this.statuses = terms.statuses;
    this.observed = terms.observed;
    this.release = release;
    this.#reservation = terms.reservation;
  }

  get headers(): Lease["headers"] {
    return toHeaders(this.statuses, (status) => reservedOf(status, this.#reservation));
  }
}

/** Terms on which limits admit an exchange. */
export interface Terms {
  /** Status of all limits, without this exchange. */
  readonly statuses: readonly LimitStatus[];
  /** Amounts to reserve for it. */
  readonly reservation: Reservation;
  /** The first reached limit, if all reached limits are in observe mode. */
  readonly observed: Lease["observed"];
}

/**
 * Enforces limits: a reached limit refuses the exchange. In observe mode it is only noted.
 *
 * @throws {GatewayError} If an enforced limit is reached, or if the exchange could use more than a
 * whole strict limit
 */
export function enforce(statuses: readonly LimitStatus[], reservation: Reservation): Terms {
  let observed: Lease["observed"];
  for (const status of statuses) {
    if (!isReached(status, reservation)) continue;
    if (status.subject.limits.mode !== "observe") {
      throw toLimitError(findRefusing(statuses, reservation), statuses, reservation);
    }
    observed ??= status.name;
  }
  return { statuses, reservation, observed };
}

/** Makes the lease of an exchange. */
export function toLease(terms: Terms, release: Lease["release"]): Lease {
  return new AdmittedLease(terms, release);
}

/** Finds the limits that refuse an exchange. */
export function findRefusing(
  statuses: readonly LimitStatus[],
  reservation: Reservation,
): LimitStatus[] {
  return statuses.filter((status) =>
    status.subject.limits.mode !== "observe" && isReached(status, reservation)
  );
}

/** Returns whether a limit has no room for an exchange. */
function isReached(status: LimitStatus, reservation: Reservation): boolean {
  const room = roomFor(status, reservation);
  return room > 0 && status.used + room > status.limit;
}

/**
 * Creates the refusal. It names a limit that is too small for the exchange, if there is one, else
 * the limit that resets last.
 */
function toLimitError(
  refusing: readonly LimitStatus[],
  statuses: readonly LimitStatus[],
  reservation: Reservation,
): GatewayError {
  const never = refusing.find((status) => reservedOf(status, reservation) > wholeLimit(status));
  const worst = never ?? refusing.reduce((one, other) => other.resetMs > one.resetMs ? other : one);
  const code = never === undefined ? LIMIT_KINDS[worst.name].code : "request_exceeds_limit";
  return new GatewayError(code, {
    detail: describe(worst),
    ...(never === undefined && { retryAfterMs: Math.max(1, worst.resetMs) }),
    limit: toPolicyName(worst),
    headers: toHeaders(
      statuses,
      ({ subject, name }) =>
        isOfCalls(name) && isCountedByFirstLease(subject, reservation) ? -1 : 0,
    ),
  });
}

/** Returns the whole limit, also if the gateway decides locally, on its share. */
function wholeLimit({ subject, name, limit }: LimitStatus): number {
  return limitOf(subject, name) ?? limit;
}

const OWNERS: Readonly<Record<string, string>> = {
  key: "this gateway key",
  team: "the team of this gateway key",
  provider: "this provider, for all keys",
};

/** Returns the kind of a subject: `key`, `team` or `provider`. */
const kindOf = ({ subject }: LimitStatus): string =>
  subject.name.slice(0, subject.name.indexOf(":"));

/** Texts of limits in error messages, in the notation of the config. */
const TEXTS: Readonly<Record<LimitName, (limits: LimitSet, limit: number) => string | undefined>> =
  {
    requests: ({ requests }) => requests && `${formatRate(requests)} requests`,
    tokens: ({ tokens }) => tokens && `${formatRate(tokens)} tokens`,
    budget: ({ budget }) => budget && `${formatBudget(budget)} tokens`,
    spend: ({ spend }) => spend && formatMoneyBudget(spend),
    concurrency: (_, limit) => `${limit} at once`,
  };

/** Describes a limit for an error message. */
function describe(status: LimitStatus): string {
  const { subject, name, limit } = status;
  const owner = OWNERS[kindOf(status)] ?? "this subject";
  return `${TEXTS[name](subject.limits, limit) ?? limit} for ${owner}`;
}

/** Returns the name of a limit in headers, log and metrics. */
function toPolicyName(status: LimitStatus): string {
  const kind = kindOf(status);
  return kind === "key" ? status.name : `${kind}-${status.name}`;
}

/** Writes the parameters of a limit's policy: its quota, and for windows their unit and length. */
function toPolicy({ subject, name, limit }: LimitStatus): string {
  const { quotaUnit } = LIMIT_KINDS[name];
  const unit = quotaUnit === undefined ? "" : `;qu="${quotaUnit}"`;
  const rule = subject.limits[name];
  const hasWindow = typeof rule === "object" && "windowMs" in rule;
  const every = hasWindow ? `;w=${Math.ceil(rule.windowMs / 1000)}` : "";
  return `;q=${toInteger(limit)}${unit}${every}`;
}

/**
 * Writes the two fields of draft-ietf-httpapi-ratelimit-headers-10, which do not collide with a
 * provider's `x-ratelimit-*`.
 *
 * @param addedOf Returns the amount that the exchange adds to a limit; -1 for the request and the
 * slot of a refused exchange, which its first lease has counted and returns
 * @returns `ratelimit-policy` and `ratelimit`; empty if nothing is limited
 */
function toHeaders(
  statuses: readonly LimitStatus[],
  addedOf: (status: LimitStatus) => number,
): Record<string, string> {
  if (statuses.length === 0) return {};
  let policies = "";
  let rests = "";
  for (const status of statuses) {
    const { name, limit, used, resetMs } = status;
    const policy = `${policies === "" ? "" : ", "}"${toPolicyName(status)}"`;
    const rest = Math.max(0, limit - used - addedOf(status));
    const reset = isWindowed(name) ? `;t=${Math.ceil(resetMs / 1000)}` : "";
    policies += policy + toPolicy(status);
    rests += `${policy};r=${toInteger(rest)}${reset}`;
  }
  return { "ratelimit-policy": policies, ratelimit: rests };
}
