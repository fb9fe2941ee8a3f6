/**
 * The flow of a request, in eight steps: arrive, address, identify, admit, read, forward, relay,
 * settle. Each is a function of its own; one `catch` turns whatever they throw into an answer.
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
import type { AskedUsage, Dialect } from "./dialects/dialect.ts";
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
  isSuccess,
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
import { answerDurable, askedDurable, enterDurable } from "./steps/durable.ts";
import {
  assertNoKeyInCredentials,
  assertNoKeyInFields,
  assertNoKeyInHeaders,
  assertNoKeyInUrl,
  withoutKeys,
} from "./steps/misplaced_keys.ts";
import { answerRecorded } from "./steps/recorded_answer.ts";
import { askForUsage, CONTENT_TYPES, readFacts } from "./steps/request_body.ts";
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
   * Refuses a request if the gateway is closing, or has too many open exchanges. @throws
   * {GatewayError}
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

/** The call that a request asks for, with the facts of its body. */
interface Call {
  readonly provider: Provider;
  readonly operation: ResolvedOperation;
  readonly key: KeyConfig;
  /** The body that was read; `null` where the operation has none. */
  readonly body: RequestBody | null;
  readonly facts: RequestFacts;
  /** The usage that the gateway has asked for and the caller has not. */
  readonly askedUsage: AskedUsage | undefined;
}

/**
 * Answers a request.
 *
 * @param request What arrived
 * @param gateway The parts
 * @returns The answer, whatever happened. Never rejects
 */
export async function answer(request: GatewayRequest, gateway: Pipeline): Promise<GatewayResponse> {
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
  const { request: { method, url, headers }, exchange, gateway } = flow;
  const { keys, digest, clock, identity } = gateway;
  const { provider, prefix } = address(flow); // 2
  const operation = await resolveOperation(method, prefix === "" ? url : withoutPrefix(url));
  const isKnown = operation.isOwn ?? operation.group !== undefined;
  if (!isKnown && !provider.operations.includes("all")) throw toUnknownError(operation);
  flow.dialect = operation.dialect;
  exchange.facts.operation = operation.name;
  exchange.facts.isMetered = operation.cost === "tokens";
  if (operation.genAi !== undefined) exchange.facts.genAi = operation.genAi;
  const presentedKey = flow.presentedKey = readGatewayCredential(headers, provider); // 3
  const storedKey = await findGatewayKey(presentedKey, keys, { digest, exchange, clock, identity });
  const key = identify({ presentedKey, storedKey }, { provider, operation }, flow);
  gateway.open.share(exchange, key.id, provider.hasOthers ? provider.name : undefined);
  if (operation.isOwn) {
    return await answerRecorded({ provider, key, presentedKey }, operation, flow);
  }
  const subjects = subjectsOf(key, provider, gateway); // 4
  const isMetered = operation.cost === "tokens" && subjects.some(limitsAmounts);
  const hasBody = flow.request.body !== null;
  const admission: Admission = { subjects, isMetered, hasBody, isWhole: false, lease: undefined };
  const durable = key.durable ?? provider.durable;
  const asked = durable ? askedDurable(flow.request, operation, durable) : undefined;
  const caller = { provider, operation, key, presentedKey };
  if (asked !== undefined) await enterDurable(asked, caller, admission, flow);
  else if (subjects.length > 0) await enter(admission, flow);
  const call = await read(caller, flow); // 5
  const carryOn = (flow: Flow) => carry(call, admission, flow);
  if (asked === undefined) return await carryOn(flow);
  return await answerDurable(asked, { ...call, presentedKey }, { admission, carry: carryOn }, flow);
}

/** 4, for all that the limits count of the call once its body was read, then 6 and 7. */
async function carry(call: Call, admission: Admission, flow: Flow): Promise<GatewayResponse> {
  if (call.operation.cost === "tokens") await reserve(admission, call, flow);
  else if (!admission.isWhole) await enterWhole(admission, flow);
  return relay(await send(call, admission, flow), call, flow);
}

