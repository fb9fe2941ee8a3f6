/**
 * The gateway: its routes, and one exchange from the first header to the last byte.
 *
 * 1. Arrive   2. Address   3. Identify   4. Admit   5. Read   6. Forward   7. Relay   8. Settle
 *
 * @module
 */
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { type Digest, holdsGatewayKey } from "./access/gateway_key.ts";
import { createInlineKeyStore, findGatewayKey, type KeyStore } from "./access/key_store.ts";
import { type Lease, type Limiter, type LimitSubject, MemoryLimiter, takeLease } from "./access/limits.ts";
import type { ResolveKey } from "./access/own_keys.ts";
import { admitKey, admitModel } from "./access/policy.ts";
import { type Config, ConfigError } from "./config.ts";
import { GatewayError, toErrorAnswer } from "./errors.ts";
import {
  type Answer,
  ClientClosed,
  type Clock,
  dropRejection,
  Exchange,
  type ExchangeObserver,
  type InboundRequest,
  isPromise,
  systemClock,
  toSettlement,
  type Tracer,
} from "./exchange.ts";
import { type Handler, toHandler } from "./fetch_handler.ts";
import { BodyMemory, parseJson, readBody } from "./inbound/body.ts";
import { type ChatCompletionRequest, readChatCompletion } from "./inbound/chat_completion.ts";
import { readGatewayCredential, readUpstreamCredential } from "./inbound/credentials.ts";
import { createHostTable } from "./inbound/host.ts";
import { resolveOperation } from "./inbound/operation.ts";
import type { KeyConfig } from "./key_config.ts";
import { OpenExchanges } from "./open_exchanges.ts";
import type { ProviderConfig } from "./provider_config.ts";
import { EventStreamScanner } from "./upstream/event_stream.ts";
import { forward, shorten } from "./upstream/forward.ts";
import { hasLooped, toCallerHeaders, toUpstreamHeaders } from "./upstream/headers.ts";
import { MAX_WHOLE_BYTES, readWhole, Relay } from "./upstream/relay.ts";
import { type ReplicaReport, Replicas } from "./upstream/replicas.ts";
import { createFetchTransport, type Transport, type UpstreamAnswer } from "./upstream/transport.ts";
import { PlainAnswerMeter, readPlainUsage } from "./upstream/usage.ts";

/** The parts that differ by runtime or engine. Left out, each is one that works anywhere. */
export interface GatewayParts {
  /** Who gateway keys belong to: a store, or a function of one's own; by default those of the config, in memory. */
  readonly keys: KeyStore | ResolveKey;
  /** Who counts what keys and providers may take; by default this process alone. */
  readonly limiter: Limiter;
  /** How calls reach a provider; by default the global `fetch`. */
  readonly transport: Transport;
  /** SHA-256; by default one in JavaScript. */
  readonly digest: Digest;
  /** Who is told of settled exchanges. */
  readonly observers: readonly ExchangeObserver[];
  /** Who follows exchanges and their calls; by default nobody. */
  readonly tracer?: Tracer | undefined;
  /** Where times come from. */
  readonly clock: Clock;
}

/** A gateway, ready to be mounted. */
export interface Gateway extends Handler {
  /** Whether new requests are welcome: what a load balancer asks for. */
  readonly isReady: boolean;
  /** How many exchanges are open. */
  readonly openExchanges: number;
  /** How many of them are streams. */
  readonly openStreams: number;
  /** How the replicas of all providers do. */
  readonly replicas: readonly ({ readonly provider: string } & ReplicaReport)[];
  /** Says from now on that it is not ready, and goes on serving: the time in which load balancers turn elsewhere. */
  drain(): void;
  /**
   * Refuses what is new, lets open exchanges finish, and after the limit ends the rest with `gateway_draining`.
   *
   * @param limitMs How long open exchanges may take, milliseconds; the config's `drain.limit` if left out
   */
  close(limitMs?: number): Promise<void>;
}

