/**
 * Outcomes of exchanges and causes of failed provider calls, one word each. Log, metrics, traces,
 * console, alerts and pages use the words and meanings of these tables.
 *
 * @module
 */

/**
 * Outcome of an exchange. The error code has the reason. Metrics count outcomes, callers read
 * codes.
 */
export type Outcome =
  | "ok"
  | "upstream_error"
  | "refused"
  | "client_closed"
  | "upstream_failed"
  | "upstream_cut"
  | "timeout"
  | "shed"
  | "drained"
  | "failed";

/** The meaning of each outcome, one sentence, for pages. */
export const OUTCOMES: Readonly<Record<Outcome, string>> = {
  ok: "The provider's answer was relayed completely",
  upstream_error: "The provider answered with its own error: a 4xx, a 5xx or an error event. " +
    "It was relayed unchanged",
  refused:
    "The gateway refused the call because of its address, its keys, its permissions, a limit or " +
    "its body",
  client_closed:
    "The caller left before the answer was complete, or a durable exchange was stopped",
  upstream_failed: "The provider gave no usable answer",
  upstream_cut: "The provider's answer broke off after it had begun",
  timeout: "The provider did not answer within a deadline",
  shed:
    "The gateway could not serve the call: too many exchanges or bodies were open, or a store or " +
    "a key that it needs could not be read",
  drained: "The gateway shut down before the answer was complete",
  failed: "A bug in the gateway",
};

/**
 * The party that must act on an outcome. An outcome for the operator is an error, and counts
 * against availability.
 */
export type Concern = "nobody" | "caller" | "operator";

const CONCERNS: Readonly<Record<Outcome, Concern>> = {
  ok: "nobody",
  upstream_error: "operator", // except for a 4xx
  refused: "caller",
  client_closed: "caller",
  upstream_failed: "operator",
  upstream_cut: "operator",
  timeout: "operator",
  shed: "operator",
  drained: "operator",
  failed: "operator",
};

/** Refusals of sound requests: only the operator can change the key, its team or the gateway. */
const OPERATORS_REFUSALS: ReadonlySet<string | undefined> = new Set(
  ["team_not_configured", "key_not_understood"],
);

/** The facts of an exchange's end that decide whom it concerns. */
export interface EndFacts {
  /** Outcome of the exchange. */
  readonly outcome: Outcome;
  /** Status of the answer. */
  readonly status: number;
  /** Code, if the gateway made the error. */
  readonly code?: string | undefined;
  /** True if the call used a provider key that the gateway holds. */
  readonly usesHeldKey?: boolean | undefined;
}

/** Returns whether a provider's status refuses the key of the gateway, not a key of the caller. */
export function isHeldKeyRefused(
  { status, usesHeldKey }: Pick<EndFacts, "status" | "usesHeldKey">,
): boolean {
  return usesHeldKey === true && (status === 401 || status === 403);
}

/**
 * Returns the party that must act on an exchange's outcome. A 4xx is about a single call and
 * concerns its caller, even if it is from the provider. Exceptions are a refused key of the gateway
 * itself, and refusals that only the operator can end.
 *
 * @returns `operator` for an error that counts against availability
 */
export function concernOf(end: EndFacts): Concern {
  const { outcome, status, code } = end;
  const concern = CONCERNS[outcome];
  if (status < 400 || status >= 500) return concern;
  if (OPERATORS_REFUSALS.has(code)) return "operator";
  return concern === "operator" && !isHeldKeyRefused(end) ? "caller" : concern;
}

/**
 * Returns the name that an end is counted under: the gateway's code, the provider's status, or the
 * outcome.
 *
 * @param end Its code, if the gateway made an error; its outcome and status
 */
export function nameEnd(
  { code, outcome, status }: {
    readonly code?: string | undefined;
    readonly outcome: Outcome;
    readonly status: number;
  },
): string {
  return code ?? (outcome === "upstream_error" && status >= 400 ? `upstream_${status}` : outcome);
}

/** Fault of a refused identity token. The answer to the caller does not contain it. */
export type TokenFault =
  | "token_form"
  | "token_issuer"
  | "token_algorithm"
  | "token_key"
  | "token_signature"
  | "token_expired"
  | "token_early"
  | "token_claims"
  | "token_revoked";

/** Cause of a failed call to the provider, or fault of a refused token. Only operators read it. */
export type FailureCause =
  | TokenFault
  | "dns"
  | "refused"
  | "unreachable"
  | "tls"
  | "reset"
  | "closed"
  | "timeout"
  | "malformed"
  | "redirect"
  | "exhausted"
  | "proxy_unreachable"
  | "proxy_auth"
  | "proxy_refused"
  | "proxy_upstream"
  | "proxy_failed"
  | "unknown";

/** The meaning of each cause, one sentence, for pages. */
export const FAILURE_CAUSES: Readonly<Record<FailureCause, string>> = {
  dns: "The name of the upstream does not resolve",
  refused: "Nothing listens at the address and port",
  unreachable: "There is no route to the address",
  tls: "The TLS handshake failed, or the certificate is not accepted: it is expired, " +
    "for another name, or from an unknown authority",
  reset: "The upstream reset the connection",
  closed: "The upstream closed the connection, or ended its stream, before the answer was complete",
  timeout: "A deadline of the gateway or of the system passed",
  malformed:
    "The answer is not readable: it is not HTTP, or its content encoding is broken or was not requested",
  redirect: "The upstream answered with a redirect, which the gateway does not follow",
  exhausted: "This machine has no file descriptor, port or memory left for a connection",
  proxy_unreachable:
    "The proxy cannot be reached: its name does not resolve, its port is closed, or its TLS fails",
  proxy_auth: "The proxy requires other credentials: it answered CONNECT with 407",
  proxy_refused: "The proxy does not allow the upstream: " +
    "it answered CONNECT with a 3xx, or a 4xx other than 407",
  proxy_upstream: "The proxy could not reach the upstream: it answered CONNECT with a 5xx",
  proxy_failed: "The proxy closed, was silent until the connect deadline, " +
    "or its answer to CONNECT was not readable HTTP",
  unknown: "The runtime does not report the cause",
  token_form: "The identity token is malformed, longer than 8192 characters, " +
    "or of a type other than JWT and at+jwt",
  token_issuer:
    "The issuer of the identity token is not configured, or the token is for another audience",
  token_algorithm:
    "The identity token is signed by an algorithm that is not accepted, or not at all",
  token_key: "The identity token names a key that its issuer does not publish",
  token_signature: "The signature of the identity token does not match the key",
  token_expired: "The identity token has expired, or is older than `maxAge`",
  token_early: "The identity token is not valid yet: the clocks of issuer and gateway differ",
  token_claims: "The claims of the identity token do not match the configuration",
  token_revoked: "The identity token was revoked",
};