/**
 * 2: finds the provider by Host, which is checked before the URL is looked at, and by the path
 * before `/v1`.
 */
function address({ request: { url, headers }, exchange, gateway }: Flow): Address<Provider> {
  // HTTP/2 has no Host field: its `:authority` stands in the URL.
  const found = gateway.resolveProvider(
    headers.get("host") ?? (URL.canParse(url) ? new URL(url).host : null),
    url,
  );
  exchange.facts.provider = found.provider.name;
  // On every path, and before the key is checked: to any other status agents (Codex) try to connect
  // for seconds.
  if (headers.get("upgrade")?.toLowerCase().includes("websocket")) {
    throw new GatewayError("websocket_not_supported", {
      headers: { upgrade: "HTTP/1.1", connection: "upgrade" },
    });
  }
  return found;
}

/**
 * 3: checks the gateway key before all else, since a caller without a valid one must learn nothing
 * more.
 */
function identify(
  { presentedKey, storedKey }: { presentedKey: string; storedKey: KeyConfig | undefined },
  { provider, operation }: Pick<Call, "provider" | "operation">,
  flow: Flow,
): KeyConfig {
  const { request: { url, headers }, exchange, gateway: { clock } } = flow;
  if (storedKey !== undefined) exchange.facts.keyId = storedKey.id;
  const key = admitKey(storedKey, provider.name, clock.now());
  flow.credentials = readUpstreamCredentials(headers, provider, presentedKey);
  assertNoKeyInCredentials(flow.credentials, provider, flow);
  assertNoKeyInUrl(url, flow);
  if (!operation.isOwn) admitOperation(key, operation, provider);
  if (operation.modelId !== undefined) admitModel(key, operation.modelId);
  if (hasLooped(headers)) throw new GatewayError("upstream_loop");
  return key;
}

/**
 * 5: reads the body's bytes, and from a parsed view the facts that are needed. Nothing large of the
 * view is kept.
 */
