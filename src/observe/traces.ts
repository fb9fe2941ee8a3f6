/**
 * Spans for OpenTelemetry: one for each exchange and one for each upstream call, named by its conventions for HTTP and
 * for generative models (https://opentelemetry.io/docs/specs/semconv/). They hold what the access log holds: never a
 * key, a prompt, an answer, a query or an address of the caller.
 *
 * The gateway contains only OpenTelemetry's API. To get traces, register an SDK before the gateway starts, or use the
 * one in Deno; without an SDK no code here runs.
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
import { ClientClosed } from "../exchange/exchange.ts";
import { PRESETS } from "../config/presets.ts";
import { RANDOM, readTraceParent, SAMPLED, type TraceParent, withTraceParent } from "./trace_context.ts";

const NAME = "sallyport";
/** Symbol of OpenTelemetry's global object, through which each version of the API finds the SDK. */
const API_GLOBAL = Symbol.for("opentelemetry.js.api.1");

/** Route of each operation. The caller's own path is not recorded, for it can hold more. */
const ROUTES: Readonly<Record<string, string>> = {
  "chat.completions": "/v1/chat/completions",
  "models.list": "/v1/models",
  "models.get": "/v1/models/{id}",
};
/** Methods that are recorded by name; any other is `_OTHER`, for a caller can send any text. */
const METHODS: ReadonlySet<string> = new Set(
  ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"],
);
/** Names of providers in the conventions, where they differ from the names of the presets. */
const SPELLINGS: Readonly<Record<string, string>> = { mistral: "mistral_ai", xai: "x_ai" };
/** Names of known providers by their hosts. */
const KNOWN_PROVIDERS: ReadonlyMap<string, string> = new Map(
  Object.entries(PRESETS).filter(([, url]) => url.startsWith("https:"))
    .map(([name, url]) => [new URL(url).hostname, SPELLINGS[name] ?? name]),
);
/** Status in the record of an exchange whose caller left before an answer; spans leave it out. */
const NO_STATUS = 499;

/** Parts of {@link Spans}. All times are taken from the exchange, so that its spans nest correctly. */
interface TraceParts {
  readonly tracer: ApiTracer;
  readonly exchange: TracedExchange;
  readonly request: GatewayRequest;
}

/** Calls the SDK and drops what it throws: its failure must not fail the exchange. */
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

  /** Starts the exchange's span. An unknown caller's trace is only linked: continued, it would decide on recording. */
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

  /** Returns the trace context for an upstream call; `undefined` if its span is not valid. */
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

/** Type of an exchange's error: the gateway's code, the provider's status, or `upstream_error` for an error event. */
function errorTypeOf({ outcome, status, code }: ExchangeRecord): string | undefined {
  if (code !== undefined || outcome !== "upstream_error") return code;
  return status >= 400 ? String(status) : outcome;
}

/** Marks a span as failed. Call it once for a span: Deno keeps every value that an attribute is given. */
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

/** Attributes of a call whose answer is complete. Tokens only as the provider stated them. */
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

/** The part of an SDK that sends waiting spans. */
interface Flushable {
  getDelegate?(): Flushable;
  forceFlush?(): Promise<void>;
}

/** A tracer whose spans an SDK takes. */
export interface Traces extends Tracer {
  /**
   * Sends all waiting spans. Does not fail.
   *
   * @param limitMs Limit of the time that it takes, milliseconds
   */
  flush(limitMs: number): Promise<void>;
}

/** Deno's global object, with the tracer provider of its own spans. */
type DenoGlobal = { readonly Deno?: { readonly telemetry?: { readonly tracerProvider?: unknown } } };

/**
 * Turns off the spans that Deno makes for the requests that it serves. They hold the whole URL with its query; the
 * gateway's own spans replace them.
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
 * Creates a tracer if an SDK is registered. Called once, at start: an SDK that registers later is not seen.
 *
 * @param version The gateway's version
 * @param report Called with a message if an SDK can't be used
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
