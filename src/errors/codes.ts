/**
 * Every error that the gateway itself makes, in one table.
 *
 * An upstream's own 4xx or 5xx is not an error of the gateway (it passes untouched), and neither is a caller
 * that left (both are outcomes, see `outcomes.ts`).
 *
 * @module
 */
import type { FailureCause, Outcome } from "./outcomes.ts";

/** The word that callers switch on; client libraries expose it as `err.code`. */
export type ErrorCode =
  // address
  | "invalid_host"
  | "unknown_host"
  | "not_found"
  | "method_not_allowed"
  // bytes that are no request, told by the listener
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
  // limits
  | "rate_limit_exceeded"
  | "concurrency_limit_exceeded"
  | "budget_exceeded"
  // body
  | "invalid_json"
  | "invalid_body"
  | "body_timeout"
  | "body_too_large"
  | "unsupported_media_type"
  | "unsupported_content_encoding"
  // upstream
  | "upstream_unreachable"
  | "upstream_bad_response"
  | "upstream_unsupported_encoding"
  | "upstream_connect_timeout"
  | "upstream_first_byte_timeout"
  | "upstream_timeout"
  | "upstream_loop"
  // gateway
  | "gateway_overloaded"
  | "gateway_draining"
  | "key_store_unavailable"
  | "internal_error"
  // in a stream that has begun
  | "upstream_first_event_timeout"
  | "upstream_stream_truncated"
  | "upstream_idle_timeout"
  | "upstream_disconnected";

/** Meaning of one error code on the wire. */
export interface ErrorSpec {
  /** HTTP status, used when no header has been sent yet. */
  readonly status: number;
  /** `error.type` in the body. */
  readonly type: string;
  /** Message in sentence case, without a full stop, and never with a value that the caller sent. */
  readonly message: string;
  /** The header or field that is at fault, unless the code that throws names another. */
  readonly param: string | null;
  /** `x-should-retry`: whether the same call may be sent again without being billed twice. */
  readonly shouldRetry: boolean;
  /** Outcome of an exchange that ends with this error. */
  readonly outcome: Outcome;
  /** Cause of a failed provider call that ends with this error, unless the code that throws names another. */
  readonly failureCause?: FailureCause;
  /** Seconds for `retry-after`, where waiting helps. */
  readonly retryAfterS?: number;
}

const refused = { outcome: "refused", shouldRetry: false } as const;
const authentication = { ...refused, status: 401, type: "authentication_error" } as const;
const permission = { ...refused, status: 403, type: "permission_error" } as const;
const invalid = { ...refused, type: "invalid_request_error" } as const;
const upstream = { type: "upstream_error", param: null } as const;
const limited = { outcome: "refused", status: 429, param: null } as const;
const server = { type: "server_error", param: null } as const;

