/**
 * Explanations of failed exchanges for operators: the failure, its side, and the fix.
 *
 * @module
 */
import {
  type EndFacts,
  FAILURE_CAUSES,
  type FailureCause,
  isHeldKeyRefused,
  OUTCOMES,
} from "./outcomes.ts";
import { REQUEST_ERRORS } from "./request_errors.ts";
import { UPSTREAM_ERRORS } from "./upstream_errors.ts";

/** Side on which an exchange failed. */
export type Side = "caller" | "rule" | "gateway" | "way" | "provider";

/** Texts for the sides. */
export const SIDES: Readonly<Record<Side, string>> = {
  caller: "The caller's request",
  rule: "A rule that this gateway was given",
  gateway: "This gateway or its machine",
  way: "The way to the provider",
  provider: "The provider",
};

/** The facts that an explanation needs. */
export interface FailedExchange extends EndFacts {
  readonly cause?: FailureCause | undefined;
}

/** An explanation, each part a sentence without its full stop. */
export interface FailureExplanation {
  readonly side: Side;
  readonly what: string;
  /** Reason why the call to the provider failed, if it did. */
  readonly why?: string | undefined;
  readonly toDo: string;
}

/** The errors that a call can end with: the rows of their families in the table of errors. */
const CALL_ERRORS = { ...REQUEST_ERRORS, ...UPSTREAM_ERRORS };

function isCode(code: string | undefined): code is keyof typeof CALL_ERRORS {
  return code !== undefined && Object.hasOwn(CALL_ERRORS, code);
}

type Advice = readonly [side: Side, toDo: string];

const WRONG_URL: Advice = [
  "caller",
  "Have the caller check its base URL, or add the host to providers.NAME.hosts",
];
const WRONG_PATH: Advice = [
  "caller",
  "Have the caller check its base URL and library: this is no path of an operation",
];
const BROKEN_HTTP: Advice = [
  "caller",
  "Look at the caller or a proxy before the gateway: these bytes are no sound request",
];
const NO_KEY: Advice = [
  "caller",
  "Have the caller send Gateway-Auth: Bearer and its gateway key, once",
];
const NO_UPSTREAM_KEY: Advice = [
  "caller",
  "Have the caller send its own key at the provider in the header of the provider",
];
const MISPLACED: Advice = [
  "caller",
  "Rotate that gateway key if others could have seen it, and have the caller swap its keys",
];
const WRONG_BODY: Advice = [
  "caller",
  "Have the caller correct its body: the answer names the mistake",
];
const SLOW_CALLER: Advice = [
  "caller",
  "Look at the caller's connection; limits.bodyTime is the time for a body",
];
const AT_A_LIMIT: Advice = [
  "rule",
  "Nothing, if the limit is meant; else raise the limit of the key, its team or the provider",
];
const NOT_ALLOWED: Advice = [
  "rule",
  "Nothing, if it is meant; else allow it in the key's settings",
];
const SLOW: Advice = [
  "provider",
  "Look at the provider's state; deadlines of providers.NAME say how long is waited",
];
const BROKEN_OFF: Advice = [
  "provider",
  "Look at the provider's state, and at proxies on the way that end long answers",
];

