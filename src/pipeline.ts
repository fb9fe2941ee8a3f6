/**
 * The flow of a request, in eight steps: 1 arrive, 2 address, 3 identify, 4 admit (4a before the
 * body is read, 4b after it), 5 read, 6 forward, 7 relay, 8 settle (`Exchange.settle`, at the end
 * of the answer). One `catch` turns everything that they throw into an answer.
 *
 * The observers of an exchange, such as log and usage, are attached in step 1
 * (`OpenExchanges.begin`) and get its record in step 8. `serve/compose.ts` and
 * `serve/serving.ts` list the observers of a process.
 *
 * @module
 */
import { OPAQUE } from "./dialects/opaque.ts";
import { GatewayError, toErrorResponse } from "./errors/gateway_error.ts";
import { ClientClosed, toExchangeEnd } from "./exchange/exchange.ts";
import { type GatewayRequest, type GatewayResponse, isDrainable } from "./http/message.ts";
import { readBody } from "./inbound/body.ts";
import { type AddressedProvider, withoutPrefix } from "./inbound/host.ts";
import { assertModelAllowed, assertOtherModelsAllowed } from "./keys/policy.ts";
import { limitsSpend } from "./limits/limiter.ts";
import {
  dialectOfCaller,
  type ResolvedOperation,
  resolveOperation,
  toQuery,
  toUnknownError,
} from "./operations/router.ts";
import { SHAPES } from "./operations/shapes.ts";
import { hasCost } from "./operations/table.ts";
import { admit, admitBeforeBody } from "./steps/admission.ts";
import { BODILESS, bytesOf, type Call } from "./steps/call.ts";
import { runRecordedCall } from "./steps/durable/recorded_call.ts";
import { answerRecordingRequest } from "./steps/durable/recording_request.ts";
import { finish } from "./steps/finish.ts";
import type { Arrival, Flow, Provider, StepParts } from "./steps/flow.ts";
import { sendWithHeldKey } from "./steps/held_key.ts";
import { identify } from "./steps/identify.ts";
import { assertNoKeyInFields, assertNoKeyInHeaders, withoutKeys } from "./steps/misplaced_keys.ts";
import { relayAnswer } from "./steps/relay_answer.ts";
import { askForUsage, CONTENT_TYPES, readFacts } from "./steps/request_body.ts";
import { forward, shortenDeadlines } from "./upstream/forward.ts";
import { listWithheld, toUpstreamHeaders } from "./upstream/headers.ts";
import type { HeldBody, UpstreamResponse } from "./upstream/transport.ts";

/**
 * Answers a request: steps 1 to 7. Never rejects.
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
    const { method, url } = request;
    const path = withoutPrefix(url, prefix);
    const operation = await resolveOperation(method, path, provider.shape);
    acceptOperation(operation, provider, arrival);
    const flow = await identify(operation, provider, arrival); // 3
    if (operation.isOfGateway) return await answerRecordingRequest(flow);
    if (flow.subjects.length > 0) await admitBeforeBody(flow); // 4a
    const call = await read(flow); // 5
    const { wantedRecording } = flow;
    if (wantedRecording !== undefined) {
      return await runRecordedCall(wantedRecording, call, flow, runCall);
    }
    return await runCall(call, flow); // 4b, 6, 7
  } catch (thrown) {
    return refuse(thrown, arrival);
  }
}

/** Makes the call: steps 4b, 6 and 7. */
async function runCall(call: Call, flow: Flow): Promise<GatewayResponse> {
  await admit(call, flow);
  const { heldKey } = flow;
  const answer = heldKey === undefined
    ? await send(call, flow)
    : await sendWithHeldKey(heldKey, flow, call.body, (body) => send(call, flow, body));
  return relayAnswer(answer, call, flow);
}

/**
 * 2: finds the provider by Host, and by the path before `/v1`. Host is checked before the URL is
 * read.
 */