/** The table: status, type, wording and retry advice of every code, decided here and nowhere else. */
export const ERRORS: Readonly<Record<ErrorCode, ErrorSpec>> = {
  invalid_host: {
    ...invalid,
    status: 400,
    param: "Host",
    message: "Cannot route the request: the Host header is no plain host or host:port",
  },
  unknown_host: {
    ...invalid,
    status: 421,
    param: "Host",
    message: "Cannot route the request: no provider is configured for this host. Check the base URL",
  },
  not_found: {
    ...invalid,
    status: 404,
    param: null,
    message: "Cannot find this path: use POST /v1/chat/completions, GET /v1/models or GET /v1/models/{id}",
  },
  method_not_allowed: {
    ...invalid,
    status: 405,
    param: null,
    message: "Cannot use this method here: the Allow header lists the ones that exist",
  },
  invalid_http: {
    ...invalid,
    status: 400,
    param: null,
    message: "Cannot read the request: it is not well-formed HTTP/1.1",
  },
  headers_too_large: {
    ...invalid,
    status: 431,
    param: null,
    message: "Cannot read the request: its header and URL are larger than 16 KiB",
  },
  headers_timeout: {
    ...invalid,
    status: 408,
    param: null,
    message: "Cannot read the request: its header did not arrive in time",
  },
  missing_gateway_key: {
    ...authentication,
    param: "Gateway-Auth",
    message: "Cannot identify the caller: the Gateway-Auth header is missing. Send Gateway-Auth: Bearer <gateway key>",
  },
  invalid_gateway_auth: {
    ...authentication,
    param: "Gateway-Auth",
    message: "Cannot read the Gateway-Auth header: it must be the word Bearer, one space and one key, given once",
  },
  invalid_gateway_key: {
    ...authentication,
    param: "Gateway-Auth",
    message: "Cannot accept the gateway key: it is unknown, revoked or expired",
  },
  gateway_key_in_authorization: {
    ...authentication,
    param: "Authorization",
    message:
      "Cannot forward the Authorization header: it holds a gateway key. Put the provider's key there and the gateway key in Gateway-Auth",
  },
  missing_upstream_key: {
    ...authentication,
    param: "Authorization",
    message:
      "Cannot forward the request: the Authorization header is missing. Send Authorization: Bearer <your key at the provider>",
  },
  invalid_upstream_auth: {
    ...authentication,
    param: "Authorization",
    message: "Cannot read the Authorization header: it must be the word Bearer, one space and one key, given once",
  },
  gateway_key_misplaced: {
    ...invalid,
    status: 400,
    param: null,
    message:
      "Cannot forward a gateway key: it belongs into the Gateway-Auth header only. Have it revoked if others may have seen it",
  },
  provider_key_in_gateway_auth: {
    ...authentication,
    param: "Gateway-Auth",
    message:
      "Cannot use a provider's key as a gateway key: put it into Authorization, and the key of this gateway into Gateway-Auth",
  },
  provider_not_allowed: {
    ...permission,
    param: null,
    message: "Cannot use this provider: the gateway key does not allow it",
  },
  model_not_allowed: {
    ...permission,
    param: "model",
    message: "Cannot use this model: the gateway key does not allow it",
  },
  rate_limit_exceeded: {
    ...limited,
    type: "rate_limit_error",
    shouldRetry: true,
    retryAfterS: 1,
    message: "Cannot serve the request: a limit of this gateway is reached for now. Send it again later",
  },
  concurrency_limit_exceeded: {
    ...limited,
    type: "rate_limit_error",
    shouldRetry: true,
    retryAfterS: 1,
    message: "Cannot serve the request: too many are open at once. Send it again when others have ended",
  },
  budget_exceeded: {
    ...limited,
    type: "insufficient_quota",
    shouldRetry: false,
    message: "Cannot serve the request: the budget of tokens is used up",
  },
  invalid_json: {
    ...invalid,
    status: 400,
    param: null,
    message: "Cannot read the body: it must be one JSON object in UTF-8, nested at most 128 deep",
  },
  invalid_body: { ...invalid, status: 400, param: null, message: "Cannot accept the body" },
  body_timeout: {
    ...invalid,
    status: 408,
    param: null,
    message: "Cannot read the body: it did not arrive in time",
  },
  body_too_large: {
    ...invalid,
    status: 413,
    param: null,
    message: "Cannot accept the body: it is larger than this gateway allows",
  },
  unsupported_media_type: {
    ...invalid,
    status: 415,
    param: "Content-Type",
    message: "Cannot read the body: send Content-Type: application/json",
  },
  unsupported_content_encoding: {
    ...invalid,
    status: 415,
    param: "Content-Encoding",
    message: "Cannot read the body: send it without a content encoding",
  },
  upstream_unreachable: {
    ...upstream,
    outcome: "upstream_failed",
    failureCause: "unknown",
    status: 502,
    shouldRetry: true,
    message: "Cannot reach the provider: the connection failed before an answer began",
  },
  upstream_bad_response: {
    ...upstream,
    outcome: "upstream_failed",
    failureCause: "malformed",
    status: 502,
    shouldRetry: true,
    message: "Cannot use the provider's answer: it is a redirect or no readable HTTP",
  },
  upstream_unsupported_encoding: {
    ...upstream,
    outcome: "upstream_failed",
    failureCause: "malformed",
    status: 502,
    shouldRetry: false,
    message: "Cannot unpack the provider's answer: its content encoding is not supported here",
  },
  upstream_connect_timeout: {
    ...upstream,
    outcome: "timeout",
    failureCause: "timeout",
    status: 504,
    shouldRetry: true,
    message: "Cannot reach the provider: it did not accept a connection in time",
  },
  upstream_first_byte_timeout: {
    ...upstream,
    outcome: "timeout",
    failureCause: "timeout",
    status: 504,
    shouldRetry: false,
    message: "Cannot wait longer for the provider: its answer did not begin in time. The call may have been billed",
  },
  upstream_timeout: {
    ...upstream,
    outcome: "timeout",
    failureCause: "timeout",
    status: 504,
    shouldRetry: false,
    message: "Cannot wait longer for the provider: the answer took too long as a whole. The call may have been billed",
  },
  upstream_loop: {
    ...upstream,
    outcome: "refused",
    status: 508,
    shouldRetry: false,
    message: "Cannot forward the request: it has come through this gateway before. The upstream leads back to it",
  },
  gateway_overloaded: {
    ...server,
    outcome: "shed",
    status: 503,
    shouldRetry: true,
    retryAfterS: 1,
    message: "Cannot serve the request: this gateway is at its limit. Send it again later",
  },
  gateway_draining: {
    ...server,
    outcome: "drained",
    status: 503,
    shouldRetry: true,
    retryAfterS: 1,
    message: "Cannot serve the request: this gateway is shutting down. Send it again",
  },
  key_store_unavailable: {
    ...server,
    outcome: "shed",
    status: 503,
    shouldRetry: true,
    retryAfterS: 1,
    message: "Cannot check the gateway key: the store of keys does not answer. Send the request again later",
  },
  internal_error: {
    ...server,
    outcome: "failed",
    status: 500,
    shouldRetry: true,
    message: "Cannot serve the request: the gateway failed. Its operator finds the cause under this request's id",
  },
  upstream_first_event_timeout: {
    ...upstream,
    outcome: "timeout",
    failureCause: "timeout",
    status: 504,
    shouldRetry: false,
    message: "Cannot wait longer for the provider: the first event of its stream did not come in time",
  },
  upstream_stream_truncated: {
    ...upstream,
    outcome: "upstream_cut",
    failureCause: "closed",
    status: 502,
    shouldRetry: false,
    message: "Cannot complete the stream: the provider ended it before it was finished",
  },
  upstream_idle_timeout: {
    ...upstream,
    outcome: "timeout",
    failureCause: "timeout",
    status: 504,
    shouldRetry: false,
    message: "Cannot complete the stream: the provider went quiet for too long",
  },
  upstream_disconnected: {
    ...upstream,
    outcome: "upstream_cut",
    failureCause: "unknown",
    status: 502,
    shouldRetry: false,
    message: "Cannot complete the answer: the connection to the provider broke",
  },
};
