/**
 * The flow of a request, in eight steps: arrive, address, identify, admit, read, forward, relay, settle. Each is a
 * function of its own; one `catch` turns whatever they throw into an answer.
 *
 * @module
 */
import { type Digest, holdsGatewayKey } from "./keys/key_format.ts";
import { findGatewayKey, type KeyStore } from "./keys/key_store.ts";
import { acquireLease, type Lease, type Limiter, type LimitSubject } from "./limits/limiter.ts";
import type { ResolveKey } from "./keys/key_resolver.ts";
import { admitKey, admitModel, allowsModel } from "./keys/policy.ts";
import type { Config } from "./config/config.ts";
import { GatewayError, toErrorAnswer } from "./errors/gateway_error.ts";
import type { GatewayRequest, GatewayResponse } from "./http/message.ts";
import type { Clock } from "./exchange/clock.ts";
import { dropRejection, type ExchangeObserver, type Tracer } from "./exchange/observer.ts";
import { ClientClosed, toSettlement } from "./exchange/settlement.ts";
import { Exchange } from "./exchange/exchange.ts";
import { parseJson, readBody } from "./inbound/body.ts";
import type { BodyMemory, RequestBody } from "./inbound/body_memory.ts";
import { type ChatCompletionRequest, readChatCompletion } from "./operations/chat_completion.ts";
import { readGatewayCredential, readUpstreamCredential } from "./inbound/credentials.ts";
import type { HostTable } from "./inbound/host.ts";
import { type Operation, resolveOperation } from "./operations/router.ts";
import type { KeyConfig } from "./config/key.ts";
import type { OpenExchanges } from "./exchange/open_exchanges.ts";
import type { ProviderConfig } from "./config/provider.ts";
import { EventStreamScanner } from "./dialects/openai_chat.ts";
import { forward, type ForwardParts, shorten } from "./upstream/forward.ts";
import { hasLooped, toCallerHeaders, toUpstreamHeaders } from "./upstream/headers.ts";
import { filterModelList } from "./upstream/model_list.ts";
import { MAX_WHOLE_BYTES, readWhole, Relay } from "./upstream/relay.ts";
import type { UpstreamAnswer } from "./upstream/transport.ts";
import { PlainAnswerMeter, readPlainUsage } from "./dialects/openai_usage.ts";

/** A provider, and the parts that calls to it use. */
export interface Provider extends ProviderConfig, ForwardParts {
  /** Its name in the config. */
  readonly name: string;
  /** The provider as a subject of limits: one entry if it has limits for all keys together, else none. */
  readonly subjects: readonly LimitSubject[];
}

/** The parts of a gateway that its steps use. */
export interface Pipeline {
  readonly resolveProvider: HostTable<Provider>;
  readonly keys: KeyStore | ResolveKey;
  readonly limiter: Limiter;
  readonly digest: Digest;
  readonly observers: readonly ExchangeObserver[];
  readonly tracer: Tracer | undefined;
  readonly clock: Clock;
  readonly limits: Config["limits"];
  readonly bodies: BodyMemory;
  readonly open: OpenExchanges;
  /** Refuses a request if the gateway is closing, or has too many open exchanges. @throws {GatewayError} */
  assertWelcome(): void;
}

/** One request on its way through the steps. */
interface Flow {
  readonly request: GatewayRequest;
  readonly exchange: Exchange;
  readonly gateway: Pipeline;
}

/** A body of at most this size that nobody read is drained by the server; a larger one costs its connection. Bytes. */
const SMALL_BODY_BYTES = 65536;
/** The age at which an open exchange begins to watch whether its caller leaves. Milliseconds. */
const WATCH_CALLER_MS = 20;

/**
 * Answers a request.
 *
 * @param request What arrived
 * @param gateway The parts
 * @returns The answer, whatever happened. Never rejects
 */
export async function answer(request: GatewayRequest, gateway: Pipeline): Promise<GatewayResponse> {
  const flow = arrive(request, gateway);
  try {
    flow.exchange.trace = gateway.tracer?.begin(flow.exchange, request);
    gateway.assertWelcome();
    return await run(flow);
  } catch (thrown) {
    return refuse(thrown, flow);
  }
}

/**
 * Runs steps 2 to 7. Steps that need not wait are no async functions: on Node five of them took about a tenth of a call,
 * 0.92 against 1.02 of the build before, one run each of noisy starts (2026-11-22, `bench --against`).
 */
