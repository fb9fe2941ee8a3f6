/**
 * Answers for pages in browsers, by the CORS protocol
 * (https://fetch.spec.whatwg.org/#http-cors-protocol). It wraps the pipeline, so that all answers
 * have its headers, and a gateway without `cors` runs none of this code.
 *
 * `access-control-allow-credentials` is never sent: both keys are headers that a page sets itself,
 * and cookies have no meaning here. Headers for Private Network Access are not sent either, because
 * no browser has ever enforced it. Chromium asks its user instead (Local Network Access).
 *
 * @module
 */
import type { CorsConfig } from "../config/cors.ts";
import { GatewayError, toErrorResponse } from "../errors/gateway_error.ts";
import {
  type GatewayRequest,
  type GatewayResponse,
  isDrainable,
  METHODS,
} from "../http/message.ts";
import type { Handler } from "../http/web.ts";

/** Request headers that decide the answer to a preflight. */
const PREFLIGHT_VARY = "origin, access-control-request-method, access-control-request-headers";
/** A header's name (RFC 9110 §5.6.2). */
const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

/**
 * Returns the value of `access-control-allow-origin` for an `Origin`; `undefined` if its pages are
 * not allowed to call.
 */
type OriginCheck = (origin: string | null) => string | undefined;

function createOriginCheck(origins: CorsConfig["origins"]): OriginCheck {
  if (origins.includes("*")) return () => "*";
  const exact = new Set(origins.filter((origin) => !origin.endsWith(":*")));
  const anyPort = new Set(
    origins.filter((origin) => origin.endsWith(":*")).map((origin) => origin.slice(0, -2)),
  );
  return (origin) => {
    if (origin === null) return undefined;
    return exact.has(origin) || anyPort.has(origin.replace(/:[0-9]+$/, "")) ? origin : undefined;
  };
}

/** Returns whether a request is a preflight, and not another request with the method OPTIONS. */
function isPreflight({ method, headers }: GatewayRequest): boolean {
  return method === "OPTIONS" && headers.get("origin") !== null &&
    headers.get("access-control-request-method") !== null;
}

/**
 * Returns the names of headers that a page wants to send. All of them are allowed, by name because
 * `*` does not include `Authorization`. The lists in `upstream/header_lists.ts` decide which
 * headers reach the provider.
 */
function readRequestedHeaders({ headers }: GatewayRequest): string | undefined {
  const names =
    headers.get("access-control-request-headers")?.split(",").map((name) => name.trim()) ?? [];
  return names.length > 0 && names.every((name) => TOKEN.test(name)) ? names.join(", ") : undefined;
}

/** Makes the answer to a preflight of an allowed origin. */
function allowCall(request: GatewayRequest, origin: string, maxAgeS: number): GatewayResponse {
  const headers: Record<string, string> = {
    "access-control-allow-origin": origin,
    "access-control-allow-methods": METHODS.join(", "), // a 405 can be read by the page
    "access-control-max-age": String(maxAgeS),
  };
  const requested = readRequestedHeaders(request);
  if (requested !== undefined) headers["access-control-allow-headers"] = requested;
  return { status: 204, headers, body: null };
}

/**
 * Answers a preflight. It has no key, and its answer does not depend on host, path or state, so it
 * reveals nothing about them.
 */
function answerPreflight(
  request: GatewayRequest,
  allowed: string | undefined,
  maxAgeS: number,
): GatewayResponse {
  // For an origin that is not allowed, the standard requires none of the headers, and recommends
  // the status 403.
  const answer = allowed === undefined
    ? toErrorResponse(new GatewayError("origin_not_allowed"))
    : allowCall(request, allowed, maxAgeS);
  answer.headers.vary = PREFLIGHT_VARY;
  if (!isDrainable(request)) answer.headers.connection = "close";
  return answer;
}

/** Adds `origin` to the field `Vary` of an answer. */
function addOrigin(vary = ""): string {
  const names = vary.split(",").map((name) => name.trim()).filter((name) => name !== "");
  const isCovered = names.some((name) => name === "*" || name.toLowerCase() === "origin");
  return isCovered ? vary : [...names, "origin"].join(", ");
}

/**
 * Makes a handler that answers preflights itself, and lets pages of the allowed origins read all
 * other answers. Requests of other origins are answered too, because programs can send them.
 * Browsers hide these answers from their pages.
 */
export function withCors(
  handle: Handler["handle"],
  { origins, maxAgeMs }: CorsConfig,
): Handler["handle"] {
  const checkOrigin = createOriginCheck(origins);
  const maxAgeS = Math.floor(maxAgeMs / 1000);
  return async (request) => {
    const allowed = checkOrigin(request.headers.get("origin"));
    if (isPreflight(request)) return answerPreflight(request, allowed, maxAgeS);
    const answer = await handle(request);
    const { headers } = answer;
    if (allowed !== undefined) {
      // A page can read all headers that a caller can read, because it sends the same keys.
      headers["access-control-expose-headers"] = Object.keys(headers).join(", ");
      headers["access-control-allow-origin"] = allowed;
    }
    if (allowed !== "*") headers.vary = addOrigin(headers.vary);
    return answer;
  };
}
