/**
 * Spans for OpenTelemetry: one for each exchange and one for each upstream call, named as its conventions for HTTP and for generative
 * models have it (https://opentelemetry.io/docs/specs/semconv/). They hold what the access log holds: never a key, a
 * prompt, an answer, a query or an address of the caller.
 *
 * The gateway brings the API only. Who wants traces registers an SDK before it starts, or uses the one in Deno; without
 * one nothing here is run.
 *
 * @module
 */
import {
  type Attributes,
  type Context,
  createTraceState,
  INVALID_SPAN_CONTEXT,
  isSpanContextValid,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Tracer as ApiTracer,
} from "@opentelemetry/api";
import { GatewayError } from "../errors/gateway_error.ts";
import type { GatewayRequest } from "../http/message.ts";
import { systemClock } from "../exchange/clock.ts";
import type { ExchangeRecord } from "../exchange/record.ts";
import type { ExchangeTrace, TracedCall, TracedExchange, Tracer } from "../exchange/observer.ts";
import { ClientClosed } from "../exchange/settlement.ts";
import { PRESETS } from "../config/presets.ts";
import { RANDOM, readTraceParent, SAMPLED, type TraceParent, withTraceParent } from "./trace_context.ts";

const NAME = "sallyport";
/** Its global object, by which the API of whatever version finds the SDK. */
const API_GLOBAL = Symbol.for("opentelemetry.js.api.1");

/** Where an operation is found: its caller's path would say more than is wanted. */
const ROUTES: Readonly<Record<string, string>> = {
  "chat.completions": "/v1/chat/completions",
  "models.list": "/v1/models",
  "models.get": "/v1/models/{id}",
};
/** Any other is `_OTHER`, for callers write what they like. */
const METHODS: ReadonlySet<string> = new Set(
  ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"],
);
/** How the conventions spell what has another short name here. */
const SPELLINGS: Readonly<Record<string, string>> = { mistral: "mistral_ai", xai: "x_ai" };
/** Known providers by their hosts. */
const KNOWN_PROVIDERS: ReadonlyMap<string, string> = new Map(
  Object.entries(PRESETS).filter(([, url]) => url.startsWith("https:"))
    .map(([name, url]) => [new URL(url).hostname, SPELLINGS[name] ?? name]),
);
/** Nothing was answered when the caller left before. */
const NO_STATUS = 499;

/** What an exchange is traced with. Points in time are all its own, so that spans lie within each other. */
interface TraceParts {
  readonly tracer: ApiTracer;
  readonly exchange: TracedExchange;
  readonly request: GatewayRequest;
}

/** An SDK's failure is its own. */
function quietly<Result>(act: () => Result): Result | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}

/** The spans of one exchange. */
class Spans implements ExchangeTrace {
  readonly #parts: TraceParts;
  #caller: TraceParent | undefined;
  #callerContext: SpanContext | undefined;
  #server: Span | undefined;
  #client: Span | undefined;
  #calledMs = 0;

