/**
 * Audit lines of the log about operators' changes: operator, action, time and outcome. They contain
 * no secrets.
 *
 * @module
 */

/** One change that an operator asked for. */
export interface AuditEntry {
  /** Wall clock, milliseconds since 1970. */
  readonly at: number;
  /** Id of the operator's token, such as `jwt:corp:ann`, or `admin token`. */
  readonly who: string;
  readonly role: "viewer" | "admin";
  /** Name of the operation in the description of the admin API, such as `revokeKey`. */
  readonly action: string;
  /** Method and path of the route. */
  readonly route: string;
  /** Id of the changed object: a key, a provider, the owner of a token. */
  readonly target: string | undefined;
  /** Amount that the operator gave, such as `5 USD` for a credit. */
  readonly amount?: string | undefined;
  /** Reason that the operator stated, such as for a credit. */
  readonly reason?: string | undefined;
  /** `ok`, or the code of the refusal. */
  readonly outcome: string;
}

/** The most characters of a text in a line: it can be any text from the request. */
const MAX_TEXT = 128;

function toSafeText(text: string | undefined): string | undefined {
  // deno-lint-ignore no-control-regex -- control characters could forge a line
  return text?.slice(0, MAX_TEXT).replace(/[\x00-\x1f\x7f-\x9f]/g, "?");
}

/** Formats an entry as one JSON object, without a line end. */
export function toAuditJson(entry: AuditEntry): string {
  const { at, who, role, action, route, target, amount, reason, outcome } = entry;
  return JSON.stringify({
    time: new Date(at).toISOString(),
    audit: action,
    who,
    role,
    route,
    target: toSafeText(target),
    amount,
    reason: toSafeText(reason),
    outcome,
  });
}

/** Formats an entry for a person, without a line end. */
export function toAuditText(entry: AuditEntry): string {
  const { at, who, role, action, target, amount, reason, outcome } = entry;
  const words = [
    new Date(at).toISOString().slice(11, 23),
    "audit",
    action,
    toSafeText(target),
    amount,
    outcome,
    `by ${toSafeText(who)}`,
    `(${role})`,
    reason === undefined ? undefined : `reason: ${toSafeText(reason)}`,
  ];
  return words.filter((word) => word !== undefined && word !== "").join("  ");
}
