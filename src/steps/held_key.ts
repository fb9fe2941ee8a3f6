/**
 * Use of a provider key that the gateway holds: only for callers that are allowed to, and that send
 * no key of their own.
 *
 * @module
 */
import type { KeyConfig } from "../config/key.ts";
import type { OperationGroup } from "../config/operation_groups.ts";
import type { TeamConfig } from "../config/team.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { STORE_DEADLINE_MS, withDeadline } from "../exchange/deadline.ts";
import type { Exchange } from "../exchange/exchange.ts";
import { assertNoUnreadKey, type Credentials, toMissingKeyError } from "../inbound/credentials.ts";
import { isModelUse } from "../operations/model_actions.ts";
import type { ResolvedOperation } from "../operations/router.ts";
import type { HeldKey } from "../upstream/held_keys.ts";
import { hideKey } from "../upstream/hidden_key.ts";
import { RepeatableBody } from "../upstream/repeatable_body.ts";
import type { HeldBody, UpstreamResponse } from "../upstream/transport.ts";
import type { Arrival, Flow, Provider } from "./flow.ts";

const LATE = `Cannot read a held key: no answer within ${STORE_DEADLINE_MS / 1000} s`;

/** Returns whether a key can use provider keys of the gateway: by its own setting or its team's. */
function canUseHeldKeys({ heldKeys }: KeyConfig, team: TeamConfig | undefined): boolean {
  return (heldKeys ?? team?.heldKeys) === true;
}

/**
 * Groups whose operations can make a key for the caller: keys of the account, and short-lived keys
 * with which a browser calls the provider directly.
 */
const KEY_MAKING: ReadonlySet<OperationGroup | undefined> = new Set(
  [
    "admin",
    "realtime",
    "chatkit",
  ] as const,
);
/**
 * Returns whether an operation could make a key of the account for the caller. Unknown operations
 * could.
 */
function canMakeKeys({ group, isOfGateway, path }: ResolvedOperation): boolean {
  if (isOfGateway === true || isModelUse(path)) return false;
  return group === undefined || KEY_MAKING.has(group);
}

/**
 * Finds the held key for a caller that sends none.
 *
 * @throws {GatewayError} `team_not_configured`; `missing_upstream_key` if there is none for this
 * caller; `invalid_upstream_auth` if the caller sends its own key in another place;
 * `operation_not_allowed` for an operation that can make a key at the provider
 */
export function findHeldKey(
  key: KeyConfig,
  operation: ResolvedOperation,
  provider: Provider,
  team: TeamConfig | undefined,
  { request, gateway }: Pick<Arrival, "request" | "gateway">,
): HeldKey {
  // Its team could have had the right.
  if (key.team !== undefined && team === undefined) throw new GatewayError("team_not_configured");
  const held = canUseHeldKeys(key, team)
    ? gateway.heldKeys.find(provider.name, key.team)
    : undefined;
  if (held === undefined) throw toMissingKeyError(provider.credential);
  assertNoUnreadKey(request, provider);
  if (canMakeKeys(operation)) {
    throw new GatewayError("operation_not_allowed", {
      detail: "it can make a key at the provider or manage the account there, so it needs the " +
        "caller's own key",
    });
  }
  return held;
}

/**
 * Makes the call with the held key. If the provider refuses it, the key is read again. If it has
 * changed, the call is made once more with the same body: a refused call costs nothing.
 *
 * @param body The body of the call. It stays in memory until the provider accepts the key
 * @param send Makes the call with a body
 * @throws {GatewayError} `upstream_key_unavailable`, and as `send` does
 */
export async function sendWithHeldKey(
  held: HeldKey,
  flow: Flow,
  body: HeldBody | null,
  send: (body: HeldBody | null) => Promise<UpstreamResponse>,
): Promise<UpstreamResponse> {
  const { exchange, provider, gateway } = flow;
  const { clock } = gateway;
  const toError = () => new GatewayError("upstream_key_unavailable", { cause: new Error(LATE) });
  const sendWith = async (key: string, sent: HeldBody | null): Promise<UpstreamResponse> => {
    flow.credentials = toCredentials(key, provider);
    return hideKey(await send(sent), key);
  };
  exchange.facts.usesHeldKey = true;
  const used = await withDeadline(held.get(), { exchange, clock, toError });
  const kept = body === null ? null : new RepeatableBody(body);
  let mustRepeat = false;
  try {
    const answer = await sendWith(used, kept);
    if (answer.status !== 401) return answer;
    mustRepeat = await isRenewedInTime(held.renew(used), exchange, clock);
    if (!mustRepeat) return answer;
    answer.body?.cancel();
  } finally {
    if (!mustRepeat) kept?.forgo();
  }
  exchange.beginRetry(undefined);
  exchange.facts.firstByteMs = exchange.answeredStatus = undefined; // of the refusal
  const renewed = await withDeadline(held.get(), { exchange, clock, toError });
  return await sendWith(renewed, body);
}

/** Waits for another key. A late one is for later calls: the provider's refusal is passed on. */
async function isRenewedInTime(
  renewal: Promise<boolean>,
  exchange: Exchange,
  clock: Clock,
): Promise<boolean> {
  try {
    return await withDeadline(renewal, { exchange, clock, toError: () => new Error(LATE) });
  } catch (error) {
    if (exchange.reason !== undefined) throw error;
    return false;
  }
}

function toCredentials(key: string, { credential }: Provider): Credentials {
  return { [credential]: credential === "authorization" ? `Bearer ${key}` : key };
}
