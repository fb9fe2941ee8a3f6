/**
 * The error class for refusals and failures, and its answer on the wire.
 *
 * @module
 */
import type { GatewayResponse } from "../http/message.ts";
import { type ErrorCode, ERRORS } from "./codes.ts";
import type { FailureCause } from "./outcomes.ts";

export { type ErrorCode, ERRORS } from "./codes.ts";

/** Details of one occurrence of an error. */
export interface GatewayErrorDetails {
  /** The header or the path in the body that is at fault, such as `messages[0].role`. */
  readonly param?: string;
  /**
   * Description of what was expected there. It reaches the caller, so it never holds a value that
   * the caller sent.
   */
  readonly detail?: string;
  /** Headers that the answer has in addition to its own, such as `allow`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Time after which to try again, milliseconds; that of the table if left out. */
  readonly retryAfterMs?: number;
  /** The limit that refused, as `RateLimit` names it. For the record. */
  readonly limit?: string;
  /** Cause of the failed provider call; that of the table if left out. For the record. */
  readonly failureCause?: FailureCause | undefined;
  /** The foreign error behind this one. For the log; never reaches the caller. */
  readonly cause?: unknown;
}

/**
 * A refusal or failure that the caller sees. Its message comes from {@link ERRORS}, never
 * from its cause.
 *
 * @example Answer 503 where a store of keys cannot be asked
 * ```ts
 * import { GatewayError, type KeyStore } from "sallyport";
 *
 * const keys: KeyStore = {
 *   find: () => Promise.reject(new GatewayError("key_store_unavailable")),
 * };
 * ```
 */
export class GatewayError extends Error {
  /** The name with which {@link GatewayError.is} recognises it. */
  override readonly name = "GatewayError";
  /** The code; its row in {@link ERRORS} decides everything else. */
  readonly code: ErrorCode;
  /** The header or the path in the body that is at fault. */
  readonly param: string | null;
  /** Headers that the answer has in addition to its own. */
  readonly headers: Readonly<Record<string, string>>;
  /** Time after which to try again, milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The limit that refused, such as `requests` or `provider-requests`. */
  readonly limit: string | undefined;
  /** Cause of the failed provider call, if that is what happened. */
  readonly failureCause: FailureCause | undefined;

  /**
   * Makes an error; its message is that of the code, followed by the detail.
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

/** The facts of an error that its answer states. */
export type ErrorFacts =
  & Pick<GatewayError, "code" | "message" | "param">
  & Partial<Pick<GatewayError, "headers" | "retryAfterMs">>;

/** Makes the body of an answer for an error, with its four keys. */
export function toErrorJson(error: ErrorFacts): string {
  const { message, param, code } = error;
  return JSON.stringify({ error: { message, type: ERRORS[code].type, param, code } });
}

/**
 * Makes the answer for an error when no header has been sent yet. `x-request-id` is added by the
 * exchange.
 *
 * @param body Its body; the one with four keys if left out
 */
export function toErrorResponse(
  error: ErrorFacts,
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