async function run(flow: Flow): Promise<GatewayResponse> {
  const { request: { method, url, headers }, exchange, gateway: { keys, limiter, digest, clock } } = flow;
  const provider = address(flow); // 2
  const operation = await resolveOperation(method, url);
  exchange.facts.operation = operation.name;
  const presented = readGatewayCredential(headers); // 3
  const found = await findGatewayKey(presented, keys, { digest, exchange, clock });
  const key = identify(found, { presented, provider, operation }, flow);
  const subjects = subjectsOf(key, provider); // 4
  if (subjects.length > 0) hold(await acquireLease(limiter, subjects, { exchange, clock }), exchange);
  const { body, completion } = await read(operation, { key, provider }, flow); // 5
  const answered = await send(operation, { provider, body, completion }, flow); // 6
  return await relay(answered, { operation, key, provider, completion }, flow); // 7; its end is 8
}

/** 1: opens the exchange, and sees to its settlement (8). */
function arrive(request: GatewayRequest, gateway: Pipeline): Flow {
  const { clock, open, observers } = gateway;
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
  exchange.onSettled((record) => {
    open.delete(exchange);
    cancelWatch();
    signal?.removeEventListener("abort", onGone);
    for (const observer of observers) {
      try {
        dropRejection(observer.settled(record));
      } catch {
        // An observer's failure is its own.
      }
    }
  });
  return { request, exchange, gateway };
}

/** 2: finds the provider by Host, which is checked before the URL is looked at; the operation follows from that. */
function address({ request: { url, headers }, exchange, gateway }: Flow): Provider {
  // HTTP/2 has no Host field: its `:authority` stands in the URL.
  const provider = gateway.resolveProvider(headers.get("host") ?? (URL.canParse(url) ? new URL(url).host : null));
  exchange.facts.provider = provider.name;
  return provider;
}

/**
 * 3: checks the gateway key first, since a caller without a valid one must learn nothing more; then what the key
 * allows, and the credential for the provider.
 */
function identify(
  found: KeyConfig | undefined,
  { presented, provider, operation }: { presented: string; provider: Provider; operation: Operation },
  { request: { url, headers }, exchange, gateway: { clock } }: Flow,
): KeyConfig {
  if (found !== undefined) exchange.facts.keyId = found.id;
  const key = admitKey(found, provider.name, clock.now());
  const upstreamKey = readUpstreamCredential(headers);
  if (upstreamKey === presented || holdsGatewayKey(upstreamKey)) throw new GatewayError("gateway_key_in_authorization");
  if (holdsGatewayKey(url)) throw new GatewayError("gateway_key_misplaced", { detail: "it stands in the URL" });
  if (operation.model !== undefined) admitModel(key, operation.model);
  if (hasLooped(headers)) throw new GatewayError("upstream_loop");
  return key;
}

/** 4: names the subjects whose limits count: the key and the provider. None of the body was read so far. */
function subjectsOf({ id, limits }: KeyConfig, { subjects }: Provider): readonly LimitSubject[] {
  return limits === undefined ? subjects : [{ name: `key:${id}`, limits }, ...subjects];
}

/** 4: holds a lease of these limits until the exchange settles. */
function hold(lease: Lease, exchange: Exchange): void {
  exchange.onSettled(({ usage, operation, status }) =>
    lease.release(usage?.total ?? (operation === "chat.completions" && status === 200 ? undefined : 0))
  );
  if (lease.observed !== undefined) exchange.facts.observedLimit = lease.observed;
  exchange.headers = lease.headers;
}

/** Facts from a chat completion's body that later steps need. */
type CheckedCompletion = Pick<ChatCompletionRequest, "isStream" | "choices">;

/** A body that was read, and the facts that later steps need of it; neither where the operation has no body. */
interface ReadRequest {
  readonly body: RequestBody | null;
  readonly completion: CheckedCompletion | undefined;
}

/** 5: reads the body's bytes, and from a parsed view the facts that are needed. Nothing large of the view is kept. */
async function read(
  operation: Operation,
  { key, provider }: { key: KeyConfig; provider: Provider },
  { request, exchange, gateway: { limits, bodies, clock } }: Flow,
): Promise<ReadRequest> {
  if (operation.name !== "chat.completions") return { body: null, completion: undefined };
  const body = await readBody(request, { limits, memory: bodies, owner: key.id, clock, exchange });
  const view = parseJson(body.bytes ?? new Uint8Array());
  const { model, isStream, choices, users } = readChatCompletion(view, provider.messages);
  exchange.facts.model = model;
  if (isStream !== undefined) exchange.facts.stream = isStream;
  admitModel(key, model);
  if (users.some(holdsGatewayKey)) throw new GatewayError("gateway_key_misplaced", { param: "user" });
  return { body, completion: { isStream, choices } };
}

