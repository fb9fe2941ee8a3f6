/**
 * Actions of operators on a running gateway through the admin API: watch its traffic, drain it and
 * resume, and try a call through it.
 *
 * @module
 */
import { type GatewayRequest, type GatewayResponse, whenGone } from "../../http/message.ts";
import type { Clock } from "../../exchange/clock.ts";
import { type AddressParts, splitAddress } from "../../config/address.ts";
import {
  CREDENTIAL_HEADERS,
  type CredentialHeader,
  toCredential,
} from "../../config/credential.ts";
import { parseBearer } from "../../inbound/credentials.ts";
import { createHostTable } from "../../inbound/host.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { toAnswer } from "./answers.ts";
import { endWithToken } from "./end_with_token.ts";
import type { Operator } from "./guard.ts";
import type { AdminRoute } from "./keys.ts";
import { createLiveEvents } from "../../observe/live/live_feed.ts";
import type { Fleet } from "../../observe/fleet/fleet.ts";
import type { FleetLiveReport } from "../../observe/fleet/fleet_report.ts";
import type { LivePart, LiveReport } from "../../observe/live/live_report.ts";
import type { ExchangeLists } from "../exchange_lists.ts";
import { FLEET_QUERY, type FleetQuery, TURN_QUERY } from "./fleet.ts";

/** The part of a gateway that its state depends on. */
export interface DrainableGateway {
  readonly isReady: boolean;
  readonly isStarting?: boolean;
}

/** Parts of {@link OperatorActions}. */
export interface OperatorParts {
  readonly gateway: DrainableGateway & { readonly openExchanges: number };
  readonly fleet: Fleet;
  /** Reads the traffic of all processes from one second up to, but without, another. */
  readonly look: (from: number, to: number) => Promise<LivePart>;
  /** Finds settled exchanges, and the names of their keys. */
  readonly exchanges: ExchangeLists;
  /** Hands a call to the gateway as if it had come from a caller: its own steps decide on it. */
  readonly handle: (request: GatewayRequest) => Promise<GatewayResponse>;
  /** The addresses of each provider, and the header in which its interface takes its key. */
  readonly providers: Readonly<
    Record<string, { readonly hosts: readonly string[]; readonly credential: CredentialHeader }>
  >;
  readonly health: () => Readonly<Record<string, unknown>>;
  readonly version: string;
  readonly clock: Clock;
  /** State to keep when the configuration changes; created if left out. */
  readonly state?: OperatorState | undefined;
}

/** Drain that an operator asked for, and number of watchers. */
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

/**
 * Header of the admin token in the playground's requests, whose `Authorization` holds the
 * provider's key.
 */
export const TOKEN_HEADER = "Sallyport-Admin";
/** Headers that pass from the playground to the gateway; all others are dropped. */
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

/** One route. */
export interface OperatorRoute {
  readonly method: "get" | "post";
  /** Path, with `{provider}` for the name of a provider. */
  readonly path: string;
  /** Names the operation in the description. */
  readonly operationId: string;
  readonly summary: string;
  /** Header of the admin token. */
  readonly tokenIn: "Authorization" | typeof TOKEN_HEADER;
  /** Name of the answer's schema in the description; `type` is its media type. */
  readonly answers: "State" | "LiveReport" | "ChatCompletion";
  readonly type: "application/json" | "text/event-stream";
  /** Name of the body's schema in the description, if there is a body. */
  readonly body?: "ChatCompletionRequest";
  /** Schema of the query string's parameters, and the meaning of each. */
  readonly query?: AdminRoute["query"];
  run(actions: OperatorActions, call: OperatorCall): Promise<GatewayResponse> | GatewayResponse;
}

/** Arguments of a route. */
export interface OperatorCall {
  readonly provider: string;
  readonly operator: Operator;
  /** Gateways that the call is about. */
  readonly query: FleetQuery;
  readonly inbound: GatewayRequest;
  /** Reads the body, which is bounded. */
  readonly readBytes: () => Promise<Uint8Array>;
}

/** All routes for operators. */
export const OPERATOR_ROUTES: readonly OperatorRoute[] = [
  {
    method: "get",
    path: "/v1/live",
    operationId: "watch",
    summary:
      "Watch traffic, providers and the last exchanges: one event a second, the first with what is kept",
    tokenIn: "Authorization",
    answers: "LiveReport",
    type: "text/event-stream",
    query: FLEET_QUERY,
    run: (actions, { query, operator }) => actions.watch(query.gateway, operator),
  },
  {
    method: "post",
    path: "/v1/drain",
    operationId: "drain",
    summary: "Say at /readyz that callers are not welcome, and go on serving them, until resume",
    tokenIn: "Authorization",
    answers: "State",
    type: "application/json",
    query: TURN_QUERY,
    run: (actions, { query }) => actions.turn(true, query.gateway),
  },
  {
    method: "post",
    path: "/v1/resume",
    operationId: "resume",
    summary: "Take a drain back",
    tokenIn: "Authorization",
    answers: "State",
    type: "application/json",
    query: TURN_QUERY,
    run: (actions, { query }) => actions.turn(false, query.gateway),
  },
  {
    method: "post",
    path: "/v1/playground/{provider}",
    operationId: "tryOut",
    summary:
      `Make one call through the gateway; Authorization and Gateway-Auth are the caller's, the admin token ` +
      `stands in ${TOKEN_HEADER}`,
    tokenIn: TOKEN_HEADER,
    answers: "ChatCompletion",
    type: "application/json",
    body: "ChatCompletionRequest",
    run: (actions, call) => actions.tryOut(call),
  },
];

