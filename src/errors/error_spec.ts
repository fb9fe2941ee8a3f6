/**
 * The form of a row in the table of errors, and the facts that the rows of a family share.
 *
 * @module
 */
import type { FailureCause, Outcome } from "./outcomes.ts";

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
  /**
   * Cause of a failed provider call that ends with this error, unless the code that throws names
   * another.
   */
  readonly failureCause?: FailureCause;
  /** Seconds for `retry-after`, where waiting helps. */
  readonly retryAfterS?: number;
}

/** A row without its text; the rows that begin with it may differ in more. */
export type ErrorFamily = Omit<ErrorSpec, "message">;

const refused = { param: null, outcome: "refused", shouldRetry: false } as const;

/** Requests that are wrong in themselves. */
export const INVALID: ErrorFamily = { ...refused, status: 400, type: "invalid_request_error" };
/** A credential that is missing or wrong. */
export const UNAUTHENTICATED: ErrorFamily = {
  ...refused,
  status: 401,
  type: "authentication_error",
};
/** A credential that does not allow what was asked. */
export const FORBIDDEN: ErrorFamily = { ...refused, status: 403, type: "permission_error" };
/** A limit that is reached for now. */
export const LIMITED: ErrorFamily = {
  ...refused,
  status: 429,
  type: "rate_limit_error",
  shouldRetry: true,
  retryAfterS: 1,
};
/** A gateway that can't serve for now. */
export const UNAVAILABLE: ErrorFamily = {
  param: null,
  outcome: "shed",
  status: 503,
  type: "server_error",
  shouldRetry: true,
  retryAfterS: 1,
};
