/**
 * The error class for refusals and failures, and its answer on the wire.
 *
 * @module
 */
import type { GatewayResponse } from "../http/message.ts";
import { type ErrorCode, ERRORS } from "./codes.ts";
import type { FailureCause } from "./outcomes.ts";

/** Details of one occurrence of an error. */
export interface GatewayErrorDetails {
  /** The faulty header or path in the body, such as `messages[0].role`. */
  readonly param?: string;
  /**
   * Description of the expected value. It is sent to the caller, so it never contains a value that
   * the caller sent.
   */
  readonly detail?: string;
  /** Headers that the answer has in addition to its own, such as `allow`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Time after which to retry, milliseconds. Default: the value of the table. */
  readonly retryAfterMs?: number;
  /** The refusing limit, by its name in `RateLimit`. For the record. */
  readonly limit?: string;
  /** Number of times in a row that its run has sent the body, if that is the reason. For the record. */
  readonly repeats?: number | undefined;
  /** Cause of the failed provider call. Default: the value of the table. For the record. */
  readonly failureCause?: FailureCause | undefined;
  /** The original error. For the log, never for the caller. */
  readonly cause?: unknown;
}

/**
 * A refusal or failure that the caller sees. Its message is from {@link ERRORS}, never from its
 * cause.
 *
 * @example Answer 503 if a store of keys cannot be reached
 * ```ts
 * import { GatewayError, type KeyStore } from "sallyport";
 *
 * const keys: KeyStore = {
 *   find: () => Promise.reject(new GatewayError("key_store_unavailable")),
 * };
 * ```
 */
export class GatewayError extends Error {
  /** The name that {@link GatewayError.is} recognizes. */
  override readonly name = "GatewayError";
  /** The code; its row in {@link ERRORS} decides everything else. */
  readonly code: ErrorCode;
  /** The faulty header or path in the body. */
  readonly param: string | null;
  /** Headers that the answer has in addition to its own. */
  readonly headers: Readonly<Record<string, string>>;
  /** Time after which to retry, milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The refusing limit, such as `requests` or `provider-requests`. */
  readonly limit: string | undefined;
  /** Number of times in a row that its run has sent the body, if that is the reason. */
  readonly repeats: number | undefined;
  /** Cause of the failed provider call, if one failed. */
  readonly failureCause: FailureCause | undefined;

  /**
   * Makes an error. Its message is the message of the code, followed by the detail.
   *
   * @param code A code of {@link ERRORS}
   * @param details Details of this occurrence
   */
  constructor(code: ErrorCode, details: GatewayErrorDetails = {}) {
    const { message, param, failureCause } = ERRORS[code];
    super(
      details.detail === undefined ? message : `${message}: ${details.detail}`,
      details.cause === undefined ? undefined : { cause: details.cause },
    );
    this.code = code;
    this.param = details.param ?? param;
    this.headers = details.headers ?? {};
    this.retryAfterMs = details.retryAfterMs;
    this.limit = details.limit;
    this.repeats = details.repeats;
    this.failureCause = details.failureCause ?? failureCause;
  }

  /**
   * Returns whether a value is a `GatewayError`, also one made by another copy of this module.
   *
   * @param value Anything
   * @returns Whether it has the name and a code of {@link ERRORS}
   */
  static is(value: unknown): value is GatewayError {
    return value instanceof Error && value.name === "GatewayError" && "code" in value &&
      typeof value.code === "string" && Object.hasOwn(ERRORS, value.code);
  }
}

/** The parts of an error that its response states. */
export type ErrorContent =
  & Pick<GatewayError, "code" | "message" | "param">
  & Partial<Pick<GatewayError, "headers" | "retryAfterMs">>;

/** Makes the body of an answer for an error, with its four keys. */
export function toErrorJson(error: ErrorContent): string {
  const { message, param, code } = error;
  return JSON.stringify({ error: { message, type: ERRORS[code].type, param, code } });
}

/**
 * Makes the answer for an error when no header has been sent yet. `x-request-id` is added by the
 * exchange.
 *
 * @param body Its body. Default: the body with four keys
 */
export function toErrorResponse(
  error: ErrorContent,
  body: string = toErrorJson(error),
): GatewayResponse & { readonly body: string } {
  const { status, shouldRetry, retryAfterS, param } = ERRORS[error.code];
  const headers: Record<string, string> = {
    "content-type": "application/json",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "sallyport-error": error.code,
    "x-should-retry": String(shouldRetry),
  };
  if (status === 401 && param === "Gateway-Auth") {
    headers["www-authenticate"] = 'Bearer realm="gateway"';
  }
  const waitMs = error.retryAfterMs ?? (retryAfterS === undefined ? undefined : retryAfterS * 1000);
  if (waitMs !== undefined) {
    headers["retry-after"] = String(Math.ceil(waitMs / 1000));
    headers["retry-after-ms"] = String(Math.ceil(waitMs));
  }
  Object.assign(headers, error.headers);
  return { status, headers, body };
}
