/**
 * The flow of a request, in eight steps: arrive, address, identify, admit, read, forward, relay,
 * settle. Each is a function of its own; one `catch` turns all that they throw into an answer.
 *
 * @module
 */
import {
  type Admission,
  type AdmissionParts,
  enter,
  enterWhole,
  reserve,
  subjectsOf,
} from "./steps/admission.ts";
import type { Config } from "./config/config.ts";
import type { KeyConfig } from "./config/key.ts";
import type { ProviderConfig } from "./config/provider.ts";
import type { Dialect, UsageOptIn } from "./dialects/dialect.ts";
import { OPAQUE } from "./dialects/opaque.ts";
import { GatewayError, toErrorResponse } from "./errors/gateway_error.ts";
import { ClientClosed, type Exchange, type Settlement, toSettlement } from "./exchange/exchange.ts";
import type { ExchangeObserver, Tracer } from "./exchange/observer.ts";
import type { OpenExchanges } from "./exchange/open_exchanges.ts";
import {
  type AnyBody,
  type GatewayRequest,
  type GatewayResponse,
  isDrainable,
  type PushedBody,
} from "./http/message.ts";
import { type BodyMemory, readBody, type RequestBody } from "./inbound/body.ts";
import {
  type Credentials,
  readGatewayCredential,
  readUpstreamCredentials,
} from "./inbound/credentials.ts";
import { type Address, type HostTable, withoutPrefix } from "./inbound/host.ts";
import type { DurableExchanges } from "./durable/durable_exchanges.ts";
import type { Digest } from "./keys/key_format.ts";
import { findGatewayKey, type KeyResolver } from "./keys/key_resolver.ts";
import type { KeyStore } from "./keys/key_store.ts";
import type { CallerTokens } from "./keys/identity/verifier.ts";
import {
  admitKey,
  admitModel,
  admitOperation,
  admitOtherModels,
  allowsModel,
} from "./keys/policy.ts";
import { limitsAmounts, type LimitSubject } from "./limits/limiter.ts";
import {
  dialectOfCaller,
  type ResolvedOperation,
  resolveOperation,
  toQuery,
  toUnknownError,
} from "./operations/router.ts";
import { NO_FACTS, type RequestFacts } from "./operations/request_facts.ts";
import { answerDurable, askedDurable, enterDurable } from "./steps/durable/recorded_call.ts";
import {
  assertNoKeyInCredentials,
  assertNoKeyInFields,
  assertNoKeyInHeaders,
  assertNoKeyInUrl,
  withoutKeys,
} from "./steps/misplaced_keys.ts";
import { answerRecorded } from "./steps/durable/recording_request.ts";
import { askForUsage, CONTENT_TYPES, readFacts } from "./steps/request_body.ts";
import { type AnswerKind, createWatch, noteTokens, toAnswerKind } from "./upstream/answer_kind.ts";
import { forward, type ForwardParts, shorten } from "./upstream/forward.ts";
import {
  hasLooped,
  type HeaderRules,
  listWithheld,
  toCallerHeaders,
  toUpstreamHeaders,
} from "./upstream/headers.ts";
import { filterModelList } from "./upstream/model_list.ts";
import { isSmall, readWhole } from "./upstream/read_whole.ts";
import { RelayedBody } from "./upstream/relay.ts";
import type { UpstreamResponse } from "./upstream/transport.ts";
import { UsageChunkFilter } from "./upstream/usage_chunk.ts";

/** A provider, and the parts that calls to it use. */
export interface Provider extends Omit<ProviderConfig, "transport">, ForwardParts {
  /** Its name in the config. */
  readonly name: string;
  /** True if the gateway has other providers too. */
  readonly hasOthers: boolean;
  /**
   * The provider as a subject of limits: one entry if it has limits for all keys together, else
   * none.
   */
  readonly subjects: readonly LimitSubject[];
  /** The headers that may cross, to it and back. */
  readonly headerRules: HeaderRules;
}

/** The parts of a gateway that its steps use. */
export interface Pipeline extends AdmissionParts {
  readonly resolveProvider: HostTable<Provider>;
  readonly keys: KeyStore | KeyResolver;
  /** Verifies identity tokens; `undefined` where none are accepted. */
  readonly identity: CallerTokens | undefined;
  /** Tells whether a text that is to leave the gateway contains a credential for it. */
  readonly holdsKey: (text: string) => boolean;
  readonly digest: Digest;
  /** Durable exchanges; `undefined` where no call can be recorded. */
  readonly durable: DurableExchanges | undefined;
  readonly observers: readonly ExchangeObserver["settled"][];
  readonly tracer: Tracer | undefined;
  readonly limits: Config["limits"];
  readonly bodies: BodyMemory;
  readonly open: OpenExchanges;
  /** True if an observer wants the names of headers that were withheld. */
  readonly listsWithheld: boolean;
  /**
   * Refuses a request if the gateway is closing, or has too many open exchanges.
   *
   * @throws {GatewayError} `gateway_draining`, `gateway_overloaded`
   */
  assertWelcome(): void;
}

