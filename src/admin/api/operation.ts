/**
 * What an operator does with a running gateway beside its keys: watch it, turn load balancers away from it and back,
 * and try a call through it.
 *
 * @module
 */
import type { GatewayRequest, GatewayResponse } from "../../http/message.ts";
import type { Clock } from "../../exchange/clock.ts";
import { createHostTable } from "../../inbound/host.ts";
import { AdminError, toAnswer } from "./answers.ts";
import { createLiveEvents } from "../../observe/live/live_feed.ts";
import type { LivePart, LiveReport } from "../../observe/live/live_report.ts";

/** What operators watch and act on. */
export interface OperationParts {
  readonly gateway: { readonly isReady: boolean; readonly openExchanges: number };
  /** What settled from one second up to, but without, another; all processes together. */
  readonly look: (from: number, to: number) => Promise<LivePart>;
  /** Hands a call to the gateway as if it had come from a caller: its own steps decide on it. */
  readonly handle: (request: GatewayRequest) => Promise<GatewayResponse>;
  /** The hosts of each provider. */
  readonly providers: Readonly<Record<string, { readonly hosts: readonly string[] }>>;
  readonly health: () => Readonly<Record<string, unknown>>;
  readonly version: string;
  readonly clock: Clock;
  /** What stays when a gateway's configuration changes; made anew if left out. */
  readonly state?: OperationState | undefined;
}

/** What operators have done, and how many watch. */
export interface OperationState {
  isDrained: boolean;
  watchers: number;
}

/** The header of the admin token where `Authorization` is taken: the playground's, for the provider's key. */
export const TOKEN_HEADER = "Sallyport-Admin";
/** What crosses from the playground to the gateway; nothing else does. */
export const PLAYGROUND_HEADERS: readonly string[] = [
  "host",
  "authorization",
  "gateway-auth",
  "content-type",
  "content-length",
  "accept",
];
/** Each watcher costs a little every second. */
const MAX_WATCHERS = 32;

/** One route. */
export interface OperationRoute {
  readonly method: "get" | "post";
  /** With `{provider}` for the name of one. */
  readonly path: string;
  /** Names the operation in the description. */
  readonly operationId: string;
  readonly summary: string;
  /** Where the admin token stands. */
  readonly tokenIn: "Authorization" | typeof TOKEN_HEADER;
  /** Name of the answer's form in the description, and its media type. */
  readonly answers: "State" | "LiveReport" | "ChatCompletion";
  readonly type: "application/json" | "text/event-stream";
  /** Name of the body's form in the description, where there is one. */
  readonly body?: "ChatCompletionRequest";
  run(operation: Operation, call: OperationCall): Promise<GatewayResponse> | GatewayResponse;
}

/** What a route is given. */
export interface OperationCall {
  readonly provider: string;
  readonly inbound: GatewayRequest;
  /** Reads the body, which is bounded. */
  readonly readBytes: () => Promise<Uint8Array>;
}

/** All routes for operators. */
export const OPERATION_ROUTES: readonly OperationRoute[] = [
  {
    method: "get",
    path: "/v1/live",
    operationId: "watch",
    summary: "Watch traffic, providers and the last exchanges: one event a second, the first with what is kept",
    tokenIn: "Authorization",
    answers: "LiveReport",
    type: "text/event-stream",
    run: (operation) => operation.watch(),
  },
  {
    method: "post",
    path: "/v1/drain",
    operationId: "drain",
    summary: "Say at /readyz that callers are not welcome, and go on serving them, until resume",
    tokenIn: "Authorization",
    answers: "State",
    type: "application/json",
    run: (operation) => operation.turn(true),
  },
  {
    method: "post",
    path: "/v1/resume",
    operationId: "resume",
    summary: "Take a drain back",
    tokenIn: "Authorization",
    answers: "State",
    type: "application/json",
    run: (operation) => operation.turn(false),
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
    run: (operation, call) => operation.tryOut(call),
  },
];

/** A Host that this provider is found by; `undefined` where others' patterns leave it none. */
function hostOf(name: string, providers: OperationParts["providers"]): string | undefined {
  const entries = Object.entries(providers).flatMap(([each, { hosts }]) =>
    hosts.map((host): [string, string] => [host, each])
  );
  const resolve = createHostTable(entries);
  const candidates = providers[name]?.hosts.map((host) => host.replace(/^\*\./, "playground.")) ?? [];
  return candidates.map((host) => host === "*" ? "playground.invalid" : host).find((host) => resolve(host) === name);
}

/** The state that operators change, and what they ask for. */
export class Operation {
  readonly #parts: OperationParts;
  readonly #state: OperationState;

  /** @param parts What it watches and acts on */
  constructor(parts: OperationParts) {
    this.#parts = parts;
    this.#state = parts.state ?? { isDrained: false, watchers: 0 };
  }

  /** Whether callers are welcome, were turned elsewhere by an operator, or the process is about to end. */
  get state(): LiveReport["state"] {
    if (!this.#parts.gateway.isReady) return "leaving";
    return this.#state.isDrained ? "draining" : "ready";
  }

  /** Turns load balancers elsewhere, or back. Who calls all the same is served: nothing is lost by either. */
  turn(isDrained: boolean): GatewayResponse {
    const { gateway } = this.#parts;
    if (!gateway.isReady) {
      throw new AdminError(409, "leaving", "Cannot do this: the gateway was told to end, and nothing takes that back");
    }
    this.#state.isDrained = isDrained;
    return toAnswer(200, { state: this.state, openExchanges: gateway.openExchanges });
  }

  /** The feed, for one watcher more. */
  watch(): GatewayResponse {
    if (this.#state.watchers >= MAX_WATCHERS) {
      throw new AdminError(503, "too_many_watchers", `Cannot watch: ${MAX_WATCHERS} others do; close a console`);
    }
    this.#state.watchers++;
    const { clock, look, health, version } = this.#parts;
    const report = async (from: number, to: number): Promise<LiveReport> => {
      const part = await look(from, to);
      return { now: clock.now(), from, state: this.state, version, health: health(), ...part };
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

  /** One call through the gateway, which counts and logs it like any other. */
  async tryOut({ provider, inbound, readBytes }: OperationCall): Promise<GatewayResponse> {
    const { providers, handle } = this.#parts;
    const host = Object.hasOwn(providers, provider) ? hostOf(provider, providers) : undefined;
    if (host === undefined) {
      const names = Object.keys(providers).join(", ");
      throw new AdminError(404, "provider_not_found", `Cannot call this provider: use one of ${names}`);
    }
    const bytes = await readBytes();
    const own: Readonly<Record<string, string>> = { host, "content-length": String(bytes.byteLength) };
    let isRead = false;
    const answer = await handle({
      method: "POST",
      url: "/v1/chat/completions",
      headers: {
        get: (name) => own[name] ?? (PLAYGROUND_HEADERS.includes(name) ? inbound.headers.get(name) : null),
      },
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