/** Advice by the code of the gateway's answer. */
const BY_CODE: Readonly<Record<keyof typeof CALL_ERRORS, Advice>> = {
  invalid_host: WRONG_URL,
  unknown_host: WRONG_URL,
  not_found: WRONG_PATH,
  ambiguous_path: WRONG_PATH,
  method_not_allowed: WRONG_PATH,
  websocket_not_supported: ["caller", "Have the caller use the same operation over HTTP"],
  invalid_http: BROKEN_HTTP,
  headers_too_large: BROKEN_HTTP,
  headers_timeout: BROKEN_HTTP,
  missing_gateway_key: NO_KEY,
  invalid_gateway_auth: NO_KEY,
  invalid_gateway_key: [
    "caller",
    "Look under Keys whether the caller's key is revoked, expired or disabled, or make one",
  ],
  gateway_key_in_authorization: MISPLACED,
  gateway_key_misplaced: MISPLACED,
  missing_upstream_key: NO_UPSTREAM_KEY,
  invalid_upstream_auth: NO_UPSTREAM_KEY,
  provider_key_in_gateway_auth: [
    "caller",
    "Have the caller put the provider's key into the header of the provider",
  ],
  provider_not_allowed: NOT_ALLOWED,
  model_not_allowed: NOT_ALLOWED,
  operation_not_allowed: [
    "rule",
    "Nothing, if it is meant; else name its group in the operations of provider and key",
  ],
  origin_not_allowed: ["rule", "Add the page's origin to cors, to let its pages call"],
  model_not_priced: [
    "rule",
    "Set a price of the model in prices, or remove the budget of money from the key",
  ],
  operation_not_metered: [
    "rule",
    "Set the price of one call in callPrices of the provider, 0 if it is free for you",
  ],
  key_not_understood: ["gateway", "Bring this gateway to the version that made the key"],
  team_not_configured: [
    "rule",
    "Create the team: sallyport teams create NAME; or move the key: sallyport keys update ID --team NAME",
  ],
  rate_limit_exceeded: AT_A_LIMIT,
  concurrency_limit_exceeded: AT_A_LIMIT,
  budget_exceeded: [
    "rule",
    "Nothing, if the budget is meant; else raise it, or wait for its next period",
  ],
  run_budget_exceeded: [
    "rule",
    "Nothing, if the limit is meant; else have the agent begin another run, or raise runs.budget",
  ],
  run_stopped: [
    "rule",
    "Nothing: an operator stopped this run, and its agent has to begin another",
  ],
  run_repeats: [
    "caller",
    "Look for the loop in the agent, and stop its run: sallyport runs stop RUN --key KEY; if the " +
    "repeats are meant, raise runs.repeats, or set runs.onRepeat to report",
  ],
  invalid_run: ["caller", "Have the caller correct its Gateway-Run: the answer names the mistake"],
  too_many_runs: [
    "rule",
    "Have the caller use one run for one piece of work, or raise runs.maxPerKey",
  ],
  runs_unavailable: ["gateway", "Look at Redis, which counts the runs; /readyz tells its state"],
  request_exceeds_limit: ["rule", "Have the caller ask for fewer tokens, or raise the limit"],
  invalid_json: WRONG_BODY,
  invalid_body: WRONG_BODY,
  unsupported_media_type: WRONG_BODY,
  unsupported_content_encoding: WRONG_BODY,
  invalid_content_encoding: WRONG_BODY,
  body_timeout: SLOW_CALLER,
  body_too_large: ["rule", "Raise limits.body, if bodies of this size are meant"],
  gateway_overloaded: [
    "gateway",
    "Add workers or gateways, or raise limits.exchanges and limits.bodies if memory allows",
  ],
  gateway_draining: [
    "gateway",
    "Nothing: the caller's library sends it again, to another gateway or the next process",
  ],
  key_store_unavailable: [
    "gateway",
    "Look at the store of keys, which is Redis or the file; /readyz tells its state",
  ],
  upstream_key_unavailable: [
    "gateway",
    'Look for "held key" in the gateway\'s messages, which name the source and the reason',
  ],
  internal_error: ["gateway", "Look in the gateway's log for this request id, and report the bug"],
  upstream_unreachable: [
    "way",
    "Run sallyport doctor with the provider's name: it shows each step of the way",
  ],
  upstream_bad_response: [
    "provider",
    "Check providers.NAME.upstream: the server there speaks no plain HTTP interface",
  ],
  upstream_unsupported_encoding: [
    "provider",
    "Look for a proxy on the way that packs answers without being asked to",
  ],
  upstream_connect_timeout: ["way", "Check firewalls and the address of providers.NAME.upstream"],
  upstream_loop: ["gateway", "Correct providers.NAME.upstream: it leads back to this gateway"],
  upstream_first_byte_timeout: SLOW,
  upstream_first_event_timeout: SLOW,
  upstream_timeout: SLOW,
  upstream_idle_timeout: SLOW,
  upstream_stream_truncated: BROKEN_OFF,
  upstream_disconnected: BROKEN_OFF,
};

