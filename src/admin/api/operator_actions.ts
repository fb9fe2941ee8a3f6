/**
 * Actions of operators on a running gateway through the admin API: watch its traffic, drain and
 * resume it, and try a call through it.
 *
 * @module
 */
import {
  type ByteSource,
  type GatewayRequest,
  type GatewayResponse,
  whenGone,
} from "../../http/message.ts";
import type { Clock } from "../../exchange/clock.ts";
import { type AddressParts, splitAddress } from "../../config/address.ts";
import {
  CREDENTIAL_HEADERS,
  type CredentialHeader,
  writeCredential,
} from "../../config/credential.ts";
import type { ProviderConfig } from "../../config/provider.ts";
import { parseBearer } from "../../inbound/credentials.ts";
import { createHostTable } from "../../inbound/host.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { toResponse } from "./responses.ts";
import type { WithCosts } from "../exchange_costs.ts";
import { endWithToken } from "./end_with_token.ts";
import type { Operator } from "./guard.ts";
import { readBytes } from "./read_request.ts";
import { type AdminRequest, type AdminRoute, route, TOKEN_HEADER } from "./route.ts";
import { anyObject, count, flag, list, type Named, objectOf, optional, text } from "./schema.ts";
import { liveReportSchema, stateSchema } from "./live_schemas.ts";
import { createLiveEvents } from "../../observe/live/live_feed.ts";
import type { DrainReport, Fleet } from "../../observe/fleet/fleet.ts";
import type { FleetLiveReport } from "../../observe/fleet/fleet_report.ts";
import type { LivePart, LiveReport } from "../../observe/live/live_report.ts";
import { toTrialPath, TRIAL_QUERY, type TrialQuery } from "./playground_paths.ts";
import { DRAIN_QUERY, FLEET_QUERY, type FleetQuery } from "./fleet.ts";

/** The part of a gateway that determines its state. */
export interface DrainableGateway {
  readonly isReady: boolean;
  readonly isStarting?: boolean;
}

/** Settings of a provider that the playground calls. */
type TriedProvider = Pick<ProviderConfig, "hosts" | "shape" | "credential">;

/** Parts of {@link OperatorActions}. */
export interface OperatorParts {
  readonly gateway: DrainableGateway & { readonly openExchanges: number };
  readonly fleet: Fleet;
  /** Reads the traffic of all processes from one second up to, but without, another. */
  readonly readLive: (from: number, to: number) => Promise<LivePart>;
  readonly withCosts: WithCosts;
  /** Passes a call to the gateway like a caller's call. The gateway checks it as usual. */
  readonly handle: (request: GatewayRequest) => Promise<GatewayResponse>;
  /** The addresses of each provider with their shape, and the header for its key. */
  readonly providers: Readonly<Record<string, TriedProvider>>;
  readonly health: () => Readonly<Record<string, unknown>>;
  readonly version: string;
  readonly clock: Clock;
  /** State to keep when the configuration changes. Default: a new state. */
  readonly state?: OperatorState | undefined;
}

/** The drain requested by an operator, and the number of watchers. */
export interface OperatorState {
  isDrained: boolean;
  watchers: number;
}

/**
 * Returns the state for load balancers: ready for callers, drained by an operator, or about to end.
 */
export function stateOf(
  { isReady, isStarting }: DrainableGateway,
  { isDrained }: OperatorState,
): LiveReport["state"] {
  if (!isReady) return "leaving";
  if (isDrained) return "draining";
  return isStarting ? "starting" : "ready";
}

/** Headers that the playground may pass to the gateway. All others are dropped. */
export const PLAYGROUND_HEADERS: readonly string[] = [
  "host",
  ...CREDENTIAL_HEADERS,
  "gateway-auth",
  "content-type",
  "content-length",
  "accept",
];
/** Limit of watchers: each costs some time every second. */
const MAX_WATCHERS = 32;
/** Headers of the live feed. */
const FEED_HEADERS: Readonly<Record<string, string>> = {
  "content-type": "text/event-stream",
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "x-accel-buffering": "no",
};

/** The response to a call that drains or resumes. */
export interface StateReport {
  readonly state: LiveReport["state"];
  readonly openExchanges: number;
  /** The gateways that the call selected, if it selected any. */
  readonly gateways?: readonly DrainReport[];
}

