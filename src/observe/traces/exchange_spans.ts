/**
 * The spans of one exchange: its own, and one for each of its upstream calls.
 *
 * @module
 */
import {
  createTraceState,
  isSpanContextValid,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Tracer,
} from "@opentelemetry/api";
import { GatewayError } from "../../errors/gateway_error.ts";
import type { GatewayRequest } from "../../http/message.ts";
import type { ExchangeTrace, TracedCall, TracedExchange } from "../../exchange/observer.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import { ClientClosed } from "../../exchange/exchange.ts";
import {
  errorTypeOf,
  toCallAttributes,
  toCallStart,
  toExchangeAttributes,
  toExchangeStart,
} from "./span_attributes.ts";
import {
  RANDOM,
  readTraceParent,
  SAMPLED,
  type TraceParent,
  withTraceParent,
} from "./trace_context.ts";

/** The caller's trace, as its headers state it and as OpenTelemetry represents it. */
interface CallerTrace {
  readonly parent: TraceParent;
  readonly context: SpanContext;
}

/** Calls the SDK and ignores its errors, so that a failing SDK does not fail the exchange. */
function quietly<Result>(act: () => Result): Result | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}

/** The spans of one exchange. The exchange supplies all times, so that its spans nest correctly. */
export class ExchangeSpans implements ExchangeTrace {
  readonly #tracer: Tracer;
  readonly #routes: ReadonlyMap<string, string>;
  readonly #exchange: TracedExchange;
  readonly #request: GatewayRequest;
  /** The caller's trace, if it is continued. */
  #caller: CallerTrace | undefined;
  #server: Span | undefined;
  #client: Span | undefined;
  #calledMs = 0;

  /** @param routes Routes of operations by their names */
  constructor(
    tracer: Tracer,
    routes: ReadonlyMap<string, string>,
    exchange: TracedExchange,
    request: GatewayRequest,
  ) {
    this.#tracer = tracer;
    this.#routes = routes;
    this.#exchange = exchange;
    this.#request = request;
    exchange.onSettled((record) => this.#settled(record));
  }

  called(call: TracedCall): Record<string, string> {
    return quietly(() => this.#startCall(call)) ?? call.headers;
  }

  answered(status: number): void {
    quietly(() => this.#client?.setAttribute("http.response.status_code", status));
  }

  failed(reason: unknown): void {
    if (!(reason instanceof ClientClosed)) {
      const type = GatewayError.is(reason) ? reason.failureCause ?? reason.code : "internal_error";
      quietly(() => fail(this.#client, type));
    }
    this.#endCall(this.#exchange.elapsed());
  }

  get #route(): string | undefined {
    const { operation } = this.#exchange.facts;
    return operation === undefined ? undefined : this.#routes.get(operation);
  }

  /** Starts the span of an upstream call, and returns its headers with the span's trace context. */
  #startCall(call: TracedCall): Record<string, string> {
    this.#server ??= this.#startExchange(true);
    this.#calledMs = this.#exchange.elapsed();
    const { name, attributes } = toCallStart(call, this.#exchange, this.#route);
    const options = {
      kind: SpanKind.CLIENT,
      attributes,
      startTime: this.#exchange.startedAt + this.#calledMs,
    };
    this.#client = this.#tracer.startSpan(name, options, trace.setSpan(ROOT_CONTEXT, this.#server));
    const context = this.#client.spanContext();
    if (!isSpanContextValid(context)) return call.headers;
    return withTraceParent(call.headers, toTraceParent(context, this.#caller));
  }

  #endCall(ms: number): void {
    const client = this.#client;
    this.#client = undefined;
    quietly(() => client?.end(this.#exchange.startedAt + ms));
  }

  /**
   * Starts the exchange's span. The trace of an unknown caller is only linked: if it were
   * continued, the caller would decide whether the exchange is recorded.
   */
  #startExchange(isKnownCaller: boolean): Span {
    const tracer = this.#tracer;
    const { name, attributes } = toExchangeStart(this.#request.method, this.#route);
    const options = { kind: SpanKind.SERVER, attributes, startTime: this.#exchange.startedAt };
    const parent = readTraceParent(this.#request.headers);
    if (parent === undefined) return tracer.startSpan(name, options, ROOT_CONTEXT);
    const context = toSpanContext(parent);
    if (!isKnownCaller) {
      return tracer.startSpan(name, { ...options, links: [{ context }] }, ROOT_CONTEXT);
    }
    this.#caller = { parent, context };
    return tracer.startSpan(name, options, trace.setSpanContext(ROOT_CONTEXT, context));
  }

  #settled(record: ExchangeRecord): void {
    const { status, cause, durationMs } = record;
    const type = errorTypeOf(record);
    if (this.#client?.isRecording()) {
      this.#client.setAttributes(toCallAttributes(record, this.#calledMs));
      if (type !== undefined) fail(this.#client, cause ?? type);
    }
    this.#endCall(durationMs);
    const server = this.#server ?? this.#startExchange(record.keyId !== undefined);
    if (server.isRecording()) {
      server.setAttributes(toExchangeAttributes(record));
      // An answer that broke off after a 200 is a failure. A mistake of the caller is not.
      const isCallersMistake = status >= 400 && status < 500;
      if (type !== undefined && isCallersMistake) server.setAttribute("error.type", type);
      else if (type !== undefined) fail(server, type);
    }
    server.end(record.startedAt + durationMs);
  }
}

/**
 * Marks a span as failed. Call it once per span: Deno keeps every value that an attribute was set
 * to.
 */
function fail(span: Span | undefined, type: string): void {
  span?.setAttribute("error.type", type).setStatus({ code: SpanStatusCode.ERROR });
}

function toSpanContext(parent: TraceParent): SpanContext {
  const { traceId, spanId, flags, state } = parent;
  return {
    traceId,
    spanId,
    traceFlags: flags & SAMPLED ? TraceFlags.SAMPLED : TraceFlags.NONE,
    isRemote: true,
    ...(state !== "" && { traceState: createTraceState(state) }),
  };
}

/**
 * Returns the trace context of a call.
 *
 * @param caller The caller's trace, if it can be continued
 */
function toTraceParent(span: SpanContext, caller: CallerTrace | undefined): TraceParent {
  const { traceId, spanId, traceFlags, traceState } = span;
  const continued = caller?.parent.traceId === traceId ? caller.parent : undefined;
  // Deno's spans have no state, and the API can have parsed less than the caller sent.
  const isCallersState = traceState === undefined || traceState === caller?.context.traceState;
  return {
    traceId,
    spanId,
    flags: (traceFlags & SAMPLED) | ((continued?.flags ?? 0) & RANDOM),
    state: isCallersState ? continued?.state ?? "" : traceState.serialize(),
  };
}
