/**
 * Errors of the call to the provider: no connection, no usable answer, an answer that breaks off, a
 * deadline.
 *
 * @module
 */
import type { ErrorFamily, ErrorSpec } from "./error_spec.ts";

/** Codes of errors of the call to the provider. */
export type UpstreamErrorCode =
  // before an answer has begun
  | "upstream_unreachable"
  | "upstream_bad_response"
  | "upstream_unsupported_encoding"
  | "upstream_connect_timeout"
  | "upstream_first_byte_timeout"
  | "upstream_timeout"
  | "upstream_loop"
  // in a stream that has begun
  | "upstream_first_event_timeout"
  | "upstream_stream_truncated"
  | "upstream_idle_timeout"
  | "upstream_disconnected";

const UPSTREAM = { type: "upstream_error", param: null, shouldRetry: false } as const;
const FAILED: ErrorFamily = {
  ...UPSTREAM,
  outcome: "upstream_failed",
  failureCause: "malformed",
  status: 502,
};
const LATE: ErrorFamily = { ...UPSTREAM, outcome: "timeout", failureCause: "timeout", status: 504 };
const CUT: ErrorFamily = {
  ...UPSTREAM,
  outcome: "upstream_cut",
  failureCause: "unknown",
  status: 502,
};

/** The rows of these errors. */
export const UPSTREAM_ERRORS: Readonly<Record<UpstreamErrorCode, ErrorSpec>> = {
  upstream_unreachable: {
    ...FAILED,
    failureCause: "unknown",
    shouldRetry: true,
    message: "Cannot reach the provider: the connection failed before an answer began",
  },
  upstream_bad_response: {
    ...FAILED,
    shouldRetry: true,
    message: "Cannot use the provider's answer: it is a redirect or not readable HTTP",
  },
  upstream_unsupported_encoding: {
    ...FAILED,
    message: "Cannot unpack the provider's answer: its content encoding is not supported here",
  },
  upstream_connect_timeout: {
    ...LATE,
    shouldRetry: true,
    message: "Cannot reach the provider: it did not accept a connection in time",
  },
  upstream_first_byte_timeout: {
    ...LATE,
    message: "Cannot wait longer for the provider: its answer did not begin in time. " +
      "The call may have been billed",
  },
  upstream_timeout: {
    ...LATE,
    message: "Cannot wait longer for the provider: the answer took too long as a whole. " +
      "The call may have been billed",
  },
  upstream_loop: {
    ...UPSTREAM,
    outcome: "refused",
    status: 508,
    message: "Cannot forward the request: it has passed this gateway before. " +
      "The upstream leads back to it",
  },
  upstream_first_event_timeout: {
    ...LATE,
    message:
      "Cannot wait longer for the provider: the first event of its stream did not arrive in time",
  },
  upstream_stream_truncated: {
    ...CUT,
    failureCause: "closed",
    message: "Cannot complete the stream: the provider ended it before it was finished",
  },
  upstream_idle_timeout: {
    ...LATE,
    message: "Cannot complete the stream: the provider went quiet for too long",
  },
  upstream_disconnected: {
    ...CUT,
    message: "Cannot complete the answer: the connection to the provider broke",
  },
};

/** Codes of calls that never reached the provider. */
export const NEVER_SENT: ReadonlySet<string | undefined> = new Set<UpstreamErrorCode>([
  "upstream_unreachable",
  "upstream_connect_timeout",
]);

/**
 * Codes of calls that never reached the provider, or that it failed to answer. Callers cannot cause
 * them.
 */
export const UNANSWERED: ReadonlySet<string | undefined> = new Set<string | undefined>([
  ...NEVER_SENT,
  "upstream_disconnected",
  "upstream_bad_response",
]);
