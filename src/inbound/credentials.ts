/**
 * The two credentials of a caller, each a Bearer token, read strictly.
 *
 * @module
 */
import { PROVIDER_KEY } from "../config/key.ts";
import { type ErrorCode, GatewayError } from "../errors/gateway_error.ts";

// RFC 9110 §11.1: the scheme is case-insensitive. Here then exactly one space and visible ASCII, which leaves no
// room for a second credential: fields given twice arrive joined with ", ".
const BEARER = /^Bearer ([\x21-\x7e]+)$/i;
// Providers' keys run to a few hundred characters, signed tokens to some thousand.
const MAX_CREDENTIAL_LENGTH = 8192;

/**
 * Returns the credential of a header: the word Bearer, one space, the credential.
 *
 * @param value The header's value
 * @returns The credential; `undefined` for a header that is missing or has another form
 */
export function parseBearer(value: string | null): string | undefined {
  return value === null || value.length > MAX_CREDENTIAL_LENGTH ? undefined : BEARER.exec(value)?.[1];
}

function readBearer(value: string | null, missing: ErrorCode, malformed: ErrorCode): string {
  if (value === null) throw new GatewayError(missing);
  const key = parseBearer(value);
  if (key === undefined) throw new GatewayError(malformed);
  return key;
}

/**
 * Reads the gateway key.
 *
 * @param headers The caller's headers
 * @returns The key
 * @throws {GatewayError} `missing_gateway_key`, `invalid_gateway_auth`, `provider_key_in_gateway_auth`
 */
export function readGatewayCredential(headers: { get(name: string): string | null }): string {
  const key = readBearer(headers.get("gateway-auth"), "missing_gateway_key", "invalid_gateway_auth");
  if (PROVIDER_KEY.test(key)) throw new GatewayError("provider_key_in_gateway_auth");
  return key;
}

/**
 * Reads the key at the provider.
 *
 * @param headers The caller's headers
 * @returns The key
 * @throws {GatewayError} `missing_upstream_key`, `invalid_upstream_auth`
 */
export function readUpstreamCredential(headers: { get(name: string): string | null }): string {
  return readBearer(headers.get("authorization"), "missing_upstream_key", "invalid_upstream_auth");
}
