/**
 * Attributes and names of spans, by OpenTelemetry's conventions for HTTP and for generative models
 * (https://opentelemetry.io/docs/specs/semconv/). They hold no more than the access log.
 *
 * @module
 */
import type { Attributes } from "@opentelemetry/api";
import { isAzure } from "../../config/credential.ts";
import { PRESETS } from "../../config/presets.ts";
import type { TracedCall, TracedExchange } from "../../exchange/observer.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";

/** Methods that are recorded by name; any other is `_OTHER`, for a caller can send any text. */
const METHODS: ReadonlySet<string> = new Set(
  ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"],
);
/** Names of providers in the conventions, where they differ from the names of the presets. */
const SPELLINGS: Readonly<Record<string, string>> = {
  mistral: "mistral_ai",
  xai: "x_ai",
  gemini: "gcp.gemini",
};
/** Names of known providers by their hosts. */
const KNOWN_PROVIDERS: ReadonlyMap<string, string> = new Map(
  Object.entries(PRESETS).filter(([, url]) => url.startsWith("https:"))
    .map(([name, url]) => [new URL(url).hostname, SPELLINGS[name] ?? name]),
);
/** Returns the name of the provider at a host; for an unknown one that of the configuration. */
const nameProvider = (hostname: string, configured: string): string =>
  KNOWN_PROVIDERS.get(hostname) ?? (isAzure(hostname) ? "azure.ai.openai" : configured);

/** Status in the record of an exchange whose caller left before an answer; spans leave it out. */
const NO_STATUS = 499;

/** Name of a span, and the attributes that it starts with. */
interface SpanStart {
  readonly name: string;
  readonly attributes: Attributes;
}

/** Removes attributes without a value: not every SDK does. */
const withValues = (attributes: Attributes): Attributes =>
  Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));

/**
 * Describes the span of an exchange at its start.
 *
 * @param method The caller's method
 * @param route Route of the operation. The caller's own path is not recorded, for it can hold more
 */
export function toExchangeStart(method: string, route: string | undefined): SpanStart {
  const isKnown = METHODS.has(method);
  return {
    name: [isKnown ? method : "HTTP", route].filter((word) => word !== undefined).join(" "),
    attributes: withValues({ "http.request.method": isKnown ? method : "_OTHER", "http.route": route }),
  };
}

/** Returns the attributes of an exchange that is over. @param record Its record */
export function toExchangeAttributes(record: ExchangeRecord): Attributes {
  const { outcome, status } = record;
  return withValues({
    "http.response.status_code": status === NO_STATUS && outcome === "client_closed" ? undefined : status,
    "sallyport.provider": record.provider,
    "sallyport.key.id": record.keyId,
    "sallyport.request.id": record.id,
    "sallyport.outcome": outcome,
    "sallyport.cause": record.cause,
    "sallyport.overhead": record.overheadMs / 1000,
  });
}

/**
 * Describes the span of an upstream call at its start.
 *
 * @param call The call
 * @param exchange Its exchange
 * @param route Route of the operation
 */
export function toCallStart(
  { method, base }: TracedCall,
  { facts, retries }: TracedExchange,
  route: string | undefined,
): SpanStart {
  const { operation, provider = "", model = "", stream = false } = facts;
  const attributes = withValues({
    "http.request.method": method,
    "server.address": base.hostname,
    "server.port": Number(base.port) || (base.protocol === "https:" ? 443 : 80),
    "http.request.resend_count": retries > 0 ? retries : undefined,
  });
  if (operation !== "chat.completions") return { name: `${method} ${route ?? ""}`, attributes };
  return {
    name: `chat ${model}`,
    attributes: {
      ...attributes,
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": nameProvider(base.hostname, provider),
      "gen_ai.request.model": model,
      "gen_ai.request.stream": stream,
    },
  };
}

/**
 * Returns the attributes of a call whose answer is complete. Tokens only as the provider stated them.
 *
 * @param record The record of its exchange
 * @param calledMs Start of the call, milliseconds after that of the exchange
 */
export function toCallAttributes({ usage, firstTokenMs }: ExchangeRecord, calledMs: number): Attributes {
  const firstChunk = firstTokenMs === undefined ? undefined : (firstTokenMs - calledMs) / 1000;
  return withValues({
    "gen_ai.response.time_to_first_chunk": firstChunk,
    "gen_ai.usage.input_tokens": usage?.input,
    "gen_ai.usage.output_tokens": usage?.output,
    "gen_ai.usage.cache_read.input_tokens": usage?.cached,
    "gen_ai.usage.reasoning.output_tokens": usage?.reasoning,
  });
}

/**
 * Returns the type of an exchange's error: the gateway's code, the provider's status, or `upstream_error` for an error
 * event.
 *
 * @param record Its record
 */
export function errorTypeOf({ outcome, status, code }: ExchangeRecord): string | undefined {
  if (code !== undefined || outcome !== "upstream_error") return code;
  return status >= 400 ? String(status) : outcome;
}