/** 6: forwards the original bytes, with the headers that may be forwarded. */
function send(
  { path }: Operation,
  { provider, body, completion }: ReadRequest & { provider: Provider },
  { request: { method, headers, isGone }, exchange }: Flow,
): Promise<UpstreamAnswer> {
  if (isGone) throw new ClientClosed();
  const mayStream = completion !== undefined && (completion.isStream ?? true);
  const deadlines = shorten(provider.deadlines, headers, mayStream);
  return forward({ path, method, headers: toUpstreamHeaders(headers), body, deadlines }, exchange, provider);
}

/** The request that an answer belongs to. */
interface Answered {
  readonly operation: Operation;
  readonly key: KeyConfig;
  readonly provider: Provider;
  readonly completion: CheckedCompletion | undefined;
}

/**
 * 7: relays status and headers at once and the body as it comes; its end settles the exchange (8). A small body is sent
 * as a whole.
 */
async function relay(
  answered: UpstreamAnswer,
  to: Answered,
  { request, exchange, gateway }: Flow,
): Promise<GatewayResponse> {
  const { operation, key, provider: { deadlines, keepAliveMs }, completion } = to;
  const { clock, limits: { writeStallMs } } = gateway;
  const { idleMs, firstEventMs } = deadlines;
  const isLimited = operation.name === "models.list" && key.models !== undefined;
  const mayUse = (model: string) => allowsModel(key, model);
  const { status, headers, body } = isLimited
    ? await filterModelList(answered, mayUse, { exchange, idleMs, clock })
    : answered;
  const isEventStream = (headers.get("content-type") ?? "").toLowerCase().startsWith("text/event-stream");
  const own = addOwnHeaders(toCallerHeaders(headers, isEventStream), exchange);
  if (completion !== undefined) exchange.facts.stream ??= isEventStream;
  if (body === null || status === 204 || status === 205) {
    body?.cancel();
    exchange.status = status;
    exchange.settle({ outcome: "ok" });
    return { status, headers: own, body: null };
  }
  const isCompletion = completion !== undefined && status === 200;
  const isPacked = (headers.get("content-encoding") ?? "") !== "";
  const isSmall = body.isWhole === true || Number(headers.get("content-length") ?? Infinity) <= MAX_WHOLE_BYTES;
  if (!isEventStream && !isPacked && isSmall) {
    const whole = await readWhole(body, { exchange, idleMs, clock });
    const usage = isCompletion ? readPlainUsage(whole) : undefined;
    if (usage !== undefined) exchange.facts.usage = usage;
    if (request.isGone) throw new ClientClosed(); // nobody gets it
    exchange.status = status;
    exchange.bytesOut = whole.byteLength;
    exchange.settle({ outcome: "ok" });
    return { status, headers: own, body: whole };
  }
  const scanner = isCompletion && isEventStream ? new EventStreamScanner(completion.choices) : undefined;
  const meter = isCompletion && !isEventStream ? new PlainAnswerMeter() : undefined;
  exchange.status = status;
  const times = { idleMs, firstEventMs, keepAliveMs, writeStallMs, clock };
  return { status, headers: own, body: new Relay(body, { exchange, scanner, meter, ...times }) };
}

/** Turns whatever was thrown into an answer; the only place that does. */
function refuse(thrown: unknown, { request, exchange }: Flow): GatewayResponse {
  const settlement = toSettlement(thrown);
  if (thrown instanceof ClientClosed) {
    exchange.settle(settlement);
    return { status: 499, headers: {}, body: null };
  }
  const error = GatewayError.is(thrown) ? thrown : new GatewayError("internal_error");
  const refusal = toErrorAnswer(error);
  addOwnHeaders(refusal.headers, exchange);
  const isLost = error.code === "body_timeout" || !isBodySettled(request, exchange);
  if (isLost) refusal.headers.connection = "close";
  exchange.status = refusal.status;
  if (error.limit !== undefined) exchange.facts.limit = error.limit;
  exchange.bytesOut = refusal.body.length;
  exchange.settle(settlement);
  return refusal;
}

/** Adds the gateway's own headers, which every answer carries. */
function addOwnHeaders(headers: Record<string, string>, exchange: Exchange): Record<string, string> {
  Object.assign(headers, exchange.headers);
  headers["x-request-id"] = exchange.id;
  headers["server-timing"] = exchange.serverTiming;
  return headers;
}

/** Returns whether the connection can be used again after a refusal: the unread rest of the body is small, or none. */
function isBodySettled({ body, headers }: GatewayRequest, exchange: Exchange): boolean {
  if (body === null || exchange.bytesIn > 0) return true;
  return Number(headers.get("content-length") ?? Infinity) <= SMALL_BODY_BYTES;
}
