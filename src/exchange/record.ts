/**
 * The books of an exchange: what is known of it on the way, and once it is over.
 *
 * @module
 */
import type { ErrorCode } from "../errors/gateway_error.ts";
import type { FailureCause, Outcome } from "../errors/outcomes.ts";

/** Tokens of one answer, as its provider stated them. */
export interface TokenUsage {
  /** What limits and budgets are charged. */
  readonly total: number;
  /** Those of the prompt. */
  readonly input?: number;
  /** Those of the answer, reasoning included. */
  readonly output?: number;
  /** Those of the input that came from the provider's cache. */
  readonly cached?: number;
  /** Those of the output that the caller does not see. */
  readonly reasoning?: number;
}

/** The record of an exchange that is over. It holds no key, no prompt and no address. */
export interface ExchangeRecord {
  /** `x-request-id`. */
  readonly id: string;
  /** Wall clock, milliseconds since 1970. */
  readonly startedAt: number;
  /** From the first header to the last byte, milliseconds. */
  readonly durationMs: number;
  /** From the first header until the provider's answer began, milliseconds. */
  readonly firstByteMs?: number;
  /** From the first header until the first event of a stream that is no comment, milliseconds. */
  readonly firstTokenMs?: number;
  /** What of the time until then, or until the end, was the gateway's own: without waiting for a body or a provider. */
  readonly overheadMs: number;
  /** How it ended. */
  readonly outcome: Outcome;
  /** The status that was answered; 499 when the caller left before one was. */
  readonly status: number;
  /** The gateway's error, if it made one. */
  readonly code?: ErrorCode;
  /** Why the call to the provider failed, where that is how it ended. */
  readonly cause?: FailureCause;
  /** Why the first call failed that was made again, see `retries`. */
  readonly retryCause?: FailureCause;
  /** Name of the provider in the config. */
  readonly provider?: string;
  /** Id of the gateway key. */
  readonly keyId?: string;
  /** `chat.completions`, `models.list` or `models.get`. */
  readonly operation?: string;
  /** As the caller named it: at most 256 characters, without control characters. */
  readonly model?: string;
  /** Whether the caller asked for a stream. */
  readonly stream?: boolean;
  /** Bytes of the caller's body. */
  readonly bytesIn: number;
  /** Bytes of the body that was answered. */
  readonly bytesOut: number;
  /** Upstream calls beyond the first. */
  readonly retries: number;
  /** Which of the provider's replicas answered, counted from 0. */
  readonly replica?: number;
  /** As far as the provider stated it; beside an outcome other than `ok` it is a part. */
  readonly usage?: TokenUsage;
  /** The limit that refused it, such as `requests`, or `provider-requests` for one of all keys together. */
  readonly limit?: string;
  /** The limit that would have refused it, had it not been set to observe. */
  readonly observedLimit?: string;
  /** The error behind `internal_error` or an upstream failure. May name addresses: for the operator alone. */
  readonly error?: unknown;
}

/** Facts that the steps learn on the way. */
export type ExchangeFacts = {
  -readonly [
    Name in
      | ("provider" | "keyId" | "operation" | "model" | "stream" | "usage")
      | ("limit" | "observedLimit" | "replica" | "retryCause")
  ]?: ExchangeRecord[Name];
};