/**
 * Returns an address that leads to this provider; `undefined` if those of other providers take all
 * of its own.
 */
function addressOf(name: string, providers: OperatorParts["providers"]): AddressParts | undefined {
  const entries = Object.entries(providers).flatMap(([each, { hosts }]) =>
    hosts.map((host): [string, string] => [host, each])
  );
  const resolve = createHostTable(entries);
  const candidates = providers[name]?.hosts.map(splitAddress).map(({ host, prefix }) => ({
    host: host === "*" ? "playground.invalid" : host.replace(/^\*\./, "playground."),
    prefix,
  }));
  return candidates?.find(({ host, prefix }) => resolve(host, `${prefix}/v1`).provider === name);
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

  /** @param parts The parts that it works with */
  constructor(parts: OperatorParts) {
    this.#parts = parts;
    this.#state = parts.state ?? { isDrained: false, watchers: 0 };
  }

  /** State for load balancers: ready for callers, drained by an operator, or about to end. */
  get state(): LiveReport["state"] {
    return stateOf(this.#parts.gateway, this.#state);
  }

  /**
   * Drains gateways for load balancers, or resumes. Callers are still served, so no call is lost.
   *
   * @param named The gateways; this one if left out
   */
  async turn(isDrained: boolean, named: string | undefined): Promise<GatewayResponse> {
    const { gateway, fleet } = this.#parts;
    if (named !== undefined) {
      const gateways = await fleet.turn(named, isDrained);
      const status = gateways.every(({ isDone }) => isDone) ? 200 : 202;
      return toAnswer(status, {
        state: this.state,
        openExchanges: gateway.openExchanges,
        gateways,
      });
    }
    if (!gateway.isReady) throw new GatewayError("leaving");
    this.#state.isDrained = isDrained;
    return toAnswer(200, { state: this.state, openExchanges: gateway.openExchanges });
  }

  /**
   * Opens the live feed for one more watcher. It ends when the watcher's token does.
   *
   * @param named The gateways; this one if left out
   */
  async watch(named: string | undefined, { isStillGood }: Operator): Promise<GatewayResponse> {
    const { fleet, exchanges: lists, health, version } = this.#parts;
    const { lagMs, look } = named === undefined
      ? { lagMs: 0, look: this.#parts.look }
      : await fleet.watch(named);
    if (this.#state.watchers >= MAX_WATCHERS) throw new GatewayError("too_many_watchers");
    this.#state.watchers++;
    const clock = behind(this.#parts.clock, lagMs);
    const report = async (from: number, to: number): Promise<FleetLiveReport> => {
      const part = await look(from, to);
      const exchanges = await lists.withNames(part.exchanges);
      return {
        now: clock.now(),
        from,
        state: this.state,
        version,
        health: health(),
        ...part,
        exchanges,
      };
    };
    return {
      status: 200,
      headers: {
        "content-type": "text/event-stream",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "x-accel-buffering": "no",
      },
      body: endWithToken(
        createLiveEvents(report, clock, () => this.#state.watchers--),
        isStillGood,
        clock,
      ),
    };
  }

  /** Makes one call through the gateway, which counts and logs it like any other. */
  async tryOut({ provider, inbound, readBytes }: OperatorCall): Promise<GatewayResponse> {
    const { providers, handle } = this.#parts;
    const known = Object.hasOwn(providers, provider) ? providers[provider] : undefined;
    const address = known && addressOf(provider, providers);
    if (known === undefined || address === undefined) {
      throw new GatewayError("provider_not_found", {
        detail: `use one of ${Object.keys(providers).join(", ")}`,
      });
    }
    const bytes = await readBytes();
    const headers = new Headers(
      PLAYGROUND_HEADERS.map((name): [string, string] => [name, inbound.headers.get(name) ?? ""])
        .filter(([, value]) => value !== ""),
    );
    // The page knows one place for the key: it is sent where the provider's interface takes it.
    const upstreamKey = parseBearer(headers.get("authorization"));
    if (upstreamKey !== undefined && !headers.has(known.credential)) {
      headers.delete("authorization");
      for (const [name, value] of Object.entries(toCredential(known.credential, upstreamKey))) {
        headers.set(name, value);
      }
    }
    headers.set("host", address.host);
    headers.set("content-length", String(bytes.byteLength));
    let isRead = false;
    const answer = await handle({
      method: "POST",
      url: `${address.prefix}/v1/chat/completions`,
      headers,
      body: {
        read() {
          const chunk = isRead ? undefined : bytes;
          isRead = true;
          return Promise.resolve(chunk);
        },
        cancel() {},
      },
      get isGone() {
        return inbound.isGone;
      },
      onGone: (act) => whenGone(inbound, act),
    });
    return { ...answer, headers: { ...answer.headers, "cache-control": "no-store" } };
  }
}
