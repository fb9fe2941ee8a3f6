/**
 * The flow of a request, in eight steps: arrive, address, identify, admit (before and after the
 * body), read, forward, relay, settle. One `catch` turns everything that they throw into an answer.
 *
 * @module
 */
import { type KeyConfig, TOKEN_ID_PREFIX } from "./config/key.ts";
import { OPAQUE } from "./dialects/opaque.ts";
import { GatewayError, toErrorResponse } from "./errors/gateway_error.ts";
import { ClientClosed, type Exchange, type Settlement, toSettlement } from "./exchange/exchange.ts";
import {
  type AnyBody,
  type GatewayRequest,
  type GatewayResponse,
  isDrainable,
  type PushedBody,
} from "./http/message.ts";
import { readBody } from "./inbound/body.ts";
import { readGatewayCredential, readUpstreamCredentials } from "./inbound/credentials.ts";
import { type Address, withoutPrefix } from "./inbound/host.ts";
import { findGatewayKey } from "./keys/key_resolver.ts";
import {
  allowsModel,
  assertModelAllowed,
  assertOperationAllowed,
  assertOtherModelsAllowed,
  requireUsableKey,
} from "./keys/policy.ts";
import { limitsAmounts } from "./limits/limiter.ts";
import {
  dialectOfCaller,
  type ResolvedOperation,
  resolveOperation,
  toQuery,
  toUnknownError,
} from "./operations/router.ts";
import { isCharged } from "./operations/table.ts";
import { admit, admitBeforeBody, assertMetered, subjectsOf } from "./steps/admission.ts";
import { BODILESS, bytesOf, type Call } from "./steps/call.ts";
import { record } from "./steps/durable/recorded_call.ts";
import { answerRecorded } from "./steps/durable/recording_request.ts";
import { wantedRecording } from "./steps/durable/wanted_recording.ts";
import type { Arrival, Flow, Provider, StepParts } from "./steps/flow.ts";
import {
  assertNoKeyInCredentials,
  assertNoKeyInFields,
  assertNoKeyInHeaders,
  assertNoKeyInUrl,
  withoutKeys,
} from "./steps/misplaced_keys.ts";
import { askForUsage, CONTENT_TYPES, readFacts } from "./steps/request_body.ts";
import {
  type AnswerKind,
  createScannerOrMeter,
  noteTokens,
  toAnswerKind,
} from "./upstream/answer_kind.ts";
import { forward, shortenDeadlines } from "./upstream/forward.ts";
import { hasLooped, listWithheld, toCallerHeaders, toUpstreamHeaders } from "./upstream/headers.ts";
import { filterModelList } from "./upstream/model_list.ts";
import { isSmall, readWhole } from "./upstream/read_whole.ts";
import { RelayedBody } from "./upstream/relay.ts";
import type { UpstreamResponse } from "./upstream/transport.ts";
import { UsageChunkFilter } from "./upstream/usage_chunk.ts";

/**
 * Answers a request: steps 1 to 3, then {@link run}. Never rejects.
 *
 * Steps that do not wait are not async functions. Four more async steps, together with dates
 * printed by V8 in the log, cost about a tenth of a plain call on Node (2026-11-22, two builds in
 * turns).
 */
export async function handleRequest(
  request: GatewayRequest,
  gateway: StepParts,
): Promise<GatewayResponse> {
  const exchange = gateway.openExchanges.begin(request, gateway); // 1
  const arrival: Arrival = { request, exchange, gateway, dialect: OPAQUE };
  try {
    exchange.trace = gateway.tracer?.begin(exchange, request);
    gateway.assertWelcome();
    const { provider, prefix } = address(arrival); // 2
    const { method, url, headers } = request;
    const operation = await resolveOperation(method, prefix === "" ? url : withoutPrefix(url));
    noteKnownOperation(operation, provider, arrival);
    const presentedKey = readGatewayCredential(headers, provider, gateway.holdsKey); // 3
    const { keys, digest, clock, identity } = gateway;
    const stored = await findGatewayKey(presentedKey, keys, { digest, exchange, clock, identity });
    return await run(identify(stored, presentedKey, operation, provider, arrival));
  } catch (thrown) {
    return refuse(thrown, arrival);
  }
}

/** Runs steps 4 to 7. Step 8 runs when the answer ends. */
async function run(flow: Flow): Promise<GatewayResponse> {
  const { operation, subjects, recording } = flow;
  if (operation.isOwn) return await answerRecorded(flow);
  if (subjects.length > 0) await admitBeforeBody(flow); // 4: the checks that need no body
  const call = await read(flow); // 5
  if (recording !== undefined) return await record(recording, call, flow, runCall);
  return await runCall(call, flow);
}

/** Makes the call: runs the checks of step 4 that need the body, then steps 6 and 7. */
async function runCall(call: Call, flow: Flow): Promise<GatewayResponse> {
  await admit(call, flow);
  return relay(await send(call, flow), call, flow);
}

