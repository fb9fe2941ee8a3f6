/**
 * The rungs of the ladder. Each makes a whole call. It takes one step of the pipeline more than the
 * rung below it; a minimum of code replaces the steps that it does not take.
 */
import type { Dialect, StreamScanner } from "../../../src/dialects/dialect.ts";
import { OPAQUE } from "../../../src/dialects/opaque.ts";
import type { Exchange } from "../../../src/exchange/exchange.ts";
import type { GatewayRequest, GatewayResponse } from "../../../src/http/message.ts";
import { readAll } from "../../../src/http/read_all.ts";
import { toHandler } from "../../../src/http/web.ts";
import { withoutPrefix } from "../../../src/inbound/host.ts";
import { type ResolvedOperation, resolveOperation } from "../../../src/operations/router.ts";
import { read, send } from "../../../src/pipeline.ts";
import { admit, admitBeforeBody } from "../../../src/steps/admission.ts";
import { bytesOf } from "../../../src/steps/call.ts";
import type { Provider, StepParts } from "../../../src/steps/flow.ts";
import { identify } from "../../../src/steps/identify.ts";
import { relayAnswer } from "../../../src/steps/relay_answer.ts";
import type { UpstreamResponse } from "../../../src/upstream/transport.ts";
import { createParts, type LadderParts } from "./parts.ts";
import { deliver, type Kind, PIECES } from "./stand_in.ts";

/** The rungs, from the lowest. */
export const RUNGS = [
  "web objects",
  "adapter, client",
  "exchange",
  "address",
  "identify",
  "body, facts",
  "limits",
  "forward, headers",
  "relay",
  "scanner",
  "observers",
  "gateway",
] as const;
export type Rung = (typeof RUNGS)[number];

/** Answers a request. */
export type Answer = (request: Request) => Promise<Response>;

/** The least: the web objects of the runtime, without a provider. */
async function answerAlone(request: Request, kind: Kind): Promise<Response> {
  await request.arrayBuffer();
  const headers = {
    "content-type": kind === "stream" ? "text/event-stream" : "application/json",
  };
  const pieces = PIECES[kind];
  if (kind === "plain") return new Response(pieces[0] ?? null, { headers });
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start: (controller) =>
      deliver(pieces, (piece) => controller.enqueue(piece), () => controller.close()),
  });
  return new Response(body, { headers });
}

const UNBOUND = {
  reason: undefined,
  signal: new AbortController().signal,
  onAbort: () => () => {},
  abort() {},
};

/** Calls the provider with the gateway's own client. */
function call(
  bytes: Uint8Array,
  { headers }: GatewayRequest,
  { transport, replicas, deadlines }: Provider,
): Promise<UpstreamResponse> {
  const { base } = replicas.pick(0);
  return transport.send({
    base,
    target: "/v1/chat/completions",
    method: "POST",
    headers: {
      "authorization": headers.get("authorization") ?? "",
      "content-type": headers.get("content-type") ?? "",
    },
    body: { bytes, release() {} },
    connectMs: deadlines.connectMs,
    exchange: UNBOUND,
  });
}

/** Passes an answer on as it is. */
async function pass({ status, headers, body }: UpstreamResponse): Promise<GatewayResponse> {
  const type = headers.get("content-type") ?? "";
  const isStream = type === "text/event-stream" || body === null;
  return { status, headers: { "content-type": type }, body: isStream ? body : await readAll(body) };
}

/** Sees nothing in a stream. */
class BlindScanner implements StreamScanner {
  payloadCount = 0;
  readonly usage = undefined;
  readonly outputTokens = 0;
  readonly hasError = false;
  readonly clientsReadErrorEvent = true;
  readonly isComplete = true;
  readonly hasLastEvent = true;
  readonly isAtBoundary = true;
  readonly boundary = "";
  push(): void {
    this.payloadCount++;
  }
  end(): void {}
  toErrorEvent(): string {
    return "";
  }
}

const BLIND: Dialect = {
  ...OPAQUE,
  createScanner: () => new BlindScanner(),
  readUsage: () => undefined,
  countOutput: () => 0,
};
let blindOperation: ResolvedOperation | undefined;

const isFrom = (top: Rung, rung: Rung): boolean => RUNGS.indexOf(top) >= RUNGS.indexOf(rung);

/** The steps that a rung takes. */
interface Steps {
  readonly opens: boolean;
  readonly addresses: boolean;
  readonly identifies: boolean;
  readonly reads: boolean;
  readonly limits: boolean;
  readonly forwards: boolean;
  readonly relays: boolean;
  readonly scans: boolean;
}

function toSteps(top: Rung): Steps {
  return {
    opens: isFrom(top, "exchange"),
    addresses: isFrom(top, "address"),
    identifies: isFrom(top, "identify"),
    reads: isFrom(top, "body, facts"),
    limits: isFrom(top, "limits"),
    forwards: isFrom(top, "forward, headers"),
    relays: isFrom(top, "relay"),
    scans: isFrom(top, "scanner"),
  };
}

function settle(answer: GatewayResponse, exchange: Exchange): GatewayResponse {
  exchange.status = answer.status;
  exchange.settle({ outcome: "ok" });
  return answer;
}

function failWithoutBody(): never {
  throw new Error("The request has no body");
}

/** Makes a call with the steps of a rung. */
async function climb(
  request: GatewayRequest,
  steps: Steps,
  gateway: StepParts,
  only: Provider,
): Promise<GatewayResponse> {
  const callOnly = async () =>
    pass(await call(await readAll(request.body ?? failWithoutBody()), request, only));
  if (!steps.opens) return callOnly();
  const exchange = gateway.openExchanges.begin(request, gateway);
  if (!steps.addresses) return settle(await callOnly(), exchange);
  const { provider, prefix } = gateway.resolveProvider(request.headers.get("host"), request.url);
  exchange.facts.provider = provider.name;
  const path = withoutPrefix(request.url, prefix);
  const found = await resolveOperation(request.method, path, provider.shape);
  exchange.facts.operation = found.name;
  exchange.facts.isMetered = true;
  if (!steps.identifies) return settle(await callOnly(), exchange);
  const operation = steps.scans ? found : blindOperation ??= { ...found, dialect: BLIND };
  const arrival = { request, exchange, gateway, dialect: operation.dialect };
  const flow = await identify(operation, provider, arrival);
  if (!steps.reads) return settle(await callOnly(), exchange);
  if (steps.limits) await admitBeforeBody(flow);
  const asked = await read(flow);
  if (steps.limits) await admit(asked, flow);
  if (!steps.forwards) {
    return settle(await pass(await call(bytesOf(asked.body), request, only)), exchange);
  }
  const answer = await send(asked, flow);
  return steps.relays ? relayAnswer(answer, asked, flow) : settle(await pass(answer), exchange);
}

/** Returns the answer of a rung. The highest is the gateway of the product. */
function toAnswer(top: Rung, kind: Kind, parts: LadderParts): Answer {
  if (top === "web objects") return (request) => answerAlone(request, kind);
  if (top === "gateway") return (request) => parts.gateway.fetch(request);
  const steps = toSteps(top);
  const gateway = isFrom(top, "observers") ? parts.observed : parts.unobserved;
  const { fetch } = toHandler((request) => climb(request, steps, gateway, parts.provider));
  return fetch;
}

/** Returns the answers of all rungs, in their order. */
export function createRungs(kind: Kind): Pick<LadderParts, "flush"> & { answers: Answer[] } {
  const parts = createParts(kind);
  const answers = RUNGS.map((top) => toAnswer(top, kind, parts));
  return { answers, flush: parts.flush };
}