async function read(
  { provider, operation, key }: Pick<Call, "provider" | "operation" | "key">,
  flow: Flow,
): Promise<Call> {
  const { request, exchange, gateway: { limits, bodies, clock } } = flow;
  const isBodiless = operation.body === "none" ||
    (request.body === null && operation.body === "any");
  if (isBodiless) {
    return { provider, operation, key, body: null, facts: NO_FACTS, askedUsage: undefined };
  }
  const types = CONTENT_TYPES[operation.body];
  const body = await readBody(request, {
    limits,
    types,
    memory: bodies,
    owner: key.id,
    clock,
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
  const askedUsage = provider.usage === "ask" ? askForUsage(body, operation, facts) : undefined;
  return { provider, operation, key, body, facts, askedUsage };
}

/**
 * 6: forwards the original bytes, but for usage that was asked for, with the headers that may be
 * forwarded.
 */
function send(
  { provider, operation: { path }, key, body, facts: { isStream } }: Call,
  { subjects }: Admission,
  flow: Flow,
): Promise<UpstreamResponse> {
  const {
    request: { method, url, headers, isGone },
    exchange,
    gateway: { listsWithheld },
    credentials,
  } = flow;
  if (isGone) throw new ClientClosed();
  // A call that goes on when its caller leaves has the deadlines of the provider alone.
  const goesOn = exchange.goesOn || exchange.reader !== undefined;
  const deadlines = goesOn
    ? provider.deadlines
    : shorten(provider.deadlines, headers, isStream ?? true);
  const isModelBound = key.models !== undefined ||
    subjects.some(({ limits }) => limits.spend !== undefined);
  const sent = toUpstreamHeaders(headers, provider.headerRules, credentials, isModelBound);
  assertNoKeyInHeaders(sent, flow);
  if (listsWithheld) {
    exchange.facts.withheld = { request: withoutKeys(listWithheld(headers, sent), flow) };
  }
  return forward(
    { path: path + toQuery(url), method, headers: sent, body, deadlines },
    exchange,
    provider,
  );
}

/** Content types of answers that state nothing. */
const BINARY = /^(?:audio|image|video)\//;

/**
 * 7: passes status and headers on at once and the body as it comes; its end settles the exchange
 * (8).
 */
async function relay(upstream: UpstreamResponse, call: Call, flow: Flow): Promise<GatewayResponse> {
  const { operation, key, provider: { deadlines: { idleMs }, headerRules } } = call;
  const { exchange, gateway: { clock, listsWithheld } } = flow;
  const isHead = flow.request.method === "HEAD";
  const isLimited = operation.model === "answer" && key.models !== undefined && !isHead;
  const { status, headers, body } = isLimited
    ? await filterModelList(upstream, (model) => allowsModel(key, model), {
      exchange,
      idleMs,
      clock,
    })
    : upstream;
  const type = (headers.get("content-type") ?? "").toLowerCase();
  const isEvents = type.startsWith("text/event-stream");
  const crossed = toCallerHeaders(headers, isEvents, headerRules);
  if (listsWithheld) {
    exchange.facts.withheld = {
      ...exchange.facts.withheld,
      response: listWithheld(headers, crossed),
    };
  }
  const own = exchange.addHeaders(crossed);
  if (operation.body !== "none") exchange.facts.stream ??= isEvents;
  const isMetered = operation.cost === "tokens" && isSuccess(status) && !BINARY.test(type);
  if (!isMetered) exchange.endWithCaller();
  if (body === null || status === 204 || status === 205 || isHead) {
    body?.cancel();
    if (isMetered) exchange.outputTokens = 0;
    return finish({ status, headers: own, body: null }, exchange);
  }
  const dialect = isEvents || !type.startsWith("text/") ? operation.dialect : OPAQUE; // a text may be its caller's words
  if (!isEvents && isSmall(headers, body)) {
    const whole = await readWhole(body, { exchange, idleMs, clock });
    const usage = isMetered ? dialect.readUsage(whole) : undefined;
    if (usage !== undefined) exchange.facts.usage = usage;
    else if (isMetered) exchange.outputTokens = dialect.countOutput(whole);
    const left = flow.request.isGone ? new ClientClosed() : exchange.leftFor;
    exchange.isReadOut = left !== undefined;
    if (left !== undefined) throw left; // nobody gets it
    return finish({ status, headers: own, body: whole }, exchange);
  }
  exchange.status = status;
  return { status, headers: own, body: watch(body, { isMetered, isEvents, dialect }, call, flow) };
}

/**
 * 7: watches an answer on its way: a stream of events for its end, and either kind for the tokens
 * that it states.
 */
function watch(
  body: AnyBody,
  { isMetered, isEvents, dialect }: { isMetered: boolean; isEvents: boolean; dialect: Dialect },
  { provider: { deadlines, keepAliveMs }, facts: { choices }, askedUsage }: Call,
  { exchange, gateway: { clock, limits: { writeStallMs } } }: Flow,
): PushedBody {
  const scanner = isEvents && isSuccess(exchange.status)
    ? dialect.createScanner(choices)
    : undefined;
  const meter = isMetered && !isEvents ? dialect.createMeter() : undefined;
  const options = {
    exchange,
    scanner,
    meter,
    isMetered,
    ...deadlines,
    keepAliveMs,
    writeStallMs,
    clock,
  };
  const relay = new RelayedBody(body, options);
  return askedUsage === undefined || scanner === undefined
    ? relay
    : new UsageChunkFilter(relay, exchange, askedUsage);
}

/** Turns whatever was thrown into an answer; the only place that does. */
function refuse(thrown: unknown, { request, exchange, dialect }: Flow): GatewayResponse {
  const settlement = toSettlement(thrown);
  if (thrown instanceof ClientClosed) {
    return finish({ status: 499, headers: {}, body: null }, exchange, settlement);
  }
  const error = GatewayError.is(thrown) ? thrown : new GatewayError("internal_error");
  const refusal = toErrorResponse(
    error,
    (dialect === OPAQUE ? dialectOfCaller(request) : dialect).toErrorBody(error),
  );
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
