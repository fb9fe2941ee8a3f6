/**
 * Step 3: finds the caller by its gateway key, and checks its permissions.
 *
 * @module
 */
import { type KeyConfig, TOKEN_ID_PREFIX } from "../config/key.ts";
import type { TeamConfig } from "../config/team.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { withDeadline } from "../exchange/deadline.ts";
import { type Exchange, isPromise } from "../exchange/exchange.ts";
import { readGatewayCredential, readUpstreamCredentials } from "../inbound/credentials.ts";
import { assertSafeQuery } from "../inbound/query.ts";
import { findGatewayKey } from "../keys/key_resolver.ts";
import { assertModelAllowed, assertOperationAllowed, requireUsableKey } from "../keys/policy.ts";
import { limitsAmounts } from "../limits/limiter.ts";
import type { ResolvedOperation } from "../operations/router.ts";
import { hasCost } from "../operations/table.ts";
import { hasLooped } from "../upstream/headers.ts";
import { readAttribution } from "./attribution.ts";
import { readWantedRecording } from "./durable/wanted_recording.ts";
import { assertMetered } from "./fixed_price.ts";
import type { Arrival, Flow, Provider } from "./flow.ts";
import { findHeldKey } from "./held_key.ts";
import { assertNoKeyInCredentials, assertNoKeyInUrl } from "./misplaced_keys.ts";
import { readRun } from "./runs.ts";
import { subjectsOf } from "./subjects.ts";

/**
 * Identifies the caller: finds its gateway key and its team, then checks its upstream key and its
 * permissions.
 *
 * @throws {GatewayError} For a missing, unknown or misplaced key, or a missing permission
 */
export async function identify(
  operation: ResolvedOperation,
  provider: Provider,
  arrival: Arrival,
): Promise<Flow> {
  const { request, exchange, gateway } = arrival;
  const { keys, digest, clock, identity } = gateway;
  const presentedKey = readGatewayCredential(request.headers, provider, gateway.holdsKey);
  const stored = await findGatewayKey(presentedKey, keys, { digest, exchange, clock, identity });
  const key = requireKey(stored, provider, arrival);
  const found = key.team === undefined ? undefined : findTeam(key.team, arrival);
  const team = isPromise(found) ? await found : found; // one turn of promises less if it is in memory
  return openFlow({ key, team, presentedKey }, operation, provider, arrival);
}

/**
 * Notes whose exchange it is. The display name of an identity token is personal: it is left out. Its
 * team can be any text until the team is found.
 */
function noteKey({ id, name, team }: KeyConfig, { facts }: Exchange): void {
  facts.keyId = id;
  if (id.startsWith(TOKEN_ID_PREFIX)) return;
  if (name !== undefined) facts.keyName = name;
  if (team !== undefined) facts.team = team;
}

/** Checks the gateway key first, so that a caller without a valid key learns nothing else. */
function requireKey(
  storedKey: KeyConfig | undefined,
  { name }: Provider,
  { exchange, gateway }: Arrival,
): KeyConfig {
  if (storedKey !== undefined) noteKey(storedKey, exchange);
  return requireUsableKey(storedKey, name, gateway.clock.now());
}

/** Finds the settings of a key's team. Those in memory are found at once. */
function findTeam(
  name: string,
  { exchange, gateway }: Arrival,
): TeamConfig | undefined | Promise<TeamConfig | undefined> {
  const { teams, clock } = gateway;
  const toError = () => new GatewayError("key_store_unavailable");
  return withDeadline(teams.find(name), { exchange, clock, toError });
}

/** A caller with a valid gateway key. */
interface Caller {
  readonly key: KeyConfig;
  /** Settings of the key's team; `undefined` without a team, or if there is no such team. */
  readonly team: TeamConfig | undefined;
  readonly presentedKey: string;
}

/**
 * Makes the remaining checks of step 3, in the order in which a caller learns of them: the upstream
 * key, keys in wrong places, the permissions of the gateway key, the numbers of open exchanges, its
 * run. Notes the team and the attribution.
 *
 * @throws {GatewayError} The first check that fails
 */
function openFlow(
  { key, team, presentedKey }: Caller,
  operation: ResolvedOperation,
  provider: Provider,
  { request, exchange, gateway }: Arrival,
): Flow {
  const { url, headers } = request;
  if (team !== undefined) exchange.facts.team = key.team;
  assertSafeQuery(url, provider);
  const credentials = readUpstreamCredentials(headers, provider, presentedKey);
  const heldKey = credentials === undefined
    ? findHeldKey(key, operation, provider, team, { request, gateway })
    : undefined;
  const searched = { presentedKey, gateway };
  const secrets = { credentials, searched };
  if (gateway.attribution.length > 0) {
    exchange.facts.attribution = readAttribution(gateway.attribution, request, secrets);
  }
  if (credentials !== undefined) assertNoKeyInCredentials(credentials, provider, searched);
  assertNoKeyInUrl(url, searched);
  if (!operation.isOfGateway) assertOperationAllowed(key, operation, provider);
  if (operation.modelId !== undefined) assertModelAllowed(key, operation.modelId);
  if (hasLooped(headers)) throw new GatewayError("upstream_loop");
  gateway.openExchanges.takeSlots(exchange, key.id, provider.hasOthers ? provider.name : undefined);
  const subjects = operation.isOfGateway ? [] : subjectsOf(key, provider, team);
  assertMetered(operation, url, provider, subjects);
  const run = readRun(operation, secrets, { request, exchange, gateway });
  const durable = provider.shape === "v1" ? key.durable ?? provider.durable : undefined;
  return {
    request,
    exchange,
    gateway,
    provider,
    operation,
    key,
    presentedKey,
    credentials: credentials ?? {},
    heldKey,
    subjects,
    run,
    needsReservation: hasCost(operation) && subjects.some(limitsAmounts),
    wantedRecording: durable ? readWantedRecording(headers, operation, durable) : undefined,
    firstLease: undefined,
  };
}