const ANOTHER_TOKEN: Advice = [
  "caller",
  "Have the caller get a new token from its identity provider",
];

/**
 * Advice by the cause of a failed provider call or of a refused token, which is more specific than
 * the code.
 */
const BY_CAUSE: Readonly<Partial<Record<FailureCause, Advice>>> = {
  dns: ["way", "Check the host name in providers.NAME.upstream, and this machine's resolver"],
  refused: ["way", "Check the port in providers.NAME.upstream, and that the provider runs"],
  unreachable: ["way", "Check this machine's routes and firewalls"],
  tls: [
    "way",
    "Check the certificate that the provider shows, and the authorities that this machine knows",
  ],
  redirect: [
    "provider",
    "Put the address that the provider redirects to into providers.NAME.upstream",
  ],
  exhausted: ["gateway", "Raise the process's limit of open files, or spread the load"],
  token_form: ANOTHER_TOKEN,
  token_issuer: ["caller", "Compare the token's iss and aud with issuer and audience in identity"],
  token_algorithm: ["caller", "Compare the token's alg with algorithms of its issuer in identity"],
  token_key: [
    "caller",
    "Have the caller get a new token; /readyz tells whether the issuer's keys can be fetched",
  ],
  token_signature: ANOTHER_TOKEN,
  token_expired: ANOTHER_TOKEN,
  token_early: [
    "gateway",
    "Set the clocks of the issuer and of this machine, or raise leeway in identity",
  ],
  token_claims: ["caller", "Compare the token's claims with claims and require in identity"],
  token_revoked: [
    "caller",
    "Nothing, if it is meant: sallyport tokens list shows the revoked tokens",
  ],
};

const HELD_KEY_REFUSED: Advice = [
  "gateway",
  "Replace the key that the gateway holds at its source (upstreamKey of the provider, or " +
  "upstreamKeys of the team), or allow this call for it at the provider",
];

/** Returns advice for the status of a provider's answer. */
function adviseOnStatus({ status, usesHeldKey }: FailedExchange): Advice {
  if (isHeldKeyRefused({ status, usesHeldKey })) return HELD_KEY_REFUSED;
  if (status === 401 || status === 403) {
    return ["caller", "Have the caller check its own key at the provider"];
  }
  if (status === 404) {
    return [
      "caller",
      "Have the caller check the model and the path: the provider does not know it",
    ];
  }
  if (status === 429) {
    return [
      "caller",
      "The account at the provider has reached its rate limit: slow down, or raise it there",
    ];
  }
  if (status >= 400 && status < 500) {
    return ["caller", "Have the caller correct its request by the provider's answer"];
  }
  return [
    "provider",
    "Look at the provider's state; its support asks for x-upstream-request-id",
  ];
}

function adviseOn(failed: FailedExchange): Advice {
  const { outcome, code, cause } = failed;
  const byCause = cause === undefined ? undefined : BY_CAUSE[cause];
  if (byCause !== undefined) return byCause;
  if (isCode(code)) return BY_CODE[code];
  if (outcome === "client_closed") {
    return [
      "caller",
      "Nothing, if callers can change their minds; " +
      "else compare the time it took with their timeouts",
    ];
  }
  if (outcome === "upstream_error") return adviseOnStatus(failed);
  return ["gateway", "Look in the gateway's log for this request id"];
}

function describe({ outcome, status, code }: FailedExchange): string {
  if (isCode(code)) return CALL_ERRORS[code].message;
  if (outcome === "upstream_error" && status >= 400) {
    return `The provider answered ${status}, and it was relayed unchanged`;
  }
  return OUTCOMES[outcome];
}

/** Explains how an exchange failed; `undefined` if it did not fail. */
export function explainFailure(failed: FailedExchange): FailureExplanation | undefined {
  const { outcome, cause } = failed;
  if (outcome === "ok") return undefined;
  const [side, toDo] = adviseOn(failed);
  const why = cause === undefined ? undefined : FAILURE_CAUSES[cause];
  return { side, what: describe(failed), why, toDo };
}