/** One request on its way through the steps. */
interface Flow {
  readonly request: GatewayRequest;
  readonly exchange: Exchange;
  readonly gateway: Pipeline;
  /** Dialect of an answer that the gateway makes itself. */
  dialect: Dialect;
  /** Headers with the caller's key at the provider; none before step 3. */
  credentials: Credentials;
  /** The caller's gateway key; empty before step 3. */
  presentedKey: string;
}

/** A caller with a key, and the operation that it asks for. */
interface Caller {
  readonly provider: Provider;
  readonly operation: ResolvedOperation;
  readonly key: KeyConfig;
  /** The gateway key in plain text. */
  readonly presentedKey: string;
}

/** A call that is admitted, with the facts of its body. */
interface Call extends Caller {
  readonly admission: Admission;
  /** The body that was read; `null` where the operation has none. */
  readonly body: RequestBody | null;
  readonly facts: RequestFacts;
  /** The usage that the gateway has asked for and the caller has not. */
  readonly usageOptIn: UsageOptIn | undefined;
}

/** Answers a request, whatever happens. Never rejects. */
export async function handleRequest(
  request: GatewayRequest,
  gateway: Pipeline,
): Promise<GatewayResponse> {
  const exchange = gateway.open.begin(request, gateway); // 1
  const flow: Flow = {
    request,
    exchange,
    gateway,
    dialect: OPAQUE,
    credentials: {},
    presentedKey: "",
  };
  try {
    exchange.trace = gateway.tracer?.begin(exchange, request);
    gateway.assertWelcome();
    return await run(flow);
  } catch (thrown) {
    return refuse(thrown, flow);
  }
}

/**
 * Runs steps 2 to 7; the end of the answer is 8. Steps that need not wait are no async functions:
 * four of them more, and dates in the log that V8 prints, took about a tenth of a plain call on
 * Node (2026-11-22, two builds in turns).
 */
async function run(flow: Flow): Promise<GatewayResponse> {
  const { request, exchange, gateway } = flow;
  const { provider, prefix } = address(flow); // 2
  const { method, url } = request;
  const operation = await resolveOperation(method, prefix === "" ? url : withoutPrefix(url));
  noteOperation(operation, provider, flow);
  const presentedKey = flow.presentedKey = readGatewayCredential(request.headers, provider); // 3
  const { keys, digest, clock, identity } = gateway;
  const storedKey = await findGatewayKey(presentedKey, keys, { digest, exchange, clock, identity });
  const key = identify(storedKey, provider, operation, flow);
  const caller: Caller = { provider, operation, key, presentedKey };
  gateway.open.share(exchange, key.id, provider.hasOthers ? provider.name : undefined);
  if (operation.isOwn) return await answerRecorded(caller, operation, flow);
  const admission = toAdmission(caller, flow); // 4
  const durable = key.durable ?? provider.durable;
  const asked = durable ? askedDurable(request, operation, durable) : undefined;
  if (asked !== undefined) await enterDurable(asked, caller, admission, flow);
  else if (admission.subjects.length > 0) await enter(admission, flow);
  const call = await read(caller, admission, flow); // 5
  if (asked === undefined) return await carry(call, flow);
  return await answerDurable(asked, call, {
    admission,
    carry: (flow: Flow) => carry(call, flow),
  }, flow);
}

/** 4, for all that the limits count of the call once its body was read, then 6 and 7. */
async function carry(call: Call, flow: Flow): Promise<GatewayResponse> {
  const { admission, operation } = call;
  if (operation.cost === "tokens") await reserve(admission, call, flow);
  else if (!admission.isWhole) await enterWhole(admission, flow);
  return relay(await send(call, flow), call, flow);
}

/**
 * 2: finds the provider by Host, which is checked before the URL is looked at, and by the path
 * before `/v1`.
 */
function address(flow: Flow): Address<Provider> {
  const { url, headers } = flow.request;
  // HTTP/2 has no Host field: its `:authority` stands in the URL.
  const host = headers.get("host") ?? (URL.canParse(url) ? new URL(url).host : null);
  const found = flow.gateway.resolveProvider(host, url);
  flow.exchange.facts.provider = found.provider.name;
  // On every path, and before the key is checked: to any other status agents (Codex) try to connect
  // for seconds.
  if (headers.get("upgrade")?.toLowerCase().includes("websocket")) {
    throw new GatewayError("websocket_not_supported", {
      headers: { upgrade: "HTTP/1.1", connection: "upgrade" },
    });
  }
  return found;
}

