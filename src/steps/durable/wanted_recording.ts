/**
 * Requests for a recording, and the names with which a retry finds it.
 *
 * @module
 */
import type { DurableConfig } from "../../config/durable.ts";
import { TOKEN_ID_PREFIX } from "../../config/key.ts";
import { OwnerKeys } from "../../durable/recording_keys.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import type { GatewayRequest } from "../../http/message.ts";
import type { ResolvedOperation } from "../../operations/router.ts";
import { isClientRetry } from "../client_retry.ts";
import type { Flow, WantedRecording } from "../flow.ts";

/**
 * Header with which a caller asks for a recording without an idempotency key: a boolean of RFC 9651
 * §3.3.6.
 */
const ASKING_HEADER = "sallyport-durable";
const IDEMPOTENCY_KEY = /^(?:"([\x20\x21\x23-\x5b\x5d-\x7e]{1,256})"|([\x21\x23-\x7e]{1,256}))$/;

/**
 * Reads the request for a recording from the headers, if there is one. Only calls that cost tokens
 * are recorded.
 *
 * @throws {GatewayError} `invalid_idempotency_key`
 */
export function readWantedRecording(
  headers: GatewayRequest["headers"],
  { cost }: ResolvedOperation,
  settings: DurableConfig,
): WantedRecording | undefined {
  if (cost !== "tokens") return undefined;
  const sent = headers.get("idempotency-key");
  const idempotencyKey = sent === null ? undefined : readIdempotencyKey(sent);
  const isRetry = settings.retries ? isClientRetry(headers) : undefined;
  const isNeeded = idempotencyKey !== undefined || asksForRecording(headers);
  if (!isNeeded && isRetry === undefined) return undefined;
  return { settings, idempotencyKey, isRetry, isNeeded };
}

function readIdempotencyKey(sent: string): string {
  const [, quoted, bare] = IDEMPOTENCY_KEY.exec(sent) ?? [];
  const idempotencyKey = quoted ?? bare;
  if (idempotencyKey === undefined) throw new GatewayError("invalid_idempotency_key");
  return idempotencyKey;
}

/** Returns whether a request asks for a recording explicitly. */
function asksForRecording(headers: Pick<Headers, "get">): boolean {
  return headers.get(ASKING_HEADER) === "?1";
}

/** Returns whether a request can be the retry of a recorded call, judged by its headers. */
export async function isRepeated(flow: Flow): Promise<boolean> {
  const { wantedRecording, key, operation, gateway: { durable } } = flow;
  if (wantedRecording === undefined || durable === undefined) return false;
  const { idempotencyKey, isRetry } = wantedRecording;
  if (idempotencyKey === undefined) {
    return isRetry === true && durable.hasRecordingWithoutReader(key.id);
  }
  return await durable.isNamed(nameOfKey(ownerKeysOf(flow), operation, idempotencyKey));
}

/** Returns the name of a call with an idempotency key. */
export function nameOfKey(
  keys: OwnerKeys,
  { name }: ResolvedOperation,
  idempotencyKey: string,
): string {
  return keys.tag("idempotency key", name, idempotencyKey);
}

/** Returns the keys of a caller's recordings. */
export function ownerKeysOf({ provider, key, presentedKey, credentials }: Flow): OwnerKeys {
  const gatewayKey = key.id.startsWith(TOKEN_ID_PREFIX) ? key.id : presentedKey;
  const { authorization } = credentials;
  if (authorization === undefined) {
    return new OwnerKeys({ gatewayKey, credentials, provider: provider.name });
  }
  // The scheme is case-insensitive (RFC 9110 §11.1), so `bearer` is the same owner.
  const named = { ...credentials, authorization: authorization.replace(/^bearer /i, "Bearer ") };
  return new OwnerKeys({ gatewayKey, credentials: named, provider: provider.name });
}
