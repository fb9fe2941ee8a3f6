/**
 * Attributes and names of spans, by OpenTelemetry's conventions for HTTP
 * (https://opentelemetry.io/docs/specs/semconv/http/) and for generative AI (see `gen_ai.ts`). They
 * contain no more than the access log does.
 *
 * @module
 */
import type { Attributes } from "@opentelemetry/api";
import type { TracedCall, TracedExchange } from "../../exchange/observer.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import { toProviderName } from "../gen_ai.ts";

/**
 * Methods that are recorded by name. All others are recorded as `_OTHER`, because a caller can send
 * any text.
 */
const METHODS: ReadonlySet<string> = new Set(
  ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"],
);
/** Status in the record of an exchange whose caller left before an answer. Spans omit it. */
const NO_STATUS = 499;

/** Name and first attributes of a span. */
interface SpanStart {
  readonly name: string;
  readonly attributes: Attributes;
}

/** Removes attributes without a value. Not every SDK does so. */
const withValues = (attributes: Attributes): Attributes =>
  Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));

/**
 * Describes the span of an exchange at its start. The span has the route of the operation. The
 * caller's own path is omitted, because it can contain more.
 */
export function toExchangeStart(method: string, route: string | undefined): SpanStart {
  const isKnown = METHODS.has(method);
  return {
    name: [isKnown ? method : "HTTP", route].filter((word) => word !== undefined).join(" "),
    attributes: withValues({
      "http.request.method": isKnown ? method : "_OTHER",
      "http.route": route,
    }),
  };
}

/** Returns the attributes of a finished exchange. */
export function toExchangeAttributes(record: ExchangeRecord): Attributes {
  const { outcome, status, attribution = {} } = record;
  return withValues({
    "http.response.status_code": status === NO_STATUS && outcome === "client_closed"
      ? undefined
      : status,
    "sallyport.provider": record.provider,
    "sallyport.operation": record.operation,
    "sallyport.key.id": record.keyId,
    "sallyport.key.name": record.keyName,
    "sallyport.team": record.team,
    "user.id": attribution.user,
    "session.id": attribution.session,
    "gen_ai.agent.id": attribution.agent,
    "user_agent.name": attribution.client,
    "sallyport.project": attribution.project,
    "sallyport.request.id": record.id,
    "sallyport.outcome": outcome,
    "sallyport.cause": record.cause,
    "sallyport.overhead": record.overheadMs / 1000,
  });
}

/** Describes the span of an upstream call at its start. */
export function toCallStart(
  { method, base }: TracedCall,
  { facts, retries }: TracedExchange,
  route: string | undefined,
): SpanStart {
  const { operation, genAi, provider = "", model, stream } = facts;
  const isTls = base.protocol === "https:";
  const attributes = {
    "http.request.method": method,
    "server.address": base.hostname,
    "server.port": Number(base.port) || (isTls ? 443 : 80),
    "http.request.resend_count": retries > 0 ? retries : undefined,
    "sallyport.operation": operation,
  };
  if (genAi === undefined) {
    const name = route === undefined ? method : `${method} ${route}`;
    return { name, attributes: withValues(attributes) };
  }
  return {
    name: model === undefined ? genAi : `${genAi} ${model}`,
    attributes: withValues({
      ...attributes,
      "gen_ai.operation.name": genAi,
      "gen_ai.provider.name": toProviderName(base.hostname, provider),
      "gen_ai.request.model": model,
      "gen_ai.request.stream": stream === true ? true : undefined, // set only for streams
    }),
  };
}

/**
 * Returns the attributes of a finished call to a model. The standard attributes contain tokens only
 * as stated by the provider. An estimate has an attribute of the gateway.
 *
 * @param calledMs Start of the call, in milliseconds after the start of the exchange
 */
export function toCallAttributes(record: ExchangeRecord, calledMs: number): Attributes {
  const { genAi, firstTokenMs, isEstimated = false } = record;
  if (genAi === undefined) return {};
  const usage = isEstimated ? undefined : record.usage;
  const firstChunk = firstTokenMs === undefined ? undefined : (firstTokenMs - calledMs) / 1000;
  return withValues({
    "gen_ai.response.time_to_first_chunk": firstChunk,
    "gen_ai.usage.input_tokens": usage?.input,
    "gen_ai.usage.output_tokens": usage?.output,
    "gen_ai.usage.cache_read.input_tokens": usage?.cached,
    "gen_ai.usage.reasoning.output_tokens": usage?.reasoning,
    "sallyport.estimated_tokens": isEstimated ? record.usage?.total : undefined,
  });
}

/**
 * Returns the type of an exchange's error: the gateway's code, the provider's status, or
 * `upstream_error` for an error event.
 */
export function errorTypeOf({ outcome, status, code }: ExchangeRecord): string | undefined {
  if (code !== undefined || outcome !== "upstream_error") return code;
  return status >= 400 ? String(status) : outcome;
}