/** 2: notes the operation, unless it is unknown and the provider takes known ones alone. */
function noteOperation(operation: ResolvedOperation, provider: Provider, flow: Flow): void {
  const isKnown = operation.isOwn ?? operation.group !== undefined;
  if (!isKnown && !provider.operations.includes("all")) throw toUnknownError(operation);
  flow.dialect = operation.dialect;
  const { facts } = flow.exchange;
  facts.operation = operation.name;
  facts.isMetered = operation.cost === "tokens";
  if (operation.genAi !== undefined) facts.genAi = operation.genAi;
}

/**
 * 3: checks the gateway key before all else, since a caller without a valid one must learn nothing
 * more.
 */
function identify(
  storedKey: KeyConfig | undefined,
  provider: Provider,
  operation: ResolvedOperation,
  flow: Flow,
): KeyConfig {
  const { url, headers } = flow.request;
  if (storedKey !== undefined) flow.exchange.facts.keyId = storedKey.id;
  const key = admitKey(storedKey, provider.name, flow.gateway.clock.now());
  flow.credentials = readUpstreamCredentials(headers, provider, flow.presentedKey);
  assertNoKeyInCredentials(flow.credentials, provider, flow);
  assertNoKeyInUrl(url, flow);
  if (!operation.isOwn) admitOperation(key, operation, provider);
  if (operation.modelId !== undefined) admitModel(key, operation.modelId);
  if (hasLooped(headers)) throw new GatewayError("upstream_loop");
  return key;
}

/** 4: names the limits that count the call. */
function toAdmission(caller: Caller, flow: Flow): Admission {
  const subjects = subjectsOf(caller.key, caller.provider, flow.gateway);
  const isMetered = caller.operation.cost === "tokens" && subjects.some(limitsAmounts);
  return {
    subjects,
    isMetered,
    hasBody: flow.request.body !== null,
    isWhole: false,
    lease: undefined,
  };
}

/**
 * 5: reads the body's bytes, and from a parsed view the facts that are needed. Nothing large of the
 * view is kept.
 */
async function read(caller: Caller, admission: Admission, flow: Flow): Promise<Call> {
  const { request, exchange, gateway } = flow;
  const { operation, provider, key } = caller;
  const isBodiless = operation.body === "none" ||
    (request.body === null && operation.body === "any");
  if (isBodiless) {
    return { ...caller, admission, body: null, facts: NO_FACTS, usageOptIn: undefined };
  }
  const body = await readBody(request, {
    limits: gateway.limits,
    types: CONTENT_TYPES[operation.body],
    memory: gateway.bodies,
    owner: key.id,
    clock: gateway.clock,
    exchange,
  });
  const facts = readFacts(body.bytes ?? new Uint8Array(), request, {
    operation,
    messages: provider.messages,
  });
  const { model, otherModels, isStream } = facts;
  assertNoKeyInFields(facts, flow); // first: log, metrics and usage show the model
  if (model !== undefined) exchange.facts.model = model;
  if (isStream !== undefined) exchange.facts.stream = isStream;
  if (operation.model === "body" || operation.model === "optional") admitModel(key, model);
  if (otherModels !== undefined) admitOtherModels(key, otherModels);
  const usageOptIn = provider.usage === "ask" ? askForUsage(body, operation, facts) : undefined;
  return { ...caller, admission, body, facts, usageOptIn };
}

/**
 * 6: forwards the original bytes, but for usage that was asked for, with the headers that may be
 * forwarded.
 */
function send(call: Call, flow: Flow): Promise<UpstreamResponse> {
  const { request, exchange, gateway } = flow;
  const { method, url, isGone } = request;
  const { provider, operation, key, body } = call;
  if (isGone) throw new ClientClosed();
  // A call that goes on when its caller leaves has the deadlines of the provider alone.
  const goesOn = exchange.goesOn || exchange.reader !== undefined;
  const deadlines = goesOn
    ? provider.deadlines
    : shorten(provider.deadlines, request.headers, call.facts.isStream ?? true);
  const isModelBound = key.models !== undefined ||
    call.admission.subjects.some(({ limits }) => limits.spend !== undefined);
  const headers = toUpstreamHeaders(
    request.headers,
    provider.headerRules,
    flow.credentials,
    isModelBound,
  );
  assertNoKeyInHeaders(headers, flow);
  if (gateway.listsWithheld) {
    const withheld = withoutKeys(listWithheld(request.headers, headers), flow);
    exchange.facts.withheld = { request: withheld };
  }
  const path = operation.path + toQuery(url);
  return forward({ path, method, headers, body, deadlines }, exchange, provider);
}

/**
 * 7: passes status and headers on at once and the body as it comes; its end settles the exchange
 * (8).
 */
