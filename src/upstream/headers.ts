/**
 * Allow-lists of the headers that may cross the gateway, in each direction. All others are dropped, among them the
 * caller's cookies, its `Gateway-Auth`, `Host`, forwarding headers and everything meant for one hop (RFC 9110 §7.6.1:
 * `Connection` and what it nominates, `Keep-Alive`, `TE`, `Trailer`, `Transfer-Encoding`, `Upgrade`). Headers with the
 * caller's key at the provider stand on no list: they are decided where credentials are read, and passed in.
 *
 * @module
 */
import type { GatewayRequest } from "../http/message.ts";
import type { UpstreamResponse } from "./transport.ts";

/** Headers by their names in lower case. */
type HeaderSet = Record<string, string>;

/** Headers passed from caller to provider. */
const REQUEST_HEADERS: ReadonlySet<string> = new Set([
  "content-type",
  "accept",
  "user-agent",
  "openai-organization", // https://platform.openai.com/docs/api-reference/authentication
  "openai-project",
  "openai-beta",
  "idempotency-key",
  "x-idempotency-key",
  "http-referer", // OpenRouter: attribution of the app
  "x-title",
  "traceparent", // W3C Trace Context: the caller's own trace, unless the gateway has put its span in between
  "tracestate",
  "x-stainless-lang", // the client libraries' own telemetry
  "x-stainless-package-version",
  "x-stainless-os",
  "x-stainless-arch",
  "x-stainless-runtime",
  "x-stainless-runtime-version",
  "x-stainless-retry-count",
  "x-stainless-timeout",
  "x-stainless-read-timeout",
  "x-stainless-helper-method",
  "x-stainless-async",
]);

/**
 * Headers passed from provider to caller. `content-length` is set anew by the server, `content-encoding` is gone once
 * decoded.
 */
const RESPONSE_HEADERS: ReadonlySet<string> = new Set([
  "content-type",
  "content-language",
  "retry-after",
  "retry-after-ms",
  "x-should-retry",
  "x-generation-id", // OpenRouter
  "x-request-id", // under another name: the gateway has its own
]);
/** Prefixes of the provider's headers that callers read. */
const RESPONSE_PREFIXES = ["x-ratelimit-", "openai-"];

let ownPseudonym: string | undefined;
/**
 * Returns the name of this process in a `Via` field (RFC 9110 §7.6.3): a random pseudonym, which reveals nothing and is
 * unique. Created on first use: Workers have no random numbers before the first request.
 */
const pseudonym = (): string => ownPseudonym ??= `sallyport-${crypto.randomUUID().slice(0, 8)}`;
/** Number of gateways of this kind in a row that is taken for a loop through several of them. */
const MAX_HOPS = 8;

/**
 * Detects a loop: a request that has come through this gateway before, or through too many of its kind. An upstream
 * that leads back here would otherwise be called forever.
 *
 * @param headers The caller's headers
 * @returns Whether it is a loop
 */
export function hasLooped(headers: { get(name: string): string | null }): boolean {
  const via = headers.get("via");
  if (via === null) return false;
  return via.includes(pseudonym()) || via.split("sallyport-").length > MAX_HOPS;
}

// RFC 9110 §5.5 allows visible characters, space, tab and obs-text; anything else could split a header.
// deno-lint-ignore no-control-regex -- control characters are what it looks for
const UNSAFE_VALUE = /[\u0000-\u0008\u000a-\u001f\u007f]|[^\u0000-\u00ff]/;

/**
 * Builds the headers of the call to the provider.
 *
 * @param headers The caller's headers
 * @param credentials The headers with the caller's key at the provider
 * @returns The headers, names in lower case
 */
export function toUpstreamHeaders(headers: GatewayRequest["headers"], credentials: Readonly<HeaderSet>): HeaderSet {
  const forwarded: HeaderSet = {
    ...credentials,
    accept: "*/*", // what is not set here, a runtime's fetch would fill in by itself, each differently
    "user-agent": "sallyport",
    "accept-encoding": "identity", // the relay reads what it passes on
    "via": `1.1 ${pseudonym()}`,
  };
  const via = headers.get("via");
  // Only our own kind: the rest of the way the request took is none of the provider's business.
  const hops = via?.match(/1\.1 sallyport-[0-9a-f]{8}/g)?.slice(0, MAX_HOPS) ?? [];
  if (hops.length > 0) forwarded.via = `${hops.join(", ")}, ${forwarded.via}`;
  headers.forEach((value, name) => {
    if (REQUEST_HEADERS.has(name) && !UNSAFE_VALUE.test(value)) forwarded[name] = value;
  });
  return forwarded;
}

/**
 * Builds the headers of the response to the caller.
 *
 * @param headers The upstream's headers, names in lower case
 * @param isEventStream Whether the body is a stream of events
 * @returns The headers, names in lower case
 */
export function toCallerHeaders(
  headers: Pick<UpstreamResponse["headers"], "forEach">,
  isEventStream: boolean,
): Record<string, string> {
  const relayed: Record<string, string> = {
    "cache-control": isEventStream ? "no-cache, no-transform" : "no-store",
    "x-content-type-options": "nosniff",
  };
  if (isEventStream) relayed["x-accel-buffering"] = "no"; // nginx: do not collect the stream
  headers.forEach((value, name) => {
    const crosses = RESPONSE_HEADERS.has(name) || RESPONSE_PREFIXES.some((prefix) => name.startsWith(prefix));
    if (crosses && !UNSAFE_VALUE.test(value)) {
      relayed[name === "x-request-id" ? "x-upstream-request-id" : name] = value;
    }
  });
  return relayed;
}