const STATE: Named<StateReport> = {
  name: "State",
  schema: objectOf<StateReport>({
    state: stateSchema,
    openExchanges: count(),
    gateways: optional(list(objectOf<DrainReport>({
      id: text(),
      name: text(),
      state: stateSchema,
      isDone: flag("It has said so"),
    }))),
  }),
};

const TRIED_CALL: Named = {
  name: "TriedCall",
  schema: anyObject("As callers send it to the provider's interface"),
};

const TRIED_ANSWER: Named = {
  name: "TriedAnswer",
  schema: anyObject("As the provider answered it"),
};

/** The routes of these actions. */
export const OPERATOR_ROUTES: readonly AdminRoute<OperatorActions>[] = [
  route({
    method: "get",
    path: "/v1/live",
    operationId: "watch",
    summary: "Watch traffic, providers and the last exchanges: " +
      "one event a second, the first with the kept seconds",
    query: FLEET_QUERY,
    status: 200,
    response: { name: "LiveReport", schema: liveReportSchema },
    types: ["text/event-stream"],
    respond: (actions, { query, operator }) => actions.watch(query, operator),
  }),
  route({
    method: "post",
    path: "/v1/drain",
    operationId: "drain",
    summary: "Say at /readyz that callers are not welcome, and go on serving them, until resume",
    query: DRAIN_QUERY,
    status: 200,
    response: STATE,
    respond: (actions, { query }) => actions.setDrained(true, query),
  }),
  route({
    method: "post",
    path: "/v1/resume",
    operationId: "resume",
    summary: "End a drain",
    query: DRAIN_QUERY,
    status: 200,
    response: STATE,
    respond: (actions, { query }) => actions.setDrained(false, query),
  }),
  route({
    method: "post",
    path: "/v1/playground/{provider}",
    operationId: "tryOut",
    summary:
      "Make one call through the gateway; Authorization and Gateway-Auth are the caller's, " +
      `the admin token is in ${TOKEN_HEADER}`,
    tokenIn: TOKEN_HEADER,
    query: TRIAL_QUERY,
    body: TRIED_CALL,
    status: 200,
    response: TRIED_ANSWER,
    respond: (actions, call) => actions.tryOut(call),
  }),
];

/**
 * Returns an address that leads to this provider; `undefined` if all of its addresses belong to
 * other providers.
 */
function addressOf(name: string, providers: OperatorParts["providers"]): AddressParts | undefined {
  const entries = Object.entries(providers).flatMap(([each, provider]) =>
    provider.hosts.map((host): [string, string] => [host, each])
  );
  const resolve = createHostTable(entries);
  const candidates = providers[name]?.hosts.map(splitAddress).map(({ host, prefix }) => ({
    host: host === "*" ? "playground.invalid" : host.replace(/^\*\./, "playground."),
    prefix,
  }));
  return candidates?.find(({ host, prefix }) => resolve(host, `${prefix}/v1`).provider === name);
}

/**
 * Returns the headers for the gateway. The page has one field for the provider's key. It is sent in
 * the header that the provider's interface uses.
 */
function toPlaygroundHeaders(
  given: GatewayRequest["headers"],
  credential: CredentialHeader,
): Headers {
  const headers = new Headers();
  for (const name of PLAYGROUND_HEADERS) {
    const value = given.get(name);
    if (value !== null && value !== "") headers.set(name, value);
  }
  const upstreamKey = parseBearer(headers.get("authorization"));
  if (upstreamKey !== undefined && !headers.has(credential)) {
    headers.delete("authorization");
    for (const [name, value] of Object.entries(writeCredential(credential, upstreamKey))) {
      headers.set(name, value);
    }
  }
  return headers;
}

/** Returns bytes as the body of a request. */
function toSource(bytes: Uint8Array): ByteSource {
  let isRead = false;
  return {
    read() {
      const chunk = isRead ? undefined : bytes;
      isRead = true;
      return Promise.resolve(chunk);
    },
    cancel() {},
  };
}

/** Returns a clock that is behind another one. */
function behind(clock: Clock, ms: number): Clock {
  return {
    now: () => clock.now() - ms,
    monotonic: () => clock.monotonic(),
    timer: (...args) => clock.timer(...args),
  };
}