async function relay(upstream: UpstreamResponse, call: Call, flow: Flow): Promise<GatewayResponse> {
  const { request, exchange, gateway } = flow;
  const { operation, key, provider } = call;
  const isHead = request.method === "HEAD";
  const isCutDown = operation.model === "answer" && key.models !== undefined && !isHead;
  const answer = isCutDown ? await cutModelList(upstream, call, flow) : upstream;
  const { status, headers, body } = answer;
  const kind = toAnswerKind(answer, operation);
  const own = toAnswerHeaders(headers, kind, call, flow);
  if (!kind.isMetered) exchange.endWithCaller();
  const isEmpty = body === null || status === 204 || status === 205 || isHead;
  if (isEmpty) {
    body?.cancel();
    if (kind.isMetered) exchange.outputTokens = 0;
    return finish({ status, headers: own, body: null }, exchange);
  }
  if (!kind.isEvents && isSmall(headers, body)) {
    const whole = await readWhole(body, {
      exchange,
      idleMs: provider.deadlines.idleMs,
      clock: gateway.clock,
    });
    noteTokens(whole, kind, exchange);
    assertWaiting(flow);
    return finish({ status, headers: own, body: whole }, exchange);
  }
  exchange.status = status;
  return { status, headers: own, body: watch(body, kind, call, flow) };
}

/** 7: leaves the models out of a list that the key may not use. */
function cutModelList(
  upstream: UpstreamResponse,
  { key, provider }: Call,
  { exchange, gateway }: Flow,
): Promise<UpstreamResponse> {
  const options = { exchange, idleMs: provider.deadlines.idleMs, clock: gateway.clock };
  return filterModelList(upstream, (model) => allowsModel(key, model), options);
}

/** 7: returns the headers of an answer that its caller gets. */
function toAnswerHeaders(
  headers: UpstreamResponse["headers"],
  { isEvents }: AnswerKind,
  { operation, provider }: Call,
  { exchange, gateway }: Flow,
): Record<string, string> {
  const crossed = toCallerHeaders(headers, isEvents, provider.headerRules);
  const { facts } = exchange;
  if (gateway.listsWithheld) {
    facts.withheld = { ...facts.withheld, response: listWithheld(headers, crossed) };
  }
  if (operation.body !== "none") facts.stream ??= isEvents;
  return exchange.addHeaders(crossed);
}

/** 7: checks that an answer still has a caller. @throws Why it has none */
function assertWaiting({ request, exchange }: Flow): void {
  const left = request.isGone ? new ClientClosed() : exchange.leftFor;
  exchange.isReadOut = left !== undefined;
  if (left !== undefined) throw left;
}

/**
 * 7: watches an answer on its way: a stream of events for its end, and either kind for the tokens
 * that it states.
 */
function watch(body: AnyBody, kind: AnswerKind, call: Call, flow: Flow): PushedBody {
  const { provider, facts, usageOptIn } = call;
  const { exchange, gateway } = flow;
  const { scanner, meter, isMetered } = createWatch(kind, facts.choices);
  const relayed = new RelayedBody(body, {
    exchange,
    scanner,
    meter,
    isMetered,
    ...provider.deadlines,
    keepAliveMs: provider.keepAliveMs,
    writeStallMs: gateway.limits.writeStallMs,
    clock: gateway.clock,
  });
  return usageOptIn === undefined || scanner === undefined
    ? relayed
    : new UsageChunkFilter(relayed, exchange, usageOptIn);
}

/** Turns whatever was thrown into an answer; the only place that does. */
function refuse(thrown: unknown, { request, exchange, dialect }: Flow): GatewayResponse {
  const settlement = toSettlement(thrown);
  if (thrown instanceof ClientClosed) {
    return finish({ status: 499, headers: {}, body: null }, exchange, settlement);
  }
  const error = GatewayError.is(thrown) ? thrown : new GatewayError("internal_error");
  const errorDialect = dialect === OPAQUE ? dialectOfCaller(request) : dialect;
  const refusal = toErrorResponse(error, errorDialect.toErrorBody(error));
  exchange.addHeaders(refusal.headers);
  const isUnread = exchange.bytesIn === 0 && !isDrainable(request);
  if (error.code === "body_timeout" || isUnread) refusal.headers.connection = "close";
  if (error.limit !== undefined) exchange.facts.limit = error.limit;
  return finish(refusal, exchange, settlement);
}

/** 8: settles the exchange of an answer that is there whole. */
function finish(
  answer: GatewayResponse & { readonly body: string | Uint8Array | null },
  exchange: Exchange,
  settlement: Settlement = { outcome: "ok" },
): GatewayResponse {
  exchange.status = answer.status;
  exchange.bytesOut = answer.body?.length ?? 0;
  exchange.settle(settlement);
  return answer;
}
