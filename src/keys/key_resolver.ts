/**
 * Keys from an embedder's own store of users: a function that returns the owner of a key and what the owner may do.
 *
 * @module
 */
import * as v from "valibot";
import { GatewayError } from "../errors/gateway_error.ts";
import { describeIssue, formatMistake } from "../config/issue.ts";
import { type KeyConfig, type OwnKey, OwnKeySchema } from "../config/key.ts";

/**
 * Hook: finds the owner of a key. It is called once for each request and its answer is not kept, so limits and rights
 * may differ from one request to the next. It may look the key up by whatever the store holds, preferably a hash, and
 * is itself responsible for comparing in constant time. It is not called for a text that can't be a key: fewer than 16
 * characters or more than 512, other than visible ASCII, or one that looks like a provider's (`sk-`, `gsk_`, `xai-`).
 *
 * If it throws, or takes longer than ten seconds, the request is answered with `key_store_unavailable`, unless it
 * throws a `GatewayError`. If it returns another form than {@link OwnKey}, the answer is `internal_error`.
 *
 * @param shown The text in `Gateway-Auth` after `Bearer`: the key itself, which must never be logged
 * @returns The owner and what the owner may do; `undefined` or `null` for an unknown key
 */
export type ResolveKey = (shown: string) => OwnKey | null | undefined | Promise<OwnKey | null | undefined>;

/**
 * Asks an embedder's function.
 *
 * @param resolve The function
 * @param shown A plausible key
 * @returns Its answer, checked
 * @throws {GatewayError} `key_store_unavailable`, with what the function threw as its cause
 */
export async function resolveOwnKey(resolve: ResolveKey, shown: string): Promise<KeyConfig | undefined> {
  let found: OwnKey | null | undefined;
  try {
    found = await resolve(shown);
  } catch (thrown) {
    throw toRefusal(thrown);
  }
  return check(found);
}

function toRefusal(thrown: unknown): GatewayError {
  return GatewayError.is(thrown) ? thrown : new GatewayError("key_store_unavailable", { cause: thrown });
}

/** Checks the answer of the hook. A mistake in it is reported to the observers, without any value. */
function check(found: OwnKey | null | undefined): KeyConfig | undefined {
  if (found === undefined || found === null) return undefined;
  const { success, output, issues } = v.safeParse(OwnKeySchema, found);
  if (success) return output;
  const cause = new TypeError(`Cannot use what the keys hook answered: ${formatMistake(describeIssue(issues[0]))}`);
  throw new GatewayError("internal_error", { cause });
}
