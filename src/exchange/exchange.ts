/**
 * One request and its answer, from the first header to the last byte, and how it ended.
 *
 * @module
 */
import { type ErrorCode, ERRORS } from "../errors/codes.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { FailureCause, Outcome } from "../errors/outcomes.ts";
import { BOUND_CALLER, type CallerState, UNBOUND_CALLER } from "./caller_state.ts";
import type { Clock } from "./clock.ts";
import type { ExchangeTrace } from "./observer.ts";
import type { Share } from "./shared_budget.ts";
import {
  BLANK_RECORD,
  type ExchangeFacts,
  type ExchangeRecord,
  type RecordDraft,
} from "./record.ts";

/**
 * The abort reason for a caller that left. It is an outcome, not an error: nothing is sent, and
 * logs show 499.
 */
export class ClientClosed extends Error {
  override readonly name = "ClientClosed";
  constructor() {
    super("The caller closed the connection");
  }
}

/** The end of an exchange, as its record states it. */
export interface ExchangeEnd {
  /** `ok` for an answer that was relayed completely, with any status. */
  readonly outcome: Outcome;
  readonly code?: ErrorCode;
  readonly cause?: FailureCause;
  readonly error?: unknown;
}

/**
 * Converts the reason why an exchange ended early into its end.
 *
 * @param reason A `GatewayError`, {@link ClientClosed}, or a bug
 */
export function toExchangeEnd(reason: unknown): ExchangeEnd {
  if (reason instanceof ClientClosed) return { outcome: "client_closed" };
  if (!GatewayError.is(reason)) return { outcome: "failed", code: "internal_error", error: reason };
  const { code, failureCause, cause } = reason;
  const { outcome } = ERRORS[code];
  return {
    outcome,
    code,
    ...(failureCause && { cause: failureCause }),
    ...(cause !== undefined && { error: cause }),
  };
}

/** Returns whether a value is a promise. */
export function isPromise<T>(value: T | Promise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | undefined)?.then === "function";
}

/**
 * Drops the rejection of an embedder's promise that is not awaited. Unhandled, it would end the
 * process.
 *
 * @param returned The value that the code returned. It can be a promise, although the interface
 * allows none
 */
export function dropRejection(returned: unknown): void {
  if (isPromise(returned)) Promise.resolve(returned).catch(() => {});
}

/** Rounds milliseconds to hundredths. Finer digits are noise of the clock. */
const toTiming = (ms: number): number => Math.max(0, Math.round(ms * 100) / 100);

const NO_HEADERS = Object.freeze({});
const NO_SHARES: readonly Share[] = Object.freeze([]);

/** Reads an answer for a caller. */
interface CallerReader {
  /** Notes that the caller has left. */
  cancel(): void;
}

/** An answer that is being relayed to the caller. */
export interface RelayedAnswer {
  /**
   * Ends the caller's part of an answer that continues without it.
   *
   * @param reason The error that is sent to the caller
   */
  continueWithoutCaller(reason: Error): void;
}