/** Actions on the running gateway, and their state. */
export class OperatorActions {
  readonly #parts: OperatorParts;
  readonly #state: OperatorState;

  constructor(parts: OperatorParts) {
    this.#parts = parts;
    this.#state = parts.state ?? { isDrained: false, watchers: 0 };
  }

  /** State for load balancers: ready for callers, drained by an operator, or about to end. */
  get state(): LiveReport["state"] {
    return stateOf(this.#parts.gateway, this.#state);
  }

  /**
   * Drains gateways for load balancers, or resumes them. Callers are still served, so no call is
   * lost.
   *
   * @throws {GatewayError} `leaving`
   */
  async setDrained(isDrained: boolean, { gateway: named }: FleetQuery): Promise<GatewayResponse> {
    const { gateway, fleet } = this.#parts;
    if (named !== undefined) {
      const gateways = await fleet.setDrained(named, isDrained);
      const status = gateways.every(({ isDone }) => isDone) ? 200 : 202;
      return toResponse(status, {
        state: this.state,
        openExchanges: gateway.openExchanges,
        gateways,
      });
    }
    if (!gateway.isReady) throw new GatewayError("leaving");
    this.#state.isDrained = isDrained;
    return toResponse(200, { state: this.state, openExchanges: gateway.openExchanges });
  }

  /**
   * Starts the live feed for one more watcher. It ends when the watcher's token is no longer
   * accepted.
   *
   * @throws {GatewayError} `too_many_watchers`
   */
  async watch(query: FleetQuery, { isStillAccepted }: Operator): Promise<GatewayResponse> {
    const { fleet, readLive } = this.#parts;
    const { lagMs, read } = query.gateway === undefined
      ? { lagMs: 0, read: readLive }
      : await fleet.watch(query.gateway);
    if (this.#state.watchers >= MAX_WATCHERS) throw new GatewayError("too_many_watchers");
    this.#state.watchers++;
    const clock = behind(this.#parts.clock, lagMs);
    const report = async (from: number, to: number): Promise<FleetLiveReport> =>
      this.#toReport(await read(from, to), from, clock.now());
    const events = createLiveEvents(report, clock, () => this.#state.watchers--);
    const body = endWithToken(events, isStillAccepted, clock);
    return { status: 200, headers: { ...FEED_HEADERS }, body };
  }

  /** Makes the report of the traffic since the second `from`. */
  #toReport(part: LivePart, from: number, now: number): FleetLiveReport {
    const { health, version, withCosts } = this.#parts;
    return {
      now,
      from,
      state: this.state,
      version,
      health: health(),
      ...part,
      exchanges: withCosts(part.exchanges),
    };
  }

  /**
   * Makes one call through the gateway, which counts and logs it like any other.
   *
   * @throws {GatewayError} `provider_not_found`, `body_too_large`
   */
  async tryOut(
    { id: provider, query, inbound }: Omit<AdminRequest<TrialQuery>, "body">,
  ): Promise<GatewayResponse> {
    const { credential, shape, host, prefix } = this.#addressOf(provider);
    const bytes = await readBytes(inbound);
    const headers = toPlaygroundHeaders(inbound.headers, credential);
    headers.set("host", host);
    headers.set("content-length", String(bytes.byteLength));
    const answer = await this.#parts.handle({
      method: "POST",
      url: prefix + toTrialPath(shape, query),
      headers,
      body: toSource(bytes),
      get isGone() {
        return inbound.isGone;
      },
      onGone: (act) => whenGone(inbound, act),
    });
    return { ...answer, headers: { ...answer.headers, "cache-control": "no-store" } };
  }

  /** Finds an address of a provider. */
  #addressOf(provider: string): AddressParts & TriedProvider {
    const { providers } = this.#parts;
    const known = Object.hasOwn(providers, provider) ? providers[provider] : undefined;
    const address = known && addressOf(provider, providers);
    if (known === undefined || address === undefined) {
      throw new GatewayError("provider_not_found", {
        detail: `use one of ${Object.keys(providers).join(", ")}`,
      });
    }
    return { ...known, ...address };
  }
}
