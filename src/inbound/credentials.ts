/**
 * The two credentials of a caller, read strictly: its gateway key and its key at the provider, each
 * in a separate header or, if the provider is configured so, both in one.
 *
 * @module
 */
import { CREDENTIAL_HEADERS } from "../config/credential.ts";
import { PROVIDER_KEY } from "../config/key.ts";
import type { ProviderConfig } from "../config/provider.ts";
import type { ErrorCode } from "../errors/codes.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { readParameters } from "./query.ts";

/** Rules of a provider for the key that callers send for it. */
export type CredentialRules = Pick<ProviderConfig, "credential" | "combinedKey">;

/** The caller's headers. */
interface Headers {
  get(name: string): string | null;
}

/** Headers with the caller's key at the provider, names in lower case. */
export type Credentials = Readonly<Record<string, string>>;

const KEY = /^[\x21-\x7e]+$/;
// RFC 9110 §11.1: the scheme is case-insensitive. Exactly one space and visible ASCII must follow.
// This excludes a second credential, because repeated fields arrive joined with ", ".
const BEARER = /^Bearer ([\x21-\x7e]+)$/i;
// Providers' keys have up to a few hundred characters, signed tokens a few thousand.
const MAX_CREDENTIAL_LENGTH = 8192;
/**
 * Separator of the halves of a combined key. No key of the gateway's form contains it. An upstream
 * key can.
 */
const SEPARATOR = "~";

const COMBINED_FORM =
  "if only one key can be set, send <gateway key>~<key at the provider> as that key, and no Gateway-Auth";
const NOT_COMBINED =
  "both keys in one are accepted only if the gateway's operator sets combinedKey for the provider";

/**
 * Returns the credential of a header: the word Bearer, one space, the credential.
 *
 * @returns The credential; `undefined` for a header that is missing or has another form
 */
export function parseBearer(value: string | null): string | undefined {
  return value === null || value.length > MAX_CREDENTIAL_LENGTH
    ? undefined
    : BEARER.exec(value)?.[1];
}

/** Returns whether a value is a single key. */
const isKey = (value: string): boolean => value.length <= MAX_CREDENTIAL_LENGTH && KEY.test(value);

/** Makes an error about the header of an upstream key. */
function errorAt(header: string, code: ErrorCode, detail: string): GatewayError {
  return new GatewayError(code, {
    param: header === "authorization" ? "Authorization" : header,
    detail,
  });
}

/**
 * Makes the error for an upstream key that contains a gateway key.
 *
 * @param header Name of its header, in lower case
 */
export function toGatewayKeyError(header: string, { combinedKey }: CredentialRules): GatewayError {
  return errorAt(
    header,
    "gateway_key_in_authorization",
    combinedKey ? COMBINED_FORM : NOT_COMBINED,
  );
}

/**
 * Makes the error for a call without a key at the provider.
 *
 * @param header Name of the header of its interface, in lower case
 */
export function toMissingKeyError(header: string): GatewayError {
  const bearer = "Authorization: Bearer <your key at the provider>";
  const detail = header === "authorization"
    ? bearer
    : `${header}: <your key at the provider>, or ${bearer}`;
  return errorAt(header, "missing_upstream_key", `send ${detail}`);
}

/** Writes the form of an upstream key. */
const toForm = (header: string): string =>
  header === "authorization" ? "Authorization: Bearer <key>" : `${header}: <key>`;

function malformedUpstreamKey(header: string): GatewayError {
  return errorAt(header, "invalid_upstream_auth", `send ${toForm(header)}, once`);
}

/** Fields of a query in which interfaces accept a key: all `queryKeys` of shapes, and similar. */
const KEY_IN_QUERY =
  /^(?:key|api[-_]?key|subscription-key|(?:access|bearer|oauth)_token|httpheaders)$/;

/**
 * Checks that a caller without a readable key has not sent one in another place. It must not use a
 * held key by mistake, next to its own key.
 *
 * @throws {GatewayError} `invalid_upstream_auth`
 */
export function assertNoUnreadKey(
  { headers, url }: { readonly headers: Headers; readonly url: string },
  { credential }: CredentialRules,
): void {
  const isRead = (name: string) => name === credential || name === "authorization";
  const isUnread = readParameters(url).some(([name]) => KEY_IN_QUERY.test(name)) ||
    CREDENTIAL_HEADERS.some((name) => !isRead(name) && headers.get(name) !== null);
  if (!isUnread) return;
  const form = toForm(credential);
  throw errorAt(
    credential,
    "invalid_upstream_auth",
    `send ${form}, once, or no key at all to use the gateway's`,
  );
}

