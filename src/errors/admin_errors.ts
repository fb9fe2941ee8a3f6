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
  | "sign_in_failed"
  | "sign_in_unavailable"
  | "too_many_sign_ins"
  | "too_many_wrong_tokens"
  | "invalid_query"
  | "key_not_found"
  | "team_not_found"
  | "refused"
  | "usage_unavailable"
  | "provider_not_found"
  | "recording_not_found"
  | "run_not_found"
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
  sign_in_failed: {
    ...UNAUTHENTICATED,
    message: "Cannot sign in at the identity provider",
  },
  sign_in_unavailable: {
    ...UNAVAILABLE,
    message: "Cannot sign in: the identity provider cannot be used now",
  },
  too_many_sign_ins: {
    ...LIMITED,
    type: "invalid_request_error",
    message: "Cannot sign in: too many operators are signing in. Try again",
  },
  too_many_wrong_tokens: {
    ...LIMITED,
    type: "invalid_request_error",
    message:
      "Cannot act: too many wrong admin tokens were sent. This one was not checked: try again",
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
  team_not_found: {
    ...INVALID,
    status: 404,
    message: "Cannot find a team with this name: sallyport teams list shows all",
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
  run_not_found: {
    ...INVALID,
    status: 404,
    message: "Cannot find a run with this id under this gateway key: GET /v1/runs lists all",
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
    message: "Cannot watch: too many consoles are open. Close one",
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
