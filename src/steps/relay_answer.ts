/**
 * Step 7: relays the answer of the provider to the caller.
 *
 * @module
 */
import { ClientClosed } from "../exchange/exchange.ts";
import type { AnyBody, GatewayResponse, PushedBody } from "../http/message.ts";
import { allowsModel } from "../keys/policy.ts";
import {
  type AnswerKind,
  createScannerOrMeter,
  noteTokens,
  toAnswerKind,
} from "../upstream/answer_kind.ts";
import { listWithheld, toCallerHeaders } from "../upstream/headers.ts";
import { filterModelList } from "../upstream/model_list.ts";
import { ModelSearch } from "../upstream/model_search.ts";
import { isSmall, readWhole } from "../upstream/read_whole.ts";
import { RelayedBody } from "../upstream/relay.ts";
import type { UpstreamResponse } from "../upstream/transport.ts";
import { UsageChunkFilter } from "../upstream/usage_chunk.ts";
import type { Call } from "./call.ts";
import { finish } from "./finish.ts";
import type { Flow } from "./flow.ts";

const EMPTY = new Uint8Array();

/**
 * Relays status and headers at once, and the body as it arrives. The end of the body settles the
 * exchange (8).
 */
export async function relayAnswer(
  upstream: UpstreamResponse,
  call: Call,
  flow: Flow,
): Promise<GatewayResponse> {
  const { request, exchange, gateway, operation, key, provider } = flow;
  const isHead = request.method === "HEAD";
  const isCutDown = operation.model === "answer" && key.models !== undefined && !isHead;
  const reading = { exchange, idleMs: provider.deadlines.idleMs, clock: gateway.clock };
  const answer = isCutDown
    ? await filterModelList(upstream, (model) => allowsModel(key, model), reading)
    : upstream;
  const { status, headers, body } = answer;
  const kind = toAnswerKind(answer, operation, provider);
  const callerHeaders = toCallerHeaders(headers, kind.isEvents, provider.headerRules);
  exchange.servedTier = kind.headerTier;
  noteAnswer(headers, callerHeaders, kind, flow);
  exchange.addHeaders(callerHeaders);
  // Only a success with a cost is read to its end after its caller has left.
  const isCounted = kind.isSuccess && kind.countsTokens;
  if (!isCounted) exchange.bindToCaller();
  const isEmpty = body === null || status === 204 || status === 205 || isHead;
  if (isEmpty) {
    body?.cancel();
    noteTokens(EMPTY, kind, exchange);
    return finish({ status, headers: callerHeaders, body: null }, exchange);
  }
  // An answer of an earlier call belongs to a request that can name several.
  const isSearched = call.facts.otherModels !== undefined || operation.cost === "earlier";
  const modelSearch = isSearched ? new ModelSearch() : undefined;
  if (!kind.isEvents && isSmall(headers, body)) {
    const whole = await readWhole(body, reading);
    noteTokens(whole, kind, exchange);
    modelSearch?.push(whole);
    exchange.answeringModel = modelSearch?.name;
    endIfCallerLeft(flow);
    return finish({ status, headers: callerHeaders, body: whole }, exchange);
  }
  exchange.status = status;
  return {
    status,
    headers: callerHeaders,
    body: toRelayedBody(body, kind, call, flow, modelSearch),
  };
}

/** Notes the facts that the headers of an answer show. */
function noteAnswer(
  headers: UpstreamResponse["headers"],
  callerHeaders: Readonly<Record<string, string>>,
  { isEvents }: AnswerKind,
  { exchange, gateway, operation }: Flow,
): void {
  const { facts } = exchange;
  if (gateway.listsWithheld) {
    facts.withheld = { ...facts.withheld, response: listWithheld(headers, callerHeaders) };
  }
  // Some interfaces ask for a stream in their path, which no field of the body shows.
  if (operation.body !== "none") facts.stream = facts.stream === true || isEvents;
}

/** Ends a complete answer whose caller has left. @throws The reason why it left */
function endIfCallerLeft({ request, exchange }: Flow): void {
  const reason = request.isGone ? new ClientClosed() : exchange.caller.reason;
  if (reason === undefined) return;
  exchange.completeWithoutCaller(reason);
  throw reason;
}

/**
 * Watches the answer while it is relayed: a stream of events for its end, and any answer for its
 * token counts.
 */
function toRelayedBody(
  body: AnyBody,
  kind: AnswerKind,
  call: Call,
  flow: Flow,
  modelSearch: ModelSearch | undefined,
): PushedBody {
  const { facts, usageOptIn } = call;
  const { exchange, gateway, provider: { deadlines, keepAliveMs } } = flow;
  const { scanner, meter } = createScannerOrMeter(kind, facts);
  if (kind.headerUsage !== undefined) exchange.facts.usage = kind.headerUsage;
  const relayed = new RelayedBody(body, {
    exchange,
    scanner,
    meter,
    modelSearch,
    countsTokens: kind.countsTokens,
    idleMs: deadlines.idleMs,
    firstEventMs: deadlines.firstEventMs,
    keepAlive: kind.keepAlive,
    keepAliveMs,
    writeStallMs: gateway.limits.writeStallMs,
    clock: gateway.clock,
  });
  return usageOptIn === undefined || scanner === undefined
    ? relayed
    : new UsageChunkFilter(relayed, exchange, usageOptIn);
}