/**
 * Reads the gateway key.
 *
 * @param holdsKey Returns whether a text contains a gateway key or an identity token of a known form
 * @throws {GatewayError} `missing_gateway_key`, `gateway_key_in_authorization`,
 * `invalid_gateway_auth`, `provider_key_in_gateway_auth`
 */
export function readGatewayCredential(
  headers: Headers,
  rules: CredentialRules,
  holdsKey: (text: string) => boolean,
): string {
  const value = headers.get("gateway-auth");
  if (value === null) {
    const key = readFirstHalf(headers, rules);
    if (key !== undefined) return key;
    throw explainMissingKey(headers, rules, holdsKey);
  }
  const key = parseBearer(value);
  if (key === undefined) throw new GatewayError("invalid_gateway_auth");
  if (PROVIDER_KEY.test(key)) throw new GatewayError("provider_key_in_gateway_auth");
  return key;
}

/** Returns the key that is sent in the header of the provider's interface, else as a Bearer. */
function readPresented(headers: Headers, { credential }: CredentialRules): string {
  const bare = credential === "authorization" ? null : headers.get(credential);
  return bare ?? parseBearer(headers.get("authorization")) ?? "";
}

/** Makes the error for a call without `Gateway-Auth` and without a combined key. */
function explainMissingKey(
  headers: Headers,
  rules: CredentialRules,
  holdsKey: (text: string) => boolean,
): GatewayError {
  for (const name of new Set(["authorization", rules.credential])) {
    const value = headers.get(name);
    const isKey = value !== null && value.length <= MAX_CREDENTIAL_LENGTH && holdsKey(value);
    if (isKey) return toGatewayKeyError(name, rules);
  }
  if (rules.combinedKey) return new GatewayError("missing_gateway_key", { detail: COMBINED_FORM });
  const isCombined = readPresented(headers, rules).includes(SEPARATOR);
  return new GatewayError("missing_gateway_key", isCombined ? { detail: NOT_COMBINED } : {});
}

/**
 * Reads the gateway key of a combined key: the part before the first separator. Returns `undefined`
 * if there is no combined key.
 */
function readFirstHalf(headers: Headers, rules: CredentialRules): string | undefined {
  const presented = readPresented(headers, rules);
  const end = presented.indexOf(SEPARATOR);
  if (!rules.combinedKey || end < 1) return undefined;
  const key = presented.slice(0, end);
  if (PROVIDER_KEY.test(key)) {
    throw new GatewayError("provider_key_in_gateway_auth", { detail: COMBINED_FORM });
  }
  return key;
}

/**
 * Reads the key at the provider, from `Authorization` and from the header of the provider's
 * interface.
 *
 * @param gatewayKey The caller's gateway key, which is removed from a combined key
 * @returns The presented headers, unchanged, to forward. Names in lower case. `undefined` if there is
 * no key
 * @throws {GatewayError} `invalid_upstream_auth`
 */
export function readUpstreamCredentials(
  headers: Headers,
  rules: CredentialRules,
  gatewayKey: string,
): Credentials | undefined {
  const { credential, combinedKey } = rules;
  const bearer = headers.get("authorization");
  const bare = credential === "authorization" ? null : headers.get(credential);
  if (bearer === null && bare === null) return undefined;
  if (bearer !== null && parseBearer(bearer) === undefined) {
    throw malformedUpstreamKey("authorization");
  }
  if (bare !== null && !isKey(bare)) throw malformedUpstreamKey(credential);
  const credentials: Record<string, string> = bearer === null ? {} : { authorization: bearer };
  if (bare !== null) credentials[credential] = bare;
  return combinedKey && headers.get("gateway-auth") === null
    ? toSecondHalves(credentials, gatewayKey)
    : credentials;
}

/**
 * Removes the gateway key from combined keys. If both headers are sent, both must contain it.
 *
 * @returns `undefined` if nothing follows the gateway key
 */
function toSecondHalves(credentials: Credentials, gatewayKey: string): Credentials | undefined {
  const halves = Object.entries(credentials).map(([name, value]): [string, string] => {
    const scheme = name === "authorization" ? "Bearer " : "";
    const key = value.slice(scheme.length);
    if (!key.startsWith(gatewayKey + SEPARATOR)) {
      throw errorAt(name, "invalid_upstream_auth", COMBINED_FORM);
    }
    return [name, key.slice(gatewayKey.length + SEPARATOR.length)];
  });
  if (halves.every(([, half]) => half === "")) return undefined;
  return Object.fromEntries(halves.map(([name, half]) => {
    if (half === "") throw toMissingKeyError(name);
    return [name, name === "authorization" ? `Bearer ${half}` : half];
  }));
}
