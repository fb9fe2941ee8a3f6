/**
 * Search for gateway keys in the parts of a request that the provider, the log, metrics or usage
 * would show. A gateway key is never forwarded.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import {
  type CredentialRules,
  type Credentials,
  toGatewayKeyError,
} from "../inbound/credentials.ts";
import { GATEWAY_KEY_LENGTH } from "../keys/key_format.ts";

/** The gateway keys to search for. */
export interface SearchedKeys {
  /** The gateway key of the caller. */
  readonly presentedKey: string;
  readonly gateway: {
    /** Returns whether a text contains a gateway key or an identity token of a known form. */
    readonly holdsKey: (text: string) => boolean;
  };
}

/** Returns whether a text contains one of the searched keys. */
function holdsSearchedKey(text: string, { presentedKey, gateway }: SearchedKeys): boolean {
  return text.includes(presentedKey) || gateway.holdsKey(text);
}

function misplaced(param: string): GatewayError {
  return new GatewayError("gateway_key_misplaced", { param });
}

/** Searches the keys for the provider. @throws {GatewayError} `gateway_key_in_authorization` */
export function assertNoKeyInCredentials(
  credentials: Credentials,
  rules: CredentialRules,
  keys: SearchedKeys,
): void {
  for (const name in credentials) {
    if (holdsSearchedKey(credentials[name] as string, keys)) throw toGatewayKeyError(name, rules);
  }
}

/**
 * Searches a URL, both unchanged and as a provider decodes it. @throws {GatewayError}
 * `gateway_key_misplaced`
 */
export function assertNoKeyInUrl(url: string, keys: SearchedKeys): void {
  if (!holdsEscapedKey(url, keys)) return;
  throw new GatewayError("gateway_key_misplaced", { detail: "it is in the URL" });
}

/**
 * The most decodings of a text for the search: each server behind the gateway can decode it once.
 */
const MAX_DECODINGS = 4;

/** Searches a text, both unchanged and decoded. */
export function holdsEscapedKey(text: string, keys: SearchedKeys): boolean {
  if (text.length < Math.min(GATEWAY_KEY_LENGTH, keys.presentedKey.length)) return false;
  if (holdsSearchedKey(text, keys)) return true;
  let decoded = text;
  for (let decodings = 0; decodings < MAX_DECODINGS && decoded.includes("%"); decodings++) {
    decoded = decodeEscapes(decoded);
    if (holdsSearchedKey(decoded, keys)) return true;
  }
  return false;
}

/** Decodes the escapes of ASCII characters, of which keys consist. */
export function decodeEscapes(text: string): string {
  return text.replace(/(?:%[0-7][0-9a-f])+/gi, (escapes) => decodeURIComponent(escapes));
}

/**
 * Searches the model and the end users that a body names. @throws {GatewayError}
 * `gateway_key_misplaced`
 */
export function assertNoKeyInFields(
  { model = "", users }: { readonly model?: string | undefined; readonly users: readonly string[] },
  keys: SearchedKeys,
): void {
  if (holdsSearchedKey(model, keys)) throw misplaced("model");
  if (users.some((user) => holdsSearchedKey(user, keys))) throw misplaced("user");
}

/**
 * Searches the headers that are forwarded, and their names. @throws {GatewayError}
 * `gateway_key_misplaced`
 */
export function assertNoKeyInHeaders(
  headers: Readonly<Record<string, string>>,
  keys: SearchedKeys,
): void {
  for (const name in headers) {
    if (isKeyInName(name, keys)) {
      throw new GatewayError("gateway_key_misplaced", {
        detail: "it is in the name of a header",
      });
    }
    if (holdsEscapedKey(headers[name] as string, keys)) throw misplaced(name);
  }
}

/** Removes the names of headers that contain a key. */
export function withoutKeys(names: readonly string[], keys: SearchedKeys): readonly string[] {
  return names.filter((name) => !isKeyInName(name, keys));
}

/** Searches the name of a header, which has arrived in lower case. */
function isKeyInName(name: string, { presentedKey, gateway }: SearchedKeys): boolean {
  if (name.length >= GATEWAY_KEY_LENGTH && gateway.holdsKey(name)) return true;
  return name.length >= presentedKey.length && name.includes(presentedKey.toLowerCase());
}
