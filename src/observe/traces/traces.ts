/**
 * OpenTelemetry traces: a span for each exchange and for each upstream call. They contain the same
 * facts as the access log: never a key, a prompt, an answer, a query or an address of the caller.
 *
 * The gateway contains only OpenTelemetry's API. To get traces, register an SDK before the gateway
 * starts, or use the one in Deno; without an SDK no exchange is traced.
 *
 * @module
 */
import type { ReportEvent } from "../../exchange/reported_event.ts";
import {
  INVALID_SPAN_CONTEXT,
  ProxyTracerProvider,
  trace,
  type Tracer as ApiTracer,
} from "@opentelemetry/api";
import { systemClock } from "../../exchange/clock.ts";
import type { Tracer } from "../../exchange/observer.ts";
import { ExchangeSpans } from "./exchange_spans.ts";

const NAME = "sallyport";
/** Symbol of OpenTelemetry's global object. Every version of the API finds the SDK through it. */
const API_GLOBAL = Symbol.for("opentelemetry.js.api.1");

/** The part of an SDK that sends waiting spans. */
interface Flushable {
  getDelegate?(): Flushable;
  forceFlush?(): Promise<void>;
}

/** A tracer whose spans go to an SDK. */
export interface Traces extends Tracer {
  /**
   * Sends all waiting spans. Does not fail.
   *
   * @param limitMs The longest time that it waits, milliseconds
   */
  flush(limitMs: number): Promise<void>;
}

/** Deno's global object, with the tracer provider of Deno's own spans. */
type DenoGlobal = {
  readonly Deno?: { readonly telemetry?: { readonly tracerProvider?: unknown } };
};

/**
 * Turns off the spans that Deno creates for requests to its server. They contain the whole URL with
 * its query. The gateway's own spans replace them.
 */
function replaceBuiltIn(tracer: ApiTracer): void {
  const prototype: ApiTracer = Object.getPrototypeOf(tracer);
  const { startSpan } = prototype;
  const none = trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
  prototype.startSpan = function (...args) {
    return this === tracer ? startSpan.apply(this, args) : none;
  };
}

/** Options of {@link createTraces}. */
export interface TracesOptions {
  /** The gateway's version. */
  readonly version: string;
  /** Routes of operations by their names, such as `/v1/responses/{id}`. */
  readonly routes: ReadonlyMap<string, string>;
  /** Called with a message if an SDK can't be used. */
  readonly report: ReportEvent;
}

/**
 * Creates a tracer if an SDK is registered. Called once, at start. An SDK that registers later is
 * not used.
 *
 * @returns `undefined` without an SDK
 */
export function createTraces({ version, routes, report }: TracesOptions): Traces | undefined {
  const provider = trace.getTracerProvider();
  if (provider instanceof ProxyTracerProvider && provider.getDelegateTracer(NAME) === undefined) {
    const global =
      (globalThis as { [API_GLOBAL]?: { version?: string; trace?: unknown } })[API_GLOBAL];
    if (global?.trace !== undefined) {
      const found = `the registered OpenTelemetry API is ${global.version}`;
      report(`no traces: ${found}, and 1.9 or later is needed`, { event: "traces_unavailable" });
    }
    return undefined;
  }
  const tracer = trace.getTracer(NAME, version);
  if (provider === (globalThis as DenoGlobal).Deno?.telemetry?.tracerProvider) {
    replaceBuiltIn(tracer);
  }
  return {
    begin: (exchange, request) => new ExchangeSpans(tracer, routes, exchange, request),
    async flush(limitMs) {
      const flushable = provider as Flushable;
      const sdk = flushable.getDelegate?.() ?? flushable;
      const limit = new Promise<void>((resolve) => void systemClock.timer(limitMs, resolve));
      await Promise.race([sdk.forceFlush?.().catch(() => {}), limit]);
    },
  };
}
