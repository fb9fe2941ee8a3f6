/**
 * Advice for the operator on a refusal: the setting to change, and its place. The caller's message
 * says less, because callers must not learn about keys and configurations.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { type KeyConfig, TOKEN_ID_PREFIX } from "../config/key.ts";
import type { ErrorCode } from "../errors/codes.ts";
import type { FailureCause, TokenFault } from "../errors/outcomes.ts";
import { findKeyState } from "../keys/policy.ts";

/** A refused request, and its key. */
export interface Refusal {
  readonly config: Config;
  /** Name of the provider, if one was found. */
  readonly provider: string | undefined;
  /** True if the presented key was well-formed and therefore looked up. */
  readonly isLookedUp: boolean;
  /** The found key, in any state. */
  readonly key: KeyConfig | undefined;
  /** Reason why an identity token was refused. */
  readonly cause?: FailureCause | undefined;
}

type Advice = string | ((refusal: Refusal) => string);

const IN_THE_REQUEST = "change the request: the message says where";
const LIMIT = ({ key }: Refusal): string =>
  `wait until the limit resets, or raise it: ${
    key?.id.startsWith(TOKEN_ID_PREFIX) === true
      ? "plans of its issuer in identity"
      : "sallyport keys update ID"
  }, teams or providers.NAME.limits`;

const listHosts = ({ providers }: Config): string =>
  Object.values(providers).flatMap(({ hosts }) => hosts).slice(0, 20).join(", ");

/** Advice on a refused identity token, by reason. */
const TOKEN_ADVICE: Readonly<Record<TokenFault, string>> = {
  token_form:
    "the identity token is cut or too long, or its typ is not the type of a bearer token: " +
    "send it whole",
  token_issuer: "no issuer in identity has the token's iss and aud, for callers: compare them",
  token_algorithm: "the token's algorithm is none of the issuer's algorithms in identity",
  token_key: "the issuer publishes no key with the token's kid: " +
    "get a new token, or correct jwks in identity",
  token_signature: "the token was changed, or signed by another issuer: get a new one",
  token_expired: "get a new token, or raise maxAge in identity if it has not expired",
  token_early: "set the clocks of the issuer and of this machine, or raise leeway in identity",
  token_claims: "the token's claims do not match claims and require in identity: compare them",
  token_revoked: "the token was revoked: sallyport tokens list; get a new one",
};

/** Describes how to change a key's rights. The rights of an identity token are in its claims. */
const toChange = (key: KeyConfig | undefined, options: string): string =>
  key?.id.startsWith(TOKEN_ID_PREFIX) === true
    ? "change the claims at its issuer, or identity in the configuration"
    : `sallyport keys update ${key?.id} ${options}`;

/** Explains why a key is not accepted. Callers never see this text. */
function explainKey({ isLookedUp, key, cause }: Refusal): string {
  if (cause !== undefined && Object.hasOwn(TOKEN_ADVICE, cause)) {
    return TOKEN_ADVICE[cause as TokenFault];
  }
  if (!isLookedUp) {
    return "the key is mistyped or cut, or is no key of this gateway: " +
      "its checksum or its form is wrong";
  }
  if (key === undefined) {
    return "no key has this secret here: it is of another gateway, was removed, " +
      "or ended when its key was rotated";
  }
  const state = findKeyState(key, Date.now());
  if (state === "disabled") return `the key is disabled: sallyport keys enable ${key.id}`;
  if (state === "revoked") {
    return "the key is revoked: create another one, sallyport keys create";
  }
  if (state === "expired") {
    return `the key has expired: sallyport keys update ${key.id} --expires 90d`;
  }
  return "this secret ended when the key was rotated: send the secret that the rotation printed";
}

const ADVICE: Readonly<Partial<Record<ErrorCode, Advice>>> = {
  invalid_host: "send a plain host or host:port in Host; a proxy in front must not change it",
  unknown_host: ({ config }) =>
    `call one of these, or add the host to providers.NAME.hosts: ${listHosts(config)}`,
  not_found: "check the base URL, which ends in /v1, and the path before it; " +
    'paths that are no operation need "all" in providers.NAME.operations',
  missing_gateway_key:
    "send the gateway key in Gateway-Auth, or set providers.NAME.combinedKey for both keys in one",
  invalid_gateway_key: explainKey,
  key_not_understood: "configure the key's budget in the currency of the prices; " +
    "or upgrade this gateway",
  team_not_configured: ({ key, config }) =>
    `create the team: sallyport teams create ${key?.team}, or move the key to one of ${
      Object.keys(config.teams).join(", ") || "no team: there is none yet"
    }: ${toChange(key, "--team NAME")}`,
  provider_not_allowed: ({ key, provider }) =>
    `the key is for ${key?.providers?.join(", ")}: ${
      toChange(key, `--providers ${[...key?.providers ?? [], provider].join(",")}`)
    }`,
  model_not_allowed: ({ key }) =>
    `the key is for ${key?.models?.join(", ")}: ${toChange(key, "--models")}`,
  operation_not_allowed: ({ key, provider }) =>
    `add the group to providers.${provider}.operations${
      key?.operations === undefined ? "" : `, and to the key: ${toChange(key, "--operations")}`
    }`,
  model_not_priced: ({ provider }) => `set its price: prices, or providers.${provider}.prices`,
  rate_limit_exceeded: LIMIT,
  concurrency_limit_exceeded: LIMIT,
  budget_exceeded: LIMIT,
  operation_not_metered: ({ provider }) =>
    `give the operation a price for each call: providers.${provider}.callPrices`,
  request_exceeds_limit:
    "ask for less output (max_tokens), shorten the input, put all of it into the body, " +
    'raise the limit, or give it "mode": "enforce"',
  body_too_large: "raise limits.body, or send less",
  origin_not_allowed: "add the page's origin to cors.origins",
  upstream_loop: "the upstream leads back to this gateway: correct providers.NAME.upstream",
  key_store_unavailable:
    "see why the store of keys does not answer: sallyport health, redis in the configuration",
  upstream_key_unavailable:
    'the gateway\'s messages about a "held key" name the source that cannot be read, and the reason',
  internal_error: "a bug of the gateway, or of a hook: its standard error names the place",
};

/** Finds the advice on a refusal: one line without secrets. */
export function findAdvice(code: ErrorCode, refusal: Refusal): string {
  const advice = ADVICE[code] ?? IN_THE_REQUEST;
  return typeof advice === "string" ? advice : advice(refusal);
}
