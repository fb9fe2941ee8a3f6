/**
 * Actions of operators on a running gateway through the admin API: watch its traffic, drain it and resume, and try a
 * call through it.
 *
 * @module
 */
import type { GatewayRequest, GatewayResponse } from "../../http/message.ts";
import type { Clock } from "../../exchange/clock.ts";
import { type AddressParts, splitAddress } from "../../config/address.ts";
import { CREDENTIAL_HEADERS, type CredentialHeader, toCredential } from "../../config/credential.ts";
import { parseBearer } from "../../inbound/credentials.ts";
import { createHostTable } from "../../inbound/host.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { toAnswer } from "./answers.ts";
import { createLiveEvents } from "../../observe/live/live_feed.ts";
import type { LivePart, LiveReport } from "../../observe/live/live_report.ts";
import type { ExchangeLists } from "../exchange_lists.ts";

/** Parts of {@link OperatorActions}. */
export interface OperatorParts {
  readonly gateway: { readonly isReady: boolean; readonly isStarting?: boolean; readonly openExchanges: number };
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

/** Header of the admin token in the playground's requests, whose `Authorization` holds the provider's key. */
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
  run(actions: OperatorActions, call: OperatorCall): Promise<GatewayResponse> | GatewayResponse;
}

/** Arguments of a route. */
export interface OperatorCall {
  readonly provider: string;
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
    summary: "Watch traffic, providers and the last exchanges: one event a second, the first with what is kept",
    tokenIn: "Authorization",
    answers: "LiveReport",
    type: "text/event-stream",
    run: (actions) => actions.watch(),
  },
  {
    method: "post",
    path: "/v1/drain",
    operationId: "drain",
    summary: "Say at /readyz that callers are not welcome, and go on serving them, until resume",
    tokenIn: "Authorization",
    answers: "State",
    type: "application/json",
    run: (actions) => actions.turn(true),
  },
  {
    method: "post",
    path: "/v1/resume",
    operationId: "resume",
    summary: "Take a drain back",
    tokenIn: "Authorization",
    answers: "State",
    type: "application/json",
    run: (actions) => actions.turn(false),
  },
  {
    method: "post",
    path: "/v1/playground/{provider}",
    operationId: "tryOut",
    summary: `Make one call through the gateway; Authorization and Gateway-Auth are the caller's, the admin token ` +
      `stands in ${TOKEN_HEADER}`,
    tokenIn: TOKEN_HEADER,
    answers: "ChatCompletion",
    type: "application/json",
    body: "ChatCompletionRequest",
    run: (actions, call) => actions.tryOut(call),
  },
];

/** Returns an address that leads to this provider; `undefined` if those of other providers take all of its own. */
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
    if (!this.#parts.gateway.isReady) return "leaving";
    if (this.#state.isDrained) return "draining";
    return this.#parts.gateway.isStarting ? "starting" : "ready";
  }

  /** Drains the gateway for load balancers, or resumes. Callers are still served, so no call is lost. */
  turn(isDrained: boolean): GatewayResponse {
    const { gateway } = this.#parts;
    if (!gateway.isReady) throw new GatewayError("leaving");
    this.#state.isDrained = isDrained;
    return toAnswer(200, { state: this.state, openExchanges: gateway.openExchanges });
  }

  /** Opens the live feed for one more watcher. */
  watch(): GatewayResponse {
    if (this.#state.watchers >= MAX_WATCHERS) throw new GatewayError("too_many_watchers");
    this.#state.watchers++;
    const { clock, look, exchanges: lists, health, version } = this.#parts;
    const report = async (from: number, to: number): Promise<LiveReport> => {
      const part = await look(from, to);
      const exchanges = await lists.withNames(part.exchanges);
      return { now: clock.now(), from, state: this.state, version, health: health(), ...part, exchanges };
    };
    return {
      status: 200,
      headers: {
        "content-type": "text/event-stream",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "x-accel-buffering": "no",
      },
      body: createLiveEvents(report, clock, () => this.#state.watchers--),
    };
  }

  /** Makes one call through the gateway, which counts and logs it like any other. */
  async tryOut({ provider, inbound, readBytes }: OperatorCall): Promise<GatewayResponse> {
    const { providers, handle } = this.#parts;
    const known = Object.hasOwn(providers, provider) ? providers[provider] : undefined;
    const address = known && addressOf(provider, providers);
    if (known === undefined || address === undefined) {
      throw new GatewayError("provider_not_found", { detail: `use one of ${Object.keys(providers).join(", ")}` });
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
      for (const [name, value] of Object.entries(toCredential(known.credential, upstreamKey))) headers.set(name, value);
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
      get signal() {
        return inbound.signal;
      },
    });
    return { ...answer, headers: { ...answer.headers, "cache-control": "no-store" } };
  }
}
