/**
 * Resolution of the key that a caller presented: by a store of keys, or by an embedder's function,
 * which returns the owner of a key and the owner's permissions.
 *
 * @module
 */
import * as v from "valibot";
import { describeIssue, formatMistake } from "../config/issue.ts";
import { type KeyConfig, type ResolvedKey, ResolvedKeySchema } from "../config/key.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { withDeadline } from "../exchange/deadline.ts";
import { type Exchange, isPromise } from "../exchange/exchange.ts";
import type { CallerTokens, ResolvedToken } from "./identity/verifier.ts";
import { type Digest, equalDigests, isPlausibleKey } from "./key_format.ts";
import type { GatewayKey, KeyStore } from "./key_store.ts";

/**
 * Hook: finds the owner of a key. It is called once for each request and its answer is not cached,
 * so limits and permissions can differ between requests. It can look the key up in any form,
 * preferably by a hash, and must itself compare in constant time. It is not called for a text that
 * cannot be a key: fewer than 16 characters or more than 512, other than visible ASCII, or the form
 * of a provider's key (`sk-`, `gsk_`, `xai-`, `AIza`).
 *
 * If it throws, or takes longer than ten seconds, the request is answered with
 * `key_store_unavailable`, unless it throws a `GatewayError`. If it returns a value that is not a
 * {@link ResolvedKey}, the answer is `internal_error`.
 *
 * @param presentedKey The text in `Gateway-Auth` after `Bearer`: the key itself, which must never
 * be logged
 * @returns The owner and the owner's permissions; `undefined` or `null` for an unknown key
 *
 * @example Let your own users in
 * ```ts
 * import { createGateway, type KeyResolver, parseConfig } from "sallyport";
 *
 * const users = new Map([["a-key-of-some-user", "ann"]]);
 * const keys: KeyResolver = (presentedKey) => {
 *   const id = users.get(presentedKey);
 *   return id === undefined ? undefined : { id, limits: { requests: "60/min" } };
 * };
 * createGateway(parseConfig({ providers: { a: { upstream: "openai" } } }), { keys });
 * ```
 */
export type KeyResolver = (
  presentedKey: string,
) => ResolvedKey | null | undefined | Promise<ResolvedKey | null | undefined>;

/**
 * Digest to compare with an unknown key, so that the check needs the same time as for a known one.
 */
const NO_DIGEST = "0".repeat(64);

/**
 * Finds the key that a caller presented. Waits no longer than the exchange lasts.
 *
 * @param keys A store, or the embedder's function
 * @param options SHA-256, the exchange of the caller, the clock, and the verifier of identity
 * tokens, if any are accepted
 * @returns The key, or `undefined`. A malformed key is neither hashed nor looked up. A promise if
 * the store returns one
 * @throws {GatewayError} `key_store_unavailable`, also for a store that never answers;
 * `invalid_gateway_key` for an identity token
 */
export function findGatewayKey(
  presentedKey: string,
  keys: KeyStore | KeyResolver,
  options: FindOptions,
): KeyConfig | undefined | Promise<KeyConfig | undefined> {
  const { digest, exchange, clock, identity } = options;
  const wait = { exchange, clock, toError: () => new GatewayError("key_store_unavailable") };
  if (identity?.isToken(presentedKey)) {
    return findByToken(withDeadline(identity.resolve(presentedKey), wait), exchange);
  }
  if (!isPlausibleKey(presentedKey)) return undefined;
  if (typeof keys === "function") return withDeadline(callResolver(keys, presentedKey), wait);
  const presentedDigest = digest(presentedKey);
  const check = (storedKey: GatewayKey | undefined) =>
    isSecretOf(storedKey, presentedDigest, clock.now()) ? storedKey : undefined;
  const found = withDeadline(keys.find(presentedDigest), wait);
  return isPromise(found) ? found.then(check) : check(found);
}

/** Parts that find a key. */
interface FindOptions {
  readonly digest: Digest;
  readonly exchange: Exchange;
  readonly clock: Clock;
  readonly identity?: CallerTokens | undefined;
}

/** Returns the key of an identity token, at once if it was verified before. */
function findByToken(
  found: ResolvedToken | Promise<ResolvedToken>,
  { facts }: Exchange,
): KeyConfig | Promise<KeyConfig> {
  const toKey = (resolved: ResolvedToken): KeyConfig => {
    if (resolved.fault === undefined) {
      if (resolved.plan !== undefined) facts.plan = resolved.plan;
      return resolved.key;
    }
    if (resolved.keyId !== undefined) facts.keyId = resolved.keyId;
    throw new GatewayError("invalid_gateway_key", { failureCause: resolved.fault });
  };
  return isPromise(found) ? found.then(toKey) : toKey(found);
}

/**
 * Calls the embedder's function, and checks its result. An invalid result is reported, without any
 * value.
 */
async function callResolver(
  resolve: KeyResolver,
  presentedKey: string,
): Promise<KeyConfig | undefined> {
  let resolvedKey: ResolvedKey | null | undefined;
  try {
    resolvedKey = await resolve(presentedKey);
  } catch (thrown) {
    throw GatewayError.is(thrown)
      ? thrown
      : new GatewayError("key_store_unavailable", { cause: thrown });
  }
  if (resolvedKey === undefined || resolvedKey === null) return undefined;
  const { success, output, issues } = v.safeParse(ResolvedKeySchema, resolvedKey);
  if (success) return output;
  const cause = new TypeError(
    `Cannot use the answer of the keys hook: ${formatMistake(describeIssue(issues[0]))}`,
  );
  throw new GatewayError("internal_error", { cause });
}

/**
 * Returns whether the presented key is a stored key's current secret, or its secret before the last
 * rotation.
 */
function isSecretOf(
  storedKey: GatewayKey | undefined,
  presentedDigest: string,
  now: number,
): boolean {
  // An unknown key is compared too, so that the check needs the same time as for a known one.
  const isCurrent = equalDigests(storedKey?.digest ?? NO_DIGEST, presentedDigest);
  const previous = storedKey?.previous;
  if (previous === undefined) return isCurrent;
  const isPrevious = equalDigests(previous.digest, presentedDigest) && now < previous.expiresAt;
  return isPrevious || isCurrent;
}
