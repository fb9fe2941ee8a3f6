/**
 * Errors of a request before its call to the provider: its address, credentials, permissions,
 * limits and body, and the state of the gateway.
 *
 * @module
 */
import {
  type ErrorSpec,
  FORBIDDEN,
  INVALID,
  LIMITED,
  UNAUTHENTICATED,
  UNAVAILABLE,
} from "./error_spec.ts";

/** Codes of errors before the call to the provider. */
export type RequestErrorCode =
  // address
  | "invalid_host"
  | "unknown_host"
  | "not_found"
  | "ambiguous_path"
  | "websocket_not_supported"
  | "method_not_allowed"
  // bytes that are not a request, reported by the listener
  | "invalid_http"
  | "headers_too_large"
  | "headers_timeout"
  // identity
  | "missing_gateway_key"
  | "invalid_gateway_auth"
  | "invalid_gateway_key"
  | "gateway_key_in_authorization"
  | "missing_upstream_key"
  | "invalid_upstream_auth"
  | "gateway_key_misplaced"
  | "provider_key_in_gateway_auth"
  // policy
  | "provider_not_allowed"
  | "model_not_allowed"
  | "operation_not_allowed"
  | "origin_not_allowed"
  | "model_not_priced"
  | "operation_not_metered"
  | "key_not_understood"
  | "team_not_configured"
  // limits
  | "rate_limit_exceeded"
  | "concurrency_limit_exceeded"
  | "budget_exceeded"
  | "request_exceeds_limit"
  // runs
  | "run_budget_exceeded"
  | "run_stopped"
  | "run_repeats"
  | "invalid_run"
  | "too_many_runs"
  | "runs_unavailable"
  // body
  | "invalid_json"
  | "invalid_body"
  | "body_timeout"
  | "body_too_large"
  | "unsupported_media_type"
  | "unsupported_content_encoding"
  | "invalid_content_encoding"
  // gateway
  | "gateway_overloaded"
  | "gateway_draining"
  | "key_store_unavailable"
  | "upstream_key_unavailable"
  | "internal_error";