/** A body of at most this size that nobody read is drained by the server; a larger one costs its connection. Bytes. */
const SMALL_BODY_BYTES = 65536;
/** When an exchange that is still open begins to watch for its caller's leaving. Milliseconds. */
const WATCH_CALLER_MS = 20;
function portableDigest(text: string): string {
  return bytesToHex(sha256(utf8ToBytes(text)));
}

/** Whose limits count: the key's, and those of the provider. */
function subjectsOf({ id, limits }: KeyConfig, ofProvider: readonly LimitSubject[]): readonly LimitSubject[] {
  return limits === undefined ? ofProvider : [{ name: `key:${id}`, limits }, ...ofProvider];
}

/** Keys elsewhere than in the configuration are a part that `assemble` makes: the core names no file and no engine. */
function inlineKeys({ keys }: Config, digest: Digest): KeyStore {
  if (typeof keys !== "string" && !("file" in keys)) return createInlineKeyStore(keys, digest);
  throw new ConfigError([{ path: "keys", message: "expected an array of keys, or a key store among the parts" }]);
}

/**
 * Makes a gateway.
 *
 * @param config A checked configuration, see `parseConfig`
 * @param overrides Parts to use instead of the ones that work anywhere
 * @returns The gateway
 *
 * @example Mount it in anything that speaks fetch
 * ```ts
 * const gateway = createGateway(parseConfig({
 *   providers: { a: { upstream: "openai" } },
 *   keys: [{ id: "me", key: "a-key-of-your-own" }],
 * }));
 * export default { fetch: gateway.fetch };
 * ```
 */
