/**
 * Errors of the admin listener, in addition to the errors for callers. Operators read them.
 *
 * @module
 */
import { type ErrorSpec, INVALID, LIMITED, UNAUTHENTICATED, UNAVAILABLE } from "./error_spec.ts";

/** Codes of errors that only the admin listener has. */
export type AdminErrorCode =
  | "unknown_admin_host"
  | "unknown_admin_path"
  | "cross_site_request"
  | "no_admin_token"
  | "invalid_admin_token"
  | "role_not_allowed"
  | "too_many_wrong_tokens"
  | "invalid_query"
  | "key_not_found"
  | "refused"
  | "usage_unavailable"
  | "provider_not_found"
  | "recording_not_found"
  | "gateway_not_found"
  | "fleet_unavailable"
  | "leaving"
  | "too_many_watchers"
  | "unreachable"
  | "admin_failed";

/** The rows of these errors. For errors of a store, the answer has the store's own text. */
export const ADMIN_ERRORS: Readonly<Record<AdminErrorCode, ErrorSpec>> = {
  unknown_admin_host: {
    ...INVALID,
    status: 421,
    message: "Cannot answer to this Host: " +
      "without admin.token only localhost, 127.0.0.1 and [::1] are known here. " +
      "Use one of them, or set a token",
  },
  unknown_admin_path: {
    ...INVALID,
    status: 404,
    message: "Cannot find this path: use /livez, /readyz, /openapi.json, /v1/keys, /v1/usage, " +
      "or the console at /",
  },
  cross_site_request: {
    ...INVALID,
    status: 403,
    message: "Cannot answer a page of another site: set admin.token first",
  },
  no_admin_token: {
    ...INVALID,
    status: 403,
    message: "Cannot manage keys or report usage: set admin.token in the configuration first",
  },
  invalid_admin_token: {
    ...UNAUTHENTICATED,
    message: "Cannot act without the admin token, or an identity token with a role",
  },
  role_not_allowed: {
    ...INVALID,
    status: 403,
    message: "Cannot change anything as a viewer: sign in with the role admin",
  },
  too_many_wrong_tokens: {
    ...LIMITED,
    type: "invalid_request_error",
    message:
      "Cannot act: too many wrong admin tokens were shown. This one was not checked: try again",
  },
  invalid_query: {
    ...INVALID,
    message: "Cannot accept the query",
  },
  key_not_found: {
    ...INVALID,
    status: 404,
    message: "Cannot find a key with this id: sallyport keys list shows all",
  },
  refused: {
    ...INVALID,
    status: 409,
    message: "Cannot change or list keys in this way: their state does not allow it",
  },
  usage_unavailable: {
    ...UNAVAILABLE,
    message: "Cannot read usage: its file is broken, or Redis does not answer",
  },
  provider_not_found: {
    ...INVALID,
    status: 404,
    message: "Cannot call this provider",
  },
  recording_not_found: {
    ...INVALID,
    status: 404,
    message: "Cannot find a durable exchange with this id: " +
      "GET /v1/recordings lists all that run or are kept",
  },
  gateway_not_found: {
    ...INVALID,
    status: 404,
    message: "Cannot find this gateway: GET /v1/fleet lists all",
  },
  fleet_unavailable: {
    ...UNAVAILABLE,
    message: "Cannot reach the other gateways: Redis does not answer",
  },
  leaving: {
    ...INVALID,
    status: 409,
    message: "Cannot do this: the gateway is shutting down, which cannot be undone",
  },
  too_many_watchers: {
    ...UNAVAILABLE,
    message: "Cannot watch: too many others do. Close a console",
  },
  unreachable: {
    ...UNAVAILABLE,
    status: 502,
    message: "Cannot reach the gateway: no worker answered",
  },
  admin_failed: {
    outcome: "failed",
    status: 500,
    type: "server_error",
    param: null,
    shouldRetry: true,
    message: "Cannot do this: the gateway failed",
  },
};