function address(arrival: Arrival): AddressedProvider<Provider> {
  const { request, exchange, gateway } = arrival;
  const { url, headers } = request;
  // HTTP/2 has no Host field. Its `:authority` is in the URL.
  const host = headers.get("host") ?? (URL.canParse(url) ? new URL(url).host : null);
  const found = gateway.resolveProvider(host, url);
  exchange.facts.provider = found.provider.name;
  arrival.dialect = SHAPES[found.provider.shape].dialect;
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
 * 2: refuses an unknown operation if the provider accepts only known ones, and notes the facts of
 * an accepted one.
 */
function acceptOperation(
  operation: ResolvedOperation,
  provider: Provider,
  arrival: Arrival,
): void {
  const isKnown = operation.isOfGateway || operation.group !== undefined;
  if (!isKnown && !provider.operations.includes("all")) throw toUnknownError(operation);
  if (operation.dialect !== OPAQUE) arrival.dialect = operation.dialect;
  const { facts } = arrival.exchange;
  facts.operation = operation.name;
  facts.isMetered = hasCost(operation);
  if (operation.genAi !== undefined) facts.genAi = operation.genAi;
}

/** 5: reads the bytes of the body, parses them, and keeps only the few facts that are needed. */
export async function read(flow: Flow): Promise<Call> {
  const { request, exchange, gateway, operation, provider, key } = flow;
  const isBodiless = operation.body === "none" ||
    (request.body === null && operation.body === "any");
  if (isBodiless) return BODILESS;
  const body = await readBody(request, {
    limits: gateway.limits,
    types: CONTENT_TYPES[operation.body],
    unpack: provider.unpack,
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
export function send(
  call: Call,
  flow: Flow,
  body: HeldBody | null = call.body,
): Promise<UpstreamResponse> {
  const { request, exchange, gateway, provider, operation, key } = flow;
  const { method, url, isGone } = request;
  if (isGone) throw new ClientClosed();
  // A call that continues after its caller leaves has only the provider's deadlines.
  const deadlines = exchange.continuesWithoutCaller
    ? provider.deadlines
    : shortenDeadlines(provider.deadlines, request.headers, call.facts.isStream !== false);
  // Its run, or a run above it, can have a budget of money.
  const isModelBound = key.models !== undefined || flow.run !== undefined ||
    flow.subjects.some(limitsSpend);
  const headers = toUpstreamHeaders(
    request.headers,
    provider.headerRules,
    flow.credentials,
    isModelBound,
    flow.heldKey !== undefined,
  );
  const coding = call.body?.coding;
  if (coding !== undefined) headers["content-encoding"] = coding;
  assertNoKeyInHeaders(headers, flow);
  if (gateway.listsWithheld) {
    const withheld = withoutKeys(listWithheld(request.headers, headers), flow);
    exchange.facts.withheld = { request: withheld };
  }
  const path = operation.path + toQuery(url);
  return forward({ path, method, headers, body, deadlines }, exchange, provider);
}

/** Turns a thrown value into an answer. No other code does this. */
function refuse(thrown: unknown, { request, exchange, dialect }: Arrival): GatewayResponse {
  const end = toExchangeEnd(thrown);
  if (thrown instanceof ClientClosed) {
    return finish({ status: 499, headers: {}, body: null }, exchange, end);
  }
  const error = GatewayError.is(thrown) ? thrown : new GatewayError("internal_error");
  const errorDialect = dialect === OPAQUE ? dialectOfCaller(request) : dialect;
  const refusal = toErrorResponse(error, errorDialect.toErrorBody(error));
  exchange.addHeaders(refusal.headers);
  const isUnread = exchange.bytesIn === 0 && !isDrainable(request);
  if (error.code === "body_timeout" || isUnread) refusal.headers.connection = "close";
  if (error.limit !== undefined) exchange.facts.limit = error.limit;
  if (error.repeats !== undefined) exchange.facts.repeats = error.repeats;
  return finish(refusal, exchange, end);
}