export function createGateway(config: Config, overrides: Partial<GatewayParts> = {}): Gateway {
  const digest = overrides.digest ?? portableDigest;
  const parts: GatewayParts = {
    digest,
    keys: overrides.keys ?? inlineKeys(config, digest),
    limiter: overrides.limiter ?? new MemoryLimiter(overrides.clock ?? systemClock),
    transport: overrides.transport ?? createFetchTransport(),
    observers: overrides.observers ?? [],
    tracer: overrides.tracer,
    clock: overrides.clock ?? systemClock,
  };
  const { clock } = parts;
  const { limits } = config;
  const bodyMemory = new BodyMemory(limits.maxBodiesBytes);
  const providers = Object.entries(config.providers).map(([name, provider]) => ({
    name,
    ...provider,
    replicas: new Replicas(provider.upstreams),
    transport: parts.transport,
    clock,
    subjects: provider.limits === undefined ? [] : [{ name: `provider:${name}`, limits: provider.limits }],
  }));
  const resolveProvider = createHostTable(
    providers.flatMap((provider) => provider.hosts.map((host): [string, typeof provider] => [host, provider])),
  );
  const open = new OpenExchanges();
  let isReady = true;
  let isClosing = false;
  let onIdle = (): void => {};

  /** 3: who calls. The gateway key first; without a good one nobody learns more. */
  function identify(
    { headers, url }: InboundRequest,
    found: KeyConfig | undefined,
    { shown, provider, exchange }: { shown: string; provider: string; exchange: Exchange },
  ): KeyConfig {
    if (found !== undefined) exchange.facts.keyId = found.id;
    const key = admitKey(found, provider, clock.now());
    const upstreamKey = readUpstreamCredential(headers);
    if (upstreamKey === shown || holdsGatewayKey(upstreamKey)) throw new GatewayError("gateway_key_in_authorization");
    if (holdsGatewayKey(url)) throw new GatewayError("gateway_key_misplaced", { detail: "it stands in the URL" });
    return key;
  }

  /** 4: how much of it. */
  function hold(lease: Lease, exchange: Exchange): void {
    exchange.onSettled(({ usage, operation, status }) =>
      lease.release(usage?.total ?? (operation === "chat.completions" && status === 200 ? undefined : 0))
    );
    if (lease.observed !== undefined) exchange.facts.observedLimit = lease.observed;
    exchange.headers = lease.headers;
  }

  /** Steps 2 to 7. */
  async function carry(request: InboundRequest, exchange: Exchange): Promise<Answer> {
    const { headers } = request;
    // 2 Address
    const { url } = request; // HTTP/2 has no Host field: its `:authority` stands here
    const provider = resolveProvider(headers.get("host") ?? (URL.canParse(url) ? new URL(url).host : null));
    exchange.facts.provider = provider.name;
    const resolved = resolveOperation(request.method, url);
    const operation = isPromise(resolved) ? await resolved : resolved;
    exchange.facts.operation = operation.name;
    // 3 Identify
    const shown = readGatewayCredential(headers);
    const found = findGatewayKey(shown, parts.keys, { digest, exchange, clock });
    const key = identify(request, isPromise(found) ? await found : found, { shown, provider: provider.name, exchange });
    if (operation.model !== undefined) admitModel(key, operation.model);
    if (hasLooped(headers)) throw new GatewayError("upstream_loop");
    // 4 Admit
    const subjects = subjectsOf(key, provider.subjects);
    if (subjects.length > 0) {
      const lease = takeLease(parts.limiter, subjects, { exchange, clock });
      hold(isPromise(lease) ? await lease : lease, exchange);
    }
    // 5 Read
    const isRead = operation.name === "chat.completions";
    const bytes = isRead ? await readBody(request, { limits, memory: bodyMemory, clock, exchange }) : null;
    const completion = bytes === null ? undefined : check(bytes, key, { provider, exchange });
    // 6 Forward
    let answer: UpstreamAnswer;
    try {
      if (request.isGone) throw new ClientClosed();
      answer = await forward(
        {
          path: operation.path,
          method: request.method,
          headers: toUpstreamHeaders(headers),
          body: bytes,
          deadlines: shorten(provider.deadlines, headers, completion?.isStream ?? false),
        },
        exchange,
        provider,
      );
    } finally {
      bodyMemory.give(exchange.bytesIn);
    }
    // 7 Relay
    return relay(answer, { request, exchange, provider, completion });
  }

  /** 5: from a parsed view of the bytes what must be known of them. */
  function check(bytes: Uint8Array, key: KeyConfig, { provider: { messages }, exchange }: {
    provider: ProviderConfig;
    exchange: Exchange;
  }): ChatCompletionRequest {
    try {
      const completion = readChatCompletion(parseJson(bytes), messages);
      exchange.facts.model = completion.model;
      exchange.facts.stream = completion.isStream;
      admitModel(key, completion.model);
      if (completion.users.some(holdsGatewayKey)) throw new GatewayError("gateway_key_misplaced", { param: "user" });
      return completion;
    } catch (error) {
      bodyMemory.give(bytes.byteLength);
      throw error;
    }
  }

  /** 7: status and headers at once, the body as it comes; its end settles the exchange. A small answer goes whole. */
  function relay(
    { status, headers, body }: UpstreamAnswer,
    { request, exchange, provider, completion }: {
      request: InboundRequest;
      exchange: Exchange;
      provider: ProviderConfig;
      completion: { choices: number } | undefined;
    },
  ): Answer | Promise<Answer> {
    const isEventStream = (headers.get("content-type") ?? "").toLowerCase().startsWith("text/event-stream");
    const answered = addOwnHeaders(toCallerHeaders(headers, isEventStream), exchange);
    if (body === null || status === 204 || status === 205) {
      body?.cancel();
      exchange.status = status;
      exchange.settle({ outcome: "ok" });
      return { status, headers: answered, body: null };
    }
    const isCompletion = completion !== undefined && status === 200;
    const { writeStallMs } = limits;
    const { deadlines: { idleMs }, keepAliveMs } = provider;
    const isPacked = (headers.get("content-encoding") ?? "") !== "";
    const isSmall = body.isWhole === true || Number(headers.get("content-length") ?? Infinity) <= MAX_WHOLE_BYTES;
    if (!isEventStream && !isPacked && isSmall) {
      return readWhole(body, { exchange, idleMs, clock }).then((whole) => {
        const usage = isCompletion ? readPlainUsage(whole) : undefined;
        if (usage !== undefined) exchange.facts.usage = usage;
        if (request.isGone) throw new ClientClosed(); // nobody gets it
        exchange.status = status;
        exchange.bytesOut = whole.byteLength;
        exchange.settle({ outcome: "ok" });
        return { status, headers: answered, body: whole };
      });
    }
    const scanner = isCompletion && isEventStream ? new EventStreamScanner(completion.choices) : undefined;
    const meter = isCompletion && !isEventStream ? new PlainAnswerMeter() : undefined;
    exchange.status = status;
    const relayed = new Relay(body, { exchange, scanner, meter, idleMs, keepAliveMs, writeStallMs, clock });
    return { status, headers: answered, body: relayed };
  }

  /** The one place where something thrown becomes an answer. */
  function refuse(thrown: unknown, request: InboundRequest, exchange: Exchange): Answer {
    const settlement = toSettlement(thrown);
    if (thrown instanceof ClientClosed) {
      exchange.settle(settlement);
      return { status: 499, headers: {}, body: null };
    }
    const error = GatewayError.is(thrown) ? thrown : new GatewayError("internal_error");
    const answer = toErrorAnswer(error);
    addOwnHeaders(answer.headers, exchange);
    const isLost = error.code === "body_timeout" || !isBodySettled(request, exchange);
    if (isLost) answer.headers.connection = "close";
    exchange.status = answer.status;
    if (error.limit !== undefined) exchange.facts.limit = error.limit;
    exchange.bytesOut = answer.body.length;
    exchange.settle(settlement);
    return answer;
  }

  async function handle(request: InboundRequest): Promise<Answer> {
    // 1 Arrive
    const exchange = new Exchange(clock);
    open.add(exchange);
    const onGone = () => exchange.abort(new ClientClosed());
    let signal: AbortSignal | undefined;
    // A body breaks by itself when the caller leaves; this is for the time in which nothing goes to or fro.
    const cancelWatch = clock.timer(WATCH_CALLER_MS, () => {
      signal = request.signal;
      if (signal?.aborted) onGone();
      signal?.addEventListener("abort", onGone);
    });
    // 8 Settle, whichever way it ends
    exchange.onSettled((record) => {
      open.delete(exchange);
      if (open.size === 0) onIdle();
      cancelWatch();
      signal?.removeEventListener("abort", onGone);
      for (const observer of parts.observers) {
        try {
          dropRejection(observer.settled(record));
        } catch {
          // An observer's failure is its own.
        }
      }
    });
    try {
      exchange.trace = parts.tracer?.begin(exchange, request);
      if (isClosing) throw new GatewayError("gateway_draining");
      if (open.size > limits.maxExchanges) throw new GatewayError("gateway_overloaded");
      return await carry(request, exchange);
    } catch (thrown) {
      return refuse(thrown, request, exchange);
    }
  }

  return {
    ...toHandler(handle),
    get isReady() {
      return isReady;
    },
    get openExchanges() {
      return open.size;
    },
    get openStreams() {
      return Array.from(open).filter(({ facts }) => facts.stream === true).length;
    },
    get replicas() {
      return providers.flatMap(({ name, replicas }) =>
        replicas.report(clock.monotonic()).map((each) => ({ provider: name, ...each }))
      );
    },
    drain() {
      isReady = false;
    },
    async close(limitMs = config.drain.limitMs) {
      isReady = false;
      isClosing = true;
      if (open.size === 0) return;
      const idle = new Promise<void>((resolve) => onIdle = resolve);
      const cancelTimer = clock.timer(limitMs, () => {
        for (const exchange of open) exchange.abort(new GatewayError("gateway_draining"));
      });
      await idle;
      cancelTimer();
    },
  };
}

/** What every answer carries. */
function addOwnHeaders(answered: Record<string, string>, exchange: Exchange): Record<string, string> {
  Object.assign(answered, exchange.headers);
  answered["x-request-id"] = exchange.id;
  answered["server-timing"] = exchange.serverTiming;
  return answered;
}

/** Whether the connection can go on after a refusal: what is left of the body, if anything, is small. */
function isBodySettled({ body, headers }: InboundRequest, exchange: Exchange): boolean {
  if (body === null || exchange.bytesIn > 0) return true;
  return Number(headers.get("content-length") ?? Infinity) <= SMALL_BODY_BYTES;
}