  constructor(parts: TraceParts) {
    this.#parts = parts;
    parts.exchange.onSettled((record) => this.#settled(record));
  }

  called(call: TracedCall): Record<string, string> {
    return quietly(() => this.#called(call)) ?? call.headers;
  }

  #called({ method, url, headers }: TracedCall): Record<string, string> {
    const { tracer, exchange } = this.#parts;
    this.#server ??= this.#begin(true);
    const { facts, retries } = exchange;
    const isChat = facts.operation === "chat.completions";
    const attributes: Attributes = {
      "http.request.method": method,
      "server.address": url.hostname,
      "server.port": Number(url.port) || (url.protocol === "https:" ? 443 : 80),
      ...(retries > 0 && { "http.request.resend_count": retries }),
      ...(isChat && toGenerativeAttributes(exchange, url)),
    };
    this.#calledMs = exchange.elapsed();
    const name = isChat ? `chat ${facts.model}` : `${method} ${ROUTES[facts.operation ?? ""] ?? ""}`;
    const startTime = exchange.startedAt + this.#calledMs;
    const parent = trace.setSpan(ROOT_CONTEXT, this.#server);
    this.#client = tracer.startSpan(name, { kind: SpanKind.CLIENT, attributes, startTime }, parent);
    const goesOn = this.#goesOn(this.#client.spanContext());
    return goesOn === undefined ? headers : withTraceParent(headers, goesOn);
  }

  answered(status: number): void {
    quietly(() => this.#client?.setAttribute("http.response.status_code", status));
  }

  failed(reason: unknown): void {
    if (!(reason instanceof ClientClosed)) {
      const type = GatewayError.is(reason) ? reason.failureCause ?? reason.code : "internal_error";
      quietly(() => fail(this.#client, type));
    }
    this.#endClient(this.#parts.exchange.elapsed());
  }

  #endClient(ms: number): void {
    const client = this.#client;
    this.#client = undefined;
    quietly(() => client?.end(this.#parts.exchange.startedAt + ms));
  }

  /** The exchange's span. A stranger's trace is not continued, for it would say what is recorded: it is named only. */
  #begin(isKnown: boolean): Span {
    const { tracer, exchange: { facts, startedAt: startTime }, request } = this.#parts;
    const caller = readTraceParent(request.headers);
    const method = METHODS.has(request.method) ? request.method : "_OTHER";
    const route = ROUTES[facts.operation ?? ""];
    const attributes: Attributes = {
      "http.request.method": method,
      ...(route !== undefined && { "http.route": route }),
    };
    const name = `${method === "_OTHER" ? "HTTP" : method}${route === undefined ? "" : ` ${route}`}`;
    const options = { kind: SpanKind.SERVER, attributes, startTime };
    if (caller === undefined) return tracer.startSpan(name, options, ROOT_CONTEXT);
    const { traceId, spanId, flags, state } = caller;
    const context: SpanContext = {
      traceId,
      spanId,
      traceFlags: flags & SAMPLED ? TraceFlags.SAMPLED : TraceFlags.NONE,
      isRemote: true,
      ...(state !== "" && { traceState: createTraceState(state) }),
    };
    if (!isKnown) return tracer.startSpan(name, { ...options, links: [{ context }] }, ROOT_CONTEXT);
    [this.#caller, this.#callerContext] = [caller, context];
    const parent: Context = trace.setSpanContext(ROOT_CONTEXT, context);
    return tracer.startSpan(name, options, parent);
  }

  /** What an upstream call carries on. */
  #goesOn(span: SpanContext): TraceParent | undefined {
    const { traceId, spanId, traceFlags, traceState } = span;
    if (!isSpanContextValid(span)) return undefined;
    const isContinued = traceId === this.#caller?.traceId;
    // Deno's spans carry no state, and what the API parsed may be less than what was sent.
    const isTheirs = traceState === undefined || traceState === this.#callerContext?.traceState;
    return {
      traceId,
      spanId,
      flags: (traceFlags & SAMPLED) | (isContinued ? (this.#caller?.flags ?? 0) & RANDOM : 0),
      state: isTheirs ? (isContinued && this.#caller?.state) || "" : traceState.serialize(),
    };
  }

  #settled(record: ExchangeRecord): void {
    const { status, cause, durationMs } = record;
    const type = errorTypeOf(record);
    if (this.#client?.isRecording()) {
      this.#client.setAttributes(toAnswerAttributes(record, this.#calledMs));
      if (type !== undefined) fail(this.#client, cause ?? type);
    }
    this.#endClient(durationMs);
    const server = this.#server ?? this.#begin(record.keyId !== undefined);
    if (server.isRecording()) {
      server.setAttributes(toExchangeAttributes(record));
      // What broke off after a 200 has failed; what the caller got wrong has not.
      if (type !== undefined && (status < 400 || status >= 500)) fail(server, type);
      else if (type !== undefined) server.setAttribute("error.type", type);
    }
    server.end(record.startedAt + durationMs);
  }
}

/** What went wrong: the gateway's error, or the provider's own, as its status or as an event. */
function errorTypeOf({ outcome, status, code }: ExchangeRecord): string | undefined {
  if (code !== undefined || outcome !== "upstream_error") return code;
  return status >= 400 ? String(status) : outcome;
}

/** An attribute is set once: Deno keeps each of several values. */
function fail(span: Span | undefined, type: string): void {
  span?.setAttribute("error.type", type).setStatus({ code: SpanStatusCode.ERROR });
}

function toGenerativeAttributes({ facts: { provider, model, stream } }: TracedExchange, url: URL): Attributes {
  return {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": KNOWN_PROVIDERS.get(url.hostname) ?? provider ?? "",
    "gen_ai.request.model": model ?? "",
    "gen_ai.request.stream": stream ?? false,
  };
}

/** What is known of a call once its answer is over. Tokens only as the provider stated them. */
function toAnswerAttributes({ usage, firstTokenMs }: ExchangeRecord, calledMs: number): Attributes {
  return {
    ...(firstTokenMs !== undefined && { "gen_ai.response.time_to_first_chunk": (firstTokenMs - calledMs) / 1000 }),
    ...(usage?.input !== undefined && { "gen_ai.usage.input_tokens": usage.input }),
    ...(usage?.output !== undefined && { "gen_ai.usage.output_tokens": usage.output }),
    ...(usage?.cached !== undefined && { "gen_ai.usage.cache_read.input_tokens": usage.cached }),
    ...(usage?.reasoning !== undefined && { "gen_ai.usage.reasoning.output_tokens": usage.reasoning }),
  };
}

function toExchangeAttributes(record: ExchangeRecord): Attributes {
  const { id, outcome, status, cause, provider, keyId } = record;
  return {
    ...((status !== NO_STATUS || outcome !== "client_closed") && { "http.response.status_code": status }),
    ...(provider !== undefined && { "sallyport.provider": provider }),
    ...(keyId !== undefined && { "sallyport.key.id": keyId }),
    "sallyport.request.id": id,
    "sallyport.outcome": outcome,
    ...(cause !== undefined && { "sallyport.cause": cause }),
    "sallyport.overhead": record.overheadMs / 1000,
  };
}

/** The SDK, as far as it can be told to send what it has. */
interface Flushable {
  getDelegate?(): Flushable;
  forceFlush?(): Promise<void>;
}

/** Traces, on. */
export interface Traces extends Tracer {
  /**
   * Sends what is waiting to be sent. Does not fail.
   *
   * @param limitMs How long that may take, milliseconds
   */
  flush(limitMs: number): Promise<void>;
}

/** Deno's own spans. */
type DenoGlobal = { readonly Deno?: { readonly telemetry?: { readonly tracerProvider?: unknown } } };

/**
 * Deno makes spans of its own for what it serves. They hold the whole URL, the query in it: the gateway's stand in their
 * place.
 */
function replaceBuiltIn(tracer: ApiTracer): void {
  const prototype: ApiTracer = Object.getPrototypeOf(tracer);
  const { startSpan } = prototype;
  const none = trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
  prototype.startSpan = function (...args) {
    return this === tracer ? startSpan.apply(this, args) : none;
  };
}

/**
 * Traces, where somebody takes them. Is asked once, at start: an SDK that registers later is not seen.
 *
 * @param version The gateway's
 * @param report Is told of an SDK that can't be used
 * @returns `undefined` without an SDK
 */
export function createTraces(version: string, report: (text: string) => void): Traces | undefined {
  const provider = trace.getTracerProvider();
  if (provider instanceof ProxyTracerProvider && provider.getDelegateTracer(NAME) === undefined) {
    const global = (globalThis as { [API_GLOBAL]?: { version?: string; trace?: unknown } })[API_GLOBAL];
    if (global?.trace !== undefined) {
      report(`no traces: the registered OpenTelemetry API is ${global.version}, and 1.9 or later is needed`);
    }
    return undefined;
  }
  const tracer = trace.getTracer(NAME, version);
  if (provider === (globalThis as DenoGlobal).Deno?.telemetry?.tracerProvider) replaceBuiltIn(tracer);
  return {
    begin: (exchange, request) => new Spans({ tracer, exchange, request }),
    async flush(limitMs) {
      const { getDelegate }: Flushable = provider as Flushable;
      const sdk: Flushable = getDelegate?.call(provider) ?? provider as Flushable;
      const limit = new Promise<void>((resolve) => void systemClock.timer(limitMs, resolve));
      await Promise.race([sdk.forceFlush?.().catch(() => {}), limit]);
    },
  };
}
