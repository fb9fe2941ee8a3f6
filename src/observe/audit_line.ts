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
  /** `undefined` for a sign-in that failed. */
  readonly role: "viewer" | "admin" | undefined;
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

/** Replaces characters that could forge a line: controls, separators, directions of writing. */
function toSafeText(text: string | undefined): string | undefined {
  return text?.slice(0, MAX_TEXT).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "?");
}

/** The same, as one field of a line whose fields have two spaces between them. */
const toField = (text: string | undefined) => toSafeText(text)?.replace(/\s{2,}/g, " ");

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
    toField(target),
    amount,
    outcome,
    `by ${toField(who)}`,
    role === undefined ? undefined : `(${role})`,
    reason === undefined ? undefined : `reason: ${toField(reason)}`,
  ];
  return words.filter((word) => word !== undefined && word !== "").join("  ");
}
