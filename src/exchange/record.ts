/**
 * The record of an exchange, and the facts that are collected for it.
 *
 * @module
 */
import type { Attribution } from "../config/dimensions.ts";
import type { ErrorCode } from "../errors/codes.ts";
import type { FailureCause, Outcome } from "../errors/outcomes.ts";
import type { TokenUsage } from "./billing.ts";

/** The record of an exchange that is over. It contains no key, no prompt and no address. */
export interface ExchangeRecord {
  /** `x-request-id`. */
  readonly id: string;
  /** Wall clock, milliseconds since 1970. */
  readonly startedAt: number;
  /** Time from the first header to the last byte, milliseconds. */
  readonly durationMs: number;
  /** Time from the first header until the provider was called for the first time, milliseconds. */
  readonly calledMs?: number | undefined;
  /** Time from the first header until the provider's answer began, milliseconds. */
  readonly firstByteMs?: number | undefined;
  /**
   * Time from the first header until the first event of a stream, comments not counted,
   * milliseconds.
   */
  readonly firstTokenMs?: number | undefined;
  /**
   * The gateway's own part of `firstByteMs`, or else of `durationMs`, without waits for a body or a
   * provider.
   */
  readonly overheadMs: number;
  /** Outcome of the exchange. */
  readonly outcome: Outcome;
  /** The status of the answer; 499 if the caller left before there was one. */
  readonly status: number;
  /** The gateway's error, if it made one. */
  readonly code?: ErrorCode | undefined;
  /** Cause of the failed provider call, if that ended the exchange. */
  readonly cause?: FailureCause | undefined;
  /** Cause of the failure after which the call was retried, see `retries`. */
  readonly retryCause?: FailureCause | undefined;
  /** Name of the provider in the config. */
  readonly provider?: string | undefined;
  /** Id of the gateway key. */
  readonly keyId?: string | undefined;
  /** Name of the gateway key, if it has one. */
  readonly keyName?: string | undefined;
  /** True if the call used a provider key that the gateway holds. */
  readonly usesHeldKey?: boolean | undefined;
  /** Team of the gateway key, or the team that the claims of an identity token name. */
  readonly team?: string | undefined;
  /** Plan of the configuration that the claims of an identity token name. */
  readonly plan?: string | undefined;
  /** Values of the configured headers, by dimension. The caller chose them. */
  readonly attribution?: Attribution | undefined;
  /** Id of the run that it belongs to. The caller chose it. */
  readonly run?: string | undefined;
  /** Times in a row that its run has sent the body, if they are more than `runs.repeats`. */
  readonly repeats?: number | undefined;
  /** Name of the operation, such as `chat.completions`. */
  readonly operation?: string | undefined;
  /**
   * `gen_ai.operation.name` by OpenTelemetry's GenAI conventions, if the operation calls a model.
   */
  readonly genAi?:
    | "chat"
    | "text_completion"
    | "embeddings"
    | "generate_content"
    | "fetch_response"
    | undefined;
  /** True if a call of the operation can cost something. */
  readonly isMetered?: boolean | undefined;
  /** Model as the caller named it: at most 256 characters, without control characters. */
  readonly model?: string | undefined;
  /**
   * True if the caller asked for a stream; if its `stream` is not a boolean, true if the provider
   * answered with a stream.
   */
  readonly stream?: boolean | undefined;
  /** Bytes of the caller's body. */
  readonly bytesIn: number;
  /** Bytes of the answer's body. */
  readonly bytesOut: number;
  /** Upstream calls beyond the first. */
  readonly retries: number;
  /** Index of the provider's replica that answered, counted from 0. */
  readonly replica?: number | undefined;
  /**
   * Tokens that the call is charged. If the outcome is not `ok`, the provider can count more. Until
   * the exchange is settled, its facts have the tokens that the answer has stated so far.
   */
  readonly usage?: TokenUsage | undefined;
  /** True if `usage` is an estimate of the gateway, because the provider stated none. */
  readonly isEstimated?: boolean | undefined;
  /**
   * The limit that refused it, such as `requests`, or `provider-requests` for a limit of all keys
   * together.
   */
  readonly limit?: string | undefined;
  /** The limit in observe mode that would have refused it. */
  readonly observedLimit?: string | undefined;
  /**
   * Names of headers that the gateway withheld in each direction, once the call was sent or
   * answered. Collected only if an observer wants them, see `ExchangeObserver`.
   */
  readonly withheld?: {
    readonly request?: readonly string[];
    readonly response?: readonly string[];
  } | undefined;
  /**
   * The error behind `internal_error` or an upstream failure. It can contain addresses, so only the
   * operator is allowed to see it.
   */
  readonly error?: unknown;
}

/** Kind of a model's work, see {@link ExchangeRecord.genAi}. */
export type GenAiOperation = NonNullable<ExchangeRecord["genAi"]>;

/** A record that is not complete yet. */
export type RecordDraft = {
  -readonly [Name in keyof Required<ExchangeRecord>]: ExchangeRecord[Name] | undefined;
};

/**
 * A record without any facts. Facts and records are copies of it, for speed: an object whose fields
 * are added one by one, and that is then spread into another, costs many times as much (with the
 * facts of a body, which were spread too: 1.04 of a plain call on Bun, 1.02 to 1.1 on Node 26, 1.36
 * on Node 20; 2026-11-23, by CPU).
 */
export const BLANK_RECORD: Readonly<RecordDraft> = {
  id: undefined,
  startedAt: undefined,
  durationMs: undefined,
  calledMs: undefined,
  firstByteMs: undefined,
  firstTokenMs: undefined,
  overheadMs: undefined,
  outcome: undefined,
  status: undefined,
  code: undefined,
  cause: undefined,
  retryCause: undefined,
  provider: undefined,
  keyId: undefined,
  keyName: undefined,
  usesHeldKey: undefined,
  team: undefined,
  plan: undefined,
  attribution: undefined,
  run: undefined,
  repeats: undefined,
  operation: undefined,
  genAi: undefined,
  isMetered: undefined,
  model: undefined,
  stream: undefined,
  bytesIn: undefined,
  bytesOut: undefined,
  retries: undefined,
  replica: undefined,
  usage: undefined,
  isEstimated: undefined,
  limit: undefined,
  observedLimit: undefined,
  withheld: undefined,
  error: undefined,
};

/** Facts that the steps collect. */
export type ExchangeFacts = {
  -readonly [
    Name in Exclude<
      keyof ExchangeRecord,
      | (
        | "id"
        | "startedAt"
        | "durationMs"
        | "overheadMs"
        | "outcome"
        | "status"
        | "code"
        | "cause"
        | "error"
      )
      | ("bytesIn" | "bytesOut" | "retries")
    >
  ]: ExchangeRecord[Name] | undefined;
};