/**
 * 2: finds the provider by Host, and by the path before `/v1`. Host is checked before the URL is
 * read.
 */
function address({ request, exchange, gateway }: Arrival): Address<Provider> {
  const { url, headers } = request;
  // HTTP/2 has no Host field. Its `:authority` is in the URL.
  const host = headers.get("host") ?? (URL.canParse(url) ? new URL(url).host : null);
  const found = gateway.resolveProvider(host, url);
  exchange.facts.provider = found.provider.name;
  // Checked on every path, and before the key: on any other status, agents such as Codex retry the
  // connection for seconds.
  if (headers.get("upgrade")?.toLowerCase().includes("websocket")) {
    throw new GatewayError("websocket_not_supported", {
      headers: { upgrade: "HTTP/1.1", connection: "upgrade" },
    });
  }
  return found;
}

/**
 * 2: notes the operation. Throws if it is unknown and the provider accepts only known operations.
 */
function noteKnownOperation(
  operation: ResolvedOperation,
  provider: Provider,
  arrival: Arrival,
): void {
  const isKnown = operation.isOwn || operation.group !== undefined;
  if (!isKnown && !provider.operations.includes("all")) throw toUnknownError(operation);
  arrival.dialect = operation.dialect;
  const { facts } = arrival.exchange;
  facts.operation = operation.name;
  facts.isMetered = isCharged(operation);
  if (operation.genAi !== undefined) facts.genAi = operation.genAi;
}

/** Notes whose exchange it is. The display name of an identity token is personal: it is left out. */
function noteKey({ id, name, team }: KeyConfig, { facts }: Exchange): void {
  facts.keyId = id;
  if (name !== undefined && !id.startsWith(TOKEN_ID_PREFIX)) facts.keyName = name;
  if (team !== undefined) facts.team = team;
}

/** 3: checks the gateway key first, so that a caller without a valid key learns nothing else. */
function identify(
  storedKey: KeyConfig | undefined,
  presentedKey: string,
  operation: ResolvedOperation,
  provider: Provider,
  { request, exchange, gateway }: Arrival,
): Flow {
  const { url, headers } = request;
  if (storedKey !== undefined) noteKey(storedKey, exchange);
  const key = requireUsableKey(storedKey, provider.name, gateway.clock.now());
  const credentials = readUpstreamCredentials(headers, provider, presentedKey);
  const searched = { presentedKey, gateway };
  assertNoKeyInCredentials(credentials, provider, searched);
  assertNoKeyInUrl(url, searched);
  if (!operation.isOwn) assertOperationAllowed(key, operation, provider);
  if (operation.modelId !== undefined) assertModelAllowed(key, operation.modelId);
  if (hasLooped(headers)) throw new GatewayError("upstream_loop");
  gateway.openExchanges.share(exchange, key.id, provider.hasOthers ? provider.name : undefined);
  const subjects = operation.isOwn ? [] : subjectsOf(key, provider, gateway);
  assertMetered(operation, provider, subjects);
  const durable = key.durable ?? provider.durable;
  return {
    request,
    exchange,
    gateway,
    provider,
    operation,
    key,
    presentedKey,
    credentials,
    subjects,
    needsReservation: isCharged(operation) && subjects.some(limitsAmounts),
    recording: durable ? wantedRecording(headers, operation, durable) : undefined,
    lease: undefined,
    isAdmitted: false,
  };
}

/** 5: reads the bytes of the body, parses them, and keeps only the few facts that are needed. */
async function read(flow: Flow): Promise<Call> {
  const { request, exchange, gateway, operation, provider, key } = flow;
  const isBodiless = operation.body === "none" ||
    (request.body === null && operation.body === "any");
  if (isBodiless) return BODILESS;
  const body = await readBody(request, {
    limits: gateway.limits,
    types: CONTENT_TYPES[operation.body],
    memory: gateway.bodies,
    owner: key.id,
    clock: gateway.clock,
    exchange,
  });
  const contentType = request.headers.get("content-type") ?? "";
  const facts = readFacts(bytesOf(body), contentType, flow);
  const { model, otherModels, isStream } = facts;
  assertNoKeyInFields(facts, flow); // first, because log, metrics and usage show the model
  if (model !== undefined) exchange.facts.model = model;
  if (isStream !== undefined) exchange.facts.stream = isStream;
  if (operation.model === "body" || operation.model === "optional") assertModelAllowed(key, model);
  if (otherModels !== undefined) assertOtherModelsAllowed(key, otherModels);
  const usageOptIn = provider.usage === "ask" ? askForUsage(body, operation, facts) : undefined;
  return { body, contentType, facts, usageOptIn };
}

/**
 * 6: forwards the original bytes and the headers that can be forwarded. The only change to the body
 * is the request for usage.
 */
