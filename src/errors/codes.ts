/**
 * All errors of the gateway itself, in one table by code. The rows are in four families.
 *
 * A 4xx or 5xx of an upstream is not an error of the gateway, and is forwarded unchanged. A caller
 * that left is no error either. Both are outcomes, see `outcomes.ts`.
 *
 * @module
 */
import { ADMIN_ERRORS, type AdminErrorCode } from "./admin_errors.ts";
import { DURABLE_ERRORS, type DurableErrorCode } from "./durable_errors.ts";
import type { ErrorSpec } from "./error_spec.ts";
import { REQUEST_ERRORS, type RequestErrorCode } from "./request_errors.ts";
import { UPSTREAM_ERRORS, type UpstreamErrorCode } from "./upstream_errors.ts";

/** The code that callers check. Client libraries expose it as `err.code`. */
export type ErrorCode = RequestErrorCode | UpstreamErrorCode | DurableErrorCode | AdminErrorCode;

/** The table with status, type, text and retry advice of every code. */
export const ERRORS: Readonly<Record<ErrorCode, ErrorSpec>> = {
  ...REQUEST_ERRORS,
  ...UPSTREAM_ERRORS,
  ...DURABLE_ERRORS,
  ...ADMIN_ERRORS,
};
