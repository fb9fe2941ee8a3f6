/**
 * Keys from an embedder's own store of users: a function that says who a key belongs to, and what that one may do.
 *
 * @module
 */
import * as v from "valibot";
import { GatewayError } from "../errors/gateway_error.ts";
import { isPromise } from "../exchange/observer.ts";
import { type KeyConfig, type OwnKey, OwnKeySchema } from "../config/key.ts";

/**
 * Hook: says who shows a key. It is asked once for each request; what it answers is not kept, so limits and rights may
 * differ from one request to the next. It may look the key up by whatever the store holds (its hash, one would hope);
 * comparing in constant time is its own business. A key that can't be one is not asked for: fewer than 16 characters or
 * more than 512, other than visible ASCII, or one that looks like a provider's (`sk-`, `gsk_`, `xai-`).
 *
 * What it throws, and what takes it longer than ten seconds, is answered with `key_store_unavailable`, unless it throws
 * a `GatewayError`. An answer of another form than {@link OwnKey} is answered with `internal_error`.
 *
 * @param shown What stands in `Gateway-Auth` after `Bearer`, in plain text: never to be logged
 * @returns Whose it is and what that one may do; `undefined` or `null` for a stranger
 */
export type ResolveKey = (shown: string) => OwnKey | null | undefined | Promise<OwnKey | null | undefined>;

/**
 * Asks an embedder's function.
 *
 * @param resolve The function
 * @param shown A plausible key
 * @returns What it knows, checked
 * @throws {GatewayError} `key_store_unavailable`, with what the function threw as its cause
 */
export function resolveOwnKey(
  resolve: ResolveKey,
  shown: string,
): KeyConfig | undefined | Promise<KeyConfig | undefined> {
  let found: ReturnType<ResolveKey>;
  try {
    found = resolve(shown);
  } catch (thrown) {
    throw toRefusal(thrown);
  }
  if (!isPromise(found)) return check(found);
  return Promise.resolve(found).then(check, (thrown) => {
    throw toRefusal(thrown);
  });
}

function toRefusal(thrown: unknown): GatewayError {
  return GatewayError.is(thrown) ? thrown : new GatewayError("key_store_unavailable", { cause: thrown });
}

/** The mistake is the embedder's: it is named to the observers, and tells no value. */
function check(found: OwnKey | null | undefined): KeyConfig | undefined {
  if (found === undefined || found === null) return undefined;
  const { success, output, issues } = v.safeParse(OwnKeySchema, found);
  if (success) return output;
  const [{ message }] = issues;
  const place = v.getDotPath(issues[0]);
  const cause = new TypeError(
    `Cannot use what the keys hook answered: ${place === null ? "" : `${place}: `}${message}`,
  );
  throw new GatewayError("internal_error", { cause });
}