/** The rows of these errors. */
export const REQUEST_ERRORS: Readonly<Record<RequestErrorCode, ErrorSpec>> = {
  invalid_host: {
    ...INVALID,
    param: "Host",
    message: "Cannot route the request: the Host header is not a plain host or host:port",
  },
  unknown_host: {
    ...INVALID,
    status: 421,
    param: "Host",
    message:
      "Cannot route the request: no provider is configured for this host. Check the base URL",
  },
  not_found: {
    ...INVALID,
    status: 404,
    message: "Cannot find this path: expected /v1 and the path of an operation, " +
      "such as /v1/chat/completions",
  },
  ambiguous_path: {
    ...INVALID,
    message: "Cannot route the request: servers could read its path in different ways. " +
      "Send it without encoded slashes or dots, semicolons, backslashes and empty segments, " +
      "and keep upper and lower case as documented",
  },
  websocket_not_supported: {
    ...INVALID,
    status: 426,
    message: "Cannot open a WebSocket: this gateway supports only HTTP. " +
      "Use the same operation over HTTP, or streaming",
  },
  method_not_allowed: {
    ...INVALID,
    status: 405,
    message: "Cannot use this method here: the Allow header lists the allowed methods",
  },
  invalid_http: {
    ...INVALID,
    message: "Cannot read the request: it is not well-formed HTTP/1.1",
  },
  headers_too_large: {
    ...INVALID,
    status: 431,
    message: "Cannot read the request: its header and URL are larger than 16 KiB",
  },
  headers_timeout: {
    ...INVALID,
    status: 408,
    message: "Cannot read the request: its header did not arrive in time",
  },
  missing_gateway_key: {
    ...UNAUTHENTICATED,
    param: "Gateway-Auth",
    message: "Cannot identify the caller: the Gateway-Auth header is missing. " +
      "Authorization is for the key at the provider. Send Gateway-Auth: Bearer <gateway key>",
  },
  invalid_gateway_auth: {
    ...UNAUTHENTICATED,
    param: "Gateway-Auth",
    message: "Cannot read the Gateway-Auth header: " +
      "it must be the word Bearer, one space and one key, given once",
  },
  invalid_gateway_key: {
    ...UNAUTHENTICATED,
    param: "Gateway-Auth",
    message: "Cannot accept the gateway key: it is unknown, revoked or expired",
  },
  gateway_key_in_authorization: {
    ...UNAUTHENTICATED,
    param: "Authorization",
    message: "Cannot forward the provider's key: a gateway key is in its place. " +
      "Put the provider's key there and the gateway key in Gateway-Auth",
  },
  missing_upstream_key: {
    ...UNAUTHENTICATED,
    param: "Authorization",
    message: "Cannot forward the request without the caller's key at the provider",
  },
  invalid_upstream_auth: {
    ...UNAUTHENTICATED,
    param: "Authorization",
    message: "Cannot read the caller's key at the provider",
  },
  gateway_key_misplaced: {
    ...INVALID,
    message: "Cannot forward a gateway key: it belongs in the Gateway-Auth header only. " +
      "Have it revoked if others may have seen it",
  },
  provider_key_in_gateway_auth: {
    ...UNAUTHENTICATED,
    param: "Gateway-Auth",
    message: "Cannot use a provider's key as a gateway key: " +
      "put it into the header of the provider, and the key of this gateway into Gateway-Auth",
  },
  provider_not_allowed: {
    ...FORBIDDEN,
    message: "Cannot use this provider: the gateway key does not allow it",
  },
  model_not_allowed: {
    ...FORBIDDEN,
    param: "model",
    message: "Cannot use this model: the gateway key does not allow it",
  },
  operation_not_allowed: {
    ...FORBIDDEN,
    message: "Cannot use this operation: it is not enabled",
  },
  origin_not_allowed: {
    ...FORBIDDEN,
    param: "Origin",
    message: "Cannot let pages of this origin call from a browser: " +
      "the gateway's operator has to add the origin to cors",
  },
  model_not_priced: {
    ...FORBIDDEN,
    param: "model",
    message: "Cannot count the cost of this model, and a budget of money applies: " +
      "the gateway's operator has to set its price",
  },
  operation_not_metered: {
    ...FORBIDDEN,
    message: "Cannot count the cost of this call: its answer does not state what it used, " +
      "and a limit of tokens or money applies",
  },
  key_not_understood: {
    ...FORBIDDEN,
    param: "Gateway-Auth",
    message: "Cannot apply a restriction of the gateway key: " +
      "this gateway does not know the restriction. Ask the gateway's operator",
  },
  team_not_configured: {
    ...FORBIDDEN,
    param: "Gateway-Auth",
    message: "Cannot find the team of the gateway key: the team is not configured. " +
      "Ask the gateway's operator to add it, or to move the key to another team",
  },
  rate_limit_exceeded: {
    ...LIMITED,
    message:
      "Cannot serve the request: a limit of this gateway is reached for now. Send it again later",
  },
  concurrency_limit_exceeded: {
    ...LIMITED,
    message:
      "Cannot serve the request: too many are open at once. Send it again when others have ended",
  },
  budget_exceeded: {
    outcome: "refused",
    status: 429,
    type: "insufficient_quota",
    param: null,
    shouldRetry: false,
    message: "Cannot serve the request: the budget is used up",
  },
  request_exceeds_limit: {
    ...INVALID,
    message:
      "Cannot serve the request: it could use more than a limit of this gateway allows in total. " +
      "Shorten it, or ask for fewer tokens",
  },
  run_budget_exceeded: {
    outcome: "refused",
    status: 429,
    type: "insufficient_quota",
    param: "Gateway-Run",
    shouldRetry: false,
    message:
      "Cannot serve the request: the limits of its run are used up, and they do not reset. " +
      "Begin another run if the work is meant to go on",
  },
  // Not 403: agents answer that with a new sign-in. Client libraries do not retry 410.
  run_stopped: {
    ...INVALID,
    status: 410,
    param: "Gateway-Run",
    message: "Cannot serve the request: its run was stopped by an operator. " +
      "Begin another run if the work is meant to go on",
  },
  run_repeats: {
    ...INVALID,
    status: 429,
    param: "Gateway-Run",
    message: "Cannot serve the request: its run has sent the same body too many times in a row, " +
      "as an agent in a loop does. Send another body, or end the work of this run. If the repeats " +
      "are meant, ask the gateway's operator to raise runs.repeats, or to set runs.onRepeat to report",
  },
  invalid_run: {
    ...INVALID,
    param: "Gateway-Run",
    message: "Cannot read the run that the request names",
  },
  too_many_runs: {
    ...LIMITED,
    param: "Gateway-Run",
    shouldRetry: false,
    message: "Cannot open another run: the gateway key has too many that were used recently. " +
      "Continue one of them, or ask the gateway's operator to raise runs.maxPerKey",
  },
  runs_unavailable: {
    ...UNAVAILABLE,
    message: "Cannot count the request in its run: the store of runs does not answer. " +
      "Send the request again later",
  },
  invalid_json: {
    ...INVALID,
    message: "Cannot read the body: it must be one JSON object in UTF-8, nested at most 128 deep",
  },
  invalid_body: {
    ...INVALID,
    message: "Cannot accept the body",
  },
  body_timeout: {
    ...INVALID,
    status: 408,
    message: "Cannot read the body: it did not arrive in time",
  },
  body_too_large: {
    ...INVALID,
    status: 413,
    message: "Cannot accept the body: it is larger than this gateway allows",
  },
  unsupported_media_type: {
    ...INVALID,
    status: 415,
    param: "Content-Type",
    message: "Cannot read the body: send Content-Type: application/json",
  },
  unsupported_content_encoding: {
    ...INVALID,
    status: 415,
    param: "Content-Encoding",
    message: "Cannot read the body: send it without this content encoding",
  },
  invalid_content_encoding: {
    ...INVALID,
    param: "Content-Encoding",
    message: "Cannot unpack the body: it is not one complete body in its content encoding",
  },
  gateway_overloaded: {
    ...UNAVAILABLE,
    message: "Cannot serve the request: this gateway is at its limit. Send it again later",
  },
  gateway_draining: {
    ...UNAVAILABLE,
    outcome: "drained",
    message: "Cannot serve the request: this gateway is shutting down. Send it again",
  },
  key_store_unavailable: {
    ...UNAVAILABLE,
    message: "Cannot check the gateway key: the store of keys does not answer. " +
      "Send the request again later",
  },
  upstream_key_unavailable: {
    ...UNAVAILABLE,
    message: "Cannot call the provider: the gateway holds the key for this call, and cannot read " +
      "it. Send a key of your own, or ask the gateway's operator",
  },
  internal_error: {
    outcome: "failed",
    status: 500,
    type: "server_error",
    param: null,
    shouldRetry: true,
    message: "Cannot serve the request: the gateway failed. " +
      "Its operator can find the cause by the id of this request",
  },
};
