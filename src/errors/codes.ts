/**
 * Every error that the gateway itself makes, in one table by its code. The rows stand in four
 * families.
 *
 * An upstream's own 4xx or 5xx is not an error of the gateway (it passes untouched), and neither is
 * a caller that left (both are outcomes, see `outcomes.ts`).
 *
 * @module
 */
import { ADMIN_ERRORS, type AdminErrorCode } from "./admin_errors.ts";
import { DURABLE_ERRORS, type DurableErrorCode } from "./durable_errors.ts";
import type { ErrorSpec } from "./error_spec.ts";
import { REQUEST_ERRORS, type RequestErrorCode } from "./request_errors.ts";
import { UPSTREAM_ERRORS, type UpstreamErrorCode } from "./upstream_errors.ts";

/** The word that callers switch on; client libraries expose it as `err.code`. */
export type ErrorCode = RequestErrorCode | UpstreamErrorCode | DurableErrorCode | AdminErrorCode;

/**
 * The table: status, type, wording and retry advice of every code, decided here and nowhere else.
 */
export const ERRORS: Readonly<Record<ErrorCode, ErrorSpec>> = {
  ...REQUEST_ERRORS,
  ...UPSTREAM_ERRORS,
  ...DURABLE_ERRORS,
  ...ADMIN_ERRORS,
};
