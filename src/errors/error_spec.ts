/**
 * The form of a row in the table of errors, and the common facts of each family.
 *
 * @module
 */
import type { FailureCause, Outcome } from "./outcomes.ts";

/** Meaning of one error code on the wire. */
export interface ErrorSpec {
  /** HTTP status, used if no header has been sent yet. */
  readonly status: number;
  /** `error.type` in the body. */
  readonly type: string;
  /** Message in sentence case, without a full stop, and never with a value that the caller sent. */
  readonly message: string;
  /** The faulty header or field, unless the thrown error names another. */
  readonly param: string | null;
  /** `x-should-retry`: true if the same call can be sent again without being billed twice. */
  readonly shouldRetry: boolean;
  /** Outcome of an exchange that ends with this error. */
  readonly outcome: Outcome;
  /**
   * Cause of a failed provider call that ends with this error, unless the thrown error names
   * another.
   */
  readonly failureCause?: FailureCause;
  /** Seconds for `retry-after`, if waiting helps. */
  readonly retryAfterS?: number;
}

/** A row without its text. Rows that use it can also override other fields. */
export type ErrorFamily = Omit<ErrorSpec, "message">;

const refused = { param: null, outcome: "refused", shouldRetry: false } as const;

/** Invalid requests. */
export const INVALID: ErrorFamily = { ...refused, status: 400, type: "invalid_request_error" };
/** A missing or wrong credential. */
export const UNAUTHENTICATED: ErrorFamily = {
  ...refused,
  status: 401,
  type: "authentication_error",
};
/** A credential that does not allow the request. */
export const FORBIDDEN: ErrorFamily = { ...refused, status: 403, type: "permission_error" };
/** A limit that is temporarily reached. */
export const LIMITED: ErrorFamily = {
  ...refused,
  status: 429,
  type: "rate_limit_error",
  shouldRetry: true,
  retryAfterS: 1,
};
/** A gateway that temporarily cannot serve. */
export const UNAVAILABLE: ErrorFamily = {
  param: null,
  outcome: "shed",
  status: 503,
  type: "server_error",
  shouldRetry: true,
  retryAfterS: 1,
};