function send(call: Call, flow: Flow): Promise<UpstreamResponse> {
  const { request, exchange, gateway, provider, operation, key } = flow;
  const { method, url, isGone } = request;
  if (isGone) throw new ClientClosed();
  // A call that continues after its caller leaves has only the provider's deadlines.
  const outlivesCaller = exchange.outlivesCaller || exchange.reader !== undefined;
  const deadlines = outlivesCaller
    ? provider.deadlines
    : shortenDeadlines(provider.deadlines, request.headers, call.facts.isStream ?? true);
  const isModelBound = key.models !== undefined ||
    flow.subjects.some(({ limits }) => limits.spend !== undefined);
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
  return forward({ path, method, headers, body: call.body, deadlines }, exchange, provider);
}

/**
 * 7: relays status and headers at once, and the body as it arrives. The end of the body settles the
 * exchange (8).
 */
async function relay(upstream: UpstreamResponse, call: Call, flow: Flow): Promise<GatewayResponse> {
  const { request, exchange, gateway, operation, key, provider } = flow;
  const isHead = request.method === "HEAD";
  const isCutDown = operation.model === "answer" && key.models !== undefined && !isHead;
  const answer = isCutDown ? await cutModelList(upstream, flow) : upstream;
  const { status, headers, body } = answer;
  const kind = toAnswerKind(answer, operation);
  const crossed = toAnswerHeaders(headers, kind, flow);
  // It costs nothing, so it is not read to its end after its caller has left.
  if (!kind.countsTokens) exchange.bindToCaller();
  const isEmpty = body === null || status === 204 || status === 205 || isHead;
  if (isEmpty) {
    body?.cancel();
    if (kind.countsTokens) exchange.outputTokens = 0;
    return finish({ status, headers: crossed, body: null }, exchange);
  }
  if (!kind.isEvents && isSmall(headers, body)) {
    const whole = await readWhole(body, {
      exchange,
      idleMs: provider.deadlines.idleMs,
      clock: gateway.clock,
    });
    noteTokens(whole, kind, exchange);
    assertWaiting(flow);
    return finish({ status, headers: crossed, body: whole }, exchange);
  }
  exchange.status = status;
  return { status, headers: crossed, body: toRelayedBody(body, kind, call, flow) };
}

/** 7: removes the models from a list that the key is not allowed to use. */
function cutModelList(
  upstream: UpstreamResponse,
  { exchange, gateway, key, provider }: Flow,
): Promise<UpstreamResponse> {
  const options = { exchange, idleMs: provider.deadlines.idleMs, clock: gateway.clock };
  return filterModelList(upstream, (model) => allowsModel(key, model), options);
}

/** 7: returns the headers that the caller receives. */
function toAnswerHeaders(
  headers: UpstreamResponse["headers"],
  { isEvents }: AnswerKind,
  { exchange, gateway, operation, provider }: Flow,
): Record<string, string> {
  const crossed = toCallerHeaders(headers, isEvents, provider.headerRules);
  const { facts } = exchange;
  if (gateway.listsWithheld) {
    facts.withheld = { ...facts.withheld, response: listWithheld(headers, crossed) };
  }
  // Some interfaces ask for a stream in their path, which no field of the body shows.
  if (operation.body !== "none") facts.stream = facts.stream === true || isEvents;
  return exchange.addHeaders(crossed);
}

/** 7: checks that the caller is still connected. @throws The reason why it is not */
function assertWaiting({ request, exchange }: Flow): void {
  const left = request.isGone ? new ClientClosed() : exchange.leftReason;
  exchange.isCompleteWithoutCaller = left !== undefined;
  if (left !== undefined) throw left;
}

/**
 * 7: watches the answer while it is relayed: a stream of events for its end, and any answer for its
 * token counts.
 */
function toRelayedBody(body: AnyBody, kind: AnswerKind, call: Call, flow: Flow): PushedBody {
  const { facts, usageOptIn } = call;
  const { exchange, gateway, provider } = flow;
  const { scanner, meter, countsTokens } = createScannerOrMeter(kind, facts.choices);
  if (kind.stated !== undefined) exchange.facts.usage = kind.stated;
  const relayed = new RelayedBody(body, {
    exchange,
    scanner,
    meter,
    countsTokens,
    ...provider.deadlines,
    keepAliveMs: provider.keepAliveMs,
    writeStallMs: gateway.limits.writeStallMs,
    clock: gateway.clock,
  });
  return usageOptIn === undefined || scanner === undefined
    ? relayed
    : new UsageChunkFilter(relayed, exchange, usageOptIn);
}

/** Turns a thrown value into an answer. No other code does this. */
function refuse(thrown: unknown, { request, exchange, dialect }: Arrival): GatewayResponse {
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

/** 8: settles the exchange of an answer that is complete. */
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