/** One request and its answer. */
export class Exchange {
  /** `x-request-id`. */
  readonly id: string = crypto.randomUUID();
  /** Wall clock, milliseconds since 1970. */
  readonly startedAt: number;
  /**
   * Facts that the steps have learned so far. `usage` is what the provider has stated, until
   * {@link beforeSettled} replaces it by the charge.
   */
  readonly facts: ExchangeFacts = { ...BLANK_RECORD };
  /** The status that is sent; 499 until there is one. */
  status = 499;
  /** Bytes of the caller's body so far. */
  bytesIn = 0;
  /** Bytes of the answer's body so far. */
  bytesOut = 0;
  /** Upstream calls beyond the first. */
  retries = 0;
  /** Milliseconds waited for the caller's body and for the provider, until its answer began. */
  waitedMs = 0;
  /**
   * The part of `waitedMs` spent waiting for the provider, over all calls; `undefined` before the
   * first call ended.
   */
  upstreamMs: number | undefined;
  /** Status of the provider's answer; `undefined` while there is none. */
  answeredStatus: number | undefined;
  /**
   * Tokens of the answer's output as its dialect counted them; `undefined` while there is no
   * answer.
   */
  outputTokens: number | undefined;
  /** Tier that the headers of the answer state, for usage without a tier. */
  servedTier: string | undefined;
  /** Id of an answer that states its usage later; `undefined` for other answers. */
  laterId: string | undefined;
  /** The model that the answer names; `undefined` for a call that names only one model. */
  answeringModel: string | undefined;
  /**
   * Completes the facts just before the record is made. One of two sets it: `usage_at_end.ts` for
   * calls that cost tokens, `later_usage.ts` for the answer of an earlier call.
   */
  beforeSettled: ((end: ExchangeEnd) => void) | undefined;
  /**
   * Reads a recording of the answer for the caller; `undefined` without a recording. If the caller
   * closes its connection, only this reader ends.
   */
  reader: CallerReader | undefined;
  /** True once the caller has delayed its answer by not reading. */
  isDelayed = false;
  /** The trace that follows it, if there is a tracer. */
  trace: ExchangeTrace | undefined;
  /** Its index among the open exchanges, which `OpenExchanges` sets. */
  openIndex = -1;
  /** Shares of the open exchanges in which it counts, which `OpenExchanges` sets. */
  shares: readonly Share[] = NO_SHARES;
  /** The gateway's own headers on every answer to this request. */
  ownHeaders: Readonly<Record<string, string>> = NO_HEADERS;
  readonly #clock: Clock;
  readonly #startedMonotonic: number;
  #caller: CallerState = BOUND_CALLER;
  /**
   * The answer that is being relayed; `undefined` before there is one. An object and not a
   * function, because V8 would keep a function, and this exchange, for long.
   */
  #relayedAnswer: RelayedAnswer | undefined;
  #controller: AbortController | undefined;
  #reason: Error | undefined;
  #lastReason: Error | undefined;
  readonly #onAbort: (() => void)[] = [];
  readonly #onSettled: ((record: ExchangeRecord) => unknown)[] = [];
  #isSettled = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.startedAt = clock.now();
    this.#startedMonotonic = clock.monotonic();
  }

  /**
   * The reason why all work for this exchange stops. It also decides the answer. `undefined` while
   * there is none.
   */
  get reason(): Error | undefined {
    return this.#reason;
  }

  /** The abort as a signal, for APIs that need one. Created at its first use. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#reason !== undefined) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  /**
   * Registers a function that stops work at an abort.
   *
   * @param act Called at the abort, with {@link reason} set
   * @returns Function that removes it
   */
  onAbort(act: () => void): () => void {
    this.#onAbort.push(act);
    return () => {
      const at = this.#onAbort.lastIndexOf(act);
      if (at !== -1) this.#onAbort.splice(at, 1);
    };
  }

  /** True once the exchange is settled. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Milliseconds since the first header. */
  elapsed(): number {
    return this.#clock.monotonic() - this.#startedMonotonic;
  }

  /** Marks that the provider's answer began, with a status. */
  markFirstByte(status: number): void {
    this.answeredStatus = status;
    this.facts.firstByteMs ??= this.elapsed();
  }

  /** Marks that the first event of a stream arrived. */
  markFirstToken(): void {
    this.facts.firstTokenMs ??= this.elapsed();
  }

  /**
   * Adds the time of one upstream call to the waits.
   *
   * @param sinceMs Value of {@link elapsed} when it was sent
   */
  addUpstreamWait(sinceMs: number): void {
    const ms = this.elapsed() - sinceMs;
    this.waitedMs += ms;
    this.upstreamMs = (this.upstreamMs ?? 0) + ms;
  }

  /**
   * Adds the gateway's own headers, which every answer has. `Server-Timing`
   * (https://www.w3.org/TR/server-timing/) states milliseconds until the provider's answer began,
   * or now.
   *
   * @param headers Headers of the answer
   * @returns The same object
   */
  addHeaders(headers: Record<string, string>): Record<string, string> {
    const gateway = `gateway;dur=${
      toTiming((this.facts.firstByteMs ?? this.elapsed()) - this.waitedMs)
    }`;
    Object.assign(headers, this.ownHeaders);
    headers["x-request-id"] = this.id;
    headers["server-timing"] = this.upstreamMs === undefined
      ? gateway
      : `${gateway}, upstream;dur=${toTiming(this.upstreamMs)}`;
    return headers;
  }

  /**
   * Stops the work. Code that is stopped rethrows the reason.
   *
   * @param reason A `GatewayError` (a deadline, the drain) or {@link ClientClosed}; the first one
   * stays
   */
  abort(reason: Error): void {
    if (this.#isSettled) return;
    this.#lastReason = reason;
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#controller?.abort(reason);
    for (const act of Array.from(this.#onAbort)) act();
  }

  /** State of the caller's part. It decides whether the call ends with its caller. */
  get caller(): CallerState {
    return this.#caller;
  }

  /** True if the call, or its recording, continues after its caller has left. */
  get continuesWithoutCaller(): boolean {
    return this.#caller.name !== "bound" || this.reader !== undefined;
  }

  /** Lets the call continue without its caller: only the end of its answer states its cost. */
  unbind(): void {
    if (this.#caller.name === "bound") this.#caller = UNBOUND_CALLER;
  }

  /**
   * Binds the call to its caller again, because its cost is known.
   *
   * @throws The reason why the caller's part has ended, if it has
   */
  bindToCaller(): void {
    const { reason } = this.#caller;
    this.#caller = BOUND_CALLER;
    if (reason === undefined) return;
    this.abort(reason);
    throw reason;
  }

  /** Ends the caller's part, because the caller has closed its connection. */
  disconnect(): void {
    if (this.reader === undefined) this.endCallerPart(new ClientClosed());
    else this.reader.cancel();
  }

  /**
   * Ends the caller's part. A call that is bound to its caller ends too.
   *
   * @param reason The reason: the caller has left, or has stopped the exchange
   */
  endCallerPart(reason: Error): void {
    if (this.#caller.name === "bound") return this.abort(reason);
    if (this.#isSettled || this.#caller.reason !== undefined) return;
    this.#caller = { name: "left", reason };
    this.#relayedAnswer?.continueWithoutCaller(reason);
  }

  /** Registers the answer that is being relayed. Its caller can have left before it began. */
  beginRelay(answer: RelayedAnswer): void {
    this.#relayedAnswer = answer;
    const { reason } = this.#caller;
    if (reason !== undefined) answer.continueWithoutCaller(reason);
  }

  /**
   * Notes that an answer has reached its end without its caller.
   *
   * @param reason The reason why the caller's part has ended
   */
  completeWithoutCaller(reason: Error): void {
    this.#caller = { name: "completed", reason };
  }

  /** Returns whether the answer has reached its end, with its caller or without it. */
  isAnswerComplete(outcome: Outcome): boolean {
    return outcome === "ok" || this.#caller.name === "completed";
  }

  /**
   * Begins another upstream call after a failed one, with a new {@link signal}.
   *
   * @param overcome The reason why that call was aborted; `undefined` if it was not. Any other
   * reason that was set since stays in effect
   */
  beginRetry(overcome: unknown): void {
    this.retries++;
    if (GatewayError.is(overcome)) this.facts.retryCause = overcome.failureCause ?? "unknown";
    if (this.#reason === undefined) return;
    this.#controller = this.#reason = undefined;
    if (this.#lastReason !== undefined && this.#lastReason !== overcome) {
      this.abort(this.#lastReason);
    }
  }

  /**
   * Registers a function that frees resources when the exchange is over.
   *
   * @param act Called once, with the record. A promise that it returns is not awaited
   */
  onSettled(act: (record: ExchangeRecord) => unknown): void {
    this.#onSettled.push(act);
  }

  /**
   * Settles the exchange. Only the first call has an effect. In this order:
   *
   * 1. {@link beforeSettled} completes the facts, for example the usage.
   * 2. The record is made.
   * 3. Each function of {@link onSettled} gets the record, in the order of registration: the count of
   *    open exchanges, observers such as log and usage, then the leases. None relies on another.
   */
  settle(end: ExchangeEnd): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.beforeSettled?.(end);
    const durationMs = this.elapsed();
    const draft: RecordDraft = Object.assign({ ...this.facts } as RecordDraft, end);
    draft.id = this.id;
    draft.startedAt = this.startedAt;
    draft.durationMs = durationMs;
    draft.overheadMs = Math.max(0, (this.facts.firstByteMs ?? durationMs) - this.waitedMs);
    // A completely relayed answer is still an error if its status is an error status.
    if (end.outcome === "ok" && this.status >= 400) draft.outcome = "upstream_error";
    draft.status = this.status;
    draft.bytesIn = this.bytesIn;
    draft.bytesOut = this.bytesOut;
    draft.retries = this.retries;
    const record = Object.freeze(draft as ExchangeRecord);
    for (const act of this.#onSettled) {
      try {
        dropRejection(act(record));
      } catch {
        // One failing observer must not prevent the others from freeing their resources.
      }
    }
  }
}
