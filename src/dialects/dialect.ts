/**
 * Port: a dialect, the part of a provider's interface that the gateway has to know. It says when a
 * stream is complete, where usage stands, and what an error of the gateway looks like before and
 * within an answer.
 *
 * @module
 */
import type { GatewayError } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/record.ts";

/**
 * The most bytes of an answer that are kept to be looked at: of a line, of a long text, of a plain
 * answer's end.
 */
export const MAX_KEPT_BYTES = 65_536;

/** Watches a stream of events on its way, without changing or keeping it. */
export interface StreamScanner {
  /** The number of `data` lines so far that are not empty. */
  readonly payloads: number;
  /** True once the last event that this dialect knows went by: nothing can be lost after it. */
  readonly isDone: boolean;
  /** True once the answer in the stream has its end. */
  readonly isComplete: boolean;
  /** True after an error of the provider's own. */
  readonly hasError: boolean;
  /** Tokens as stated so far; some providers state them once, some with every chunk. */
  readonly usage: TokenUsage | undefined;
  /**
   * Tokens of output so far, counted roughly by the bytes of their content: for a stream that
   * states none. What it counts is in proportion to what providers state, for streams of one
   * provider and model.
   */
  readonly outputTokens: number;
  /** True if an event of the gateway can be inserted here without a {@link boundary} before it. */
  readonly isAtBoundary: boolean;
  /** The text to send before an event of the gateway: it ends the unfinished line and event. */
  readonly boundary: string;
  /** Takes note of the next bytes. @param chunk As it came; it may be used again afterwards */
  push(chunk: Uint8Array): void;
  /** Takes note that nothing more comes. */
  end(): void;
  /**
   * True if client libraries read the event for an error as one. Otherwise the connection breaks
   * after it, because a clean end would read as success.
   */
  readonly hasErrorEvent: boolean;
  /**
   * Makes the event for an error of the gateway, with its blank line. It is sent after the {@link
   * boundary}.
   */
  toErrorEvent(error: GatewayError): string;
}

/** Watches a plain answer on its way, and keeps its end. */
export interface AnswerMeter {
  /** The tokens that it states, once it is over. */
  readonly usage: TokenUsage | undefined;
  /** Tokens of its output so far, counted roughly: for an answer that states none. */
  readonly outputTokens: number | undefined;
  /** Takes note of the next bytes. @param chunk As it came; it may be used again afterwards */
  push(chunk: Uint8Array): void;
}

/** Usage that the streams of an interface state only when they are asked to. */
export interface UsageOptIn {
  /**
   * Adds the question to a body: the JSON of an object that has none yet. Every byte of it stays.
   */
  addTo(body: Uint8Array): Uint8Array;
  /**
   * Tells whether a line of data, of which the beginning is there, may be the chunk that then
   * states usage.
   */
  mayBeChunk(bytes: Uint8Array, start: number, end: number): boolean;
  /** Tells whether a line of data is that chunk: it states usage and nothing else. */
  isChunk(bytes: Uint8Array, start: number, end: number): boolean;
}

/** Port: a dialect. */
export interface Dialect {
  /**
   * Creates the scanner of one stream. @param answers The number of answers that the caller asked
   * for, at least 1
   */
  createScanner(answers: number): StreamScanner;
  /** Creates the meter of one plain answer that passes in pieces. */
  createMeter(): AnswerMeter;
  /** Reads the tokens that a plain answer states. @param answer All of it */
  readUsage(answer: Uint8Array): TokenUsage | undefined;
  /**
   * Counts the tokens of output roughly, in a plain answer that states none.
   *
   * @param answer All of it
   * @returns Their number; `undefined` if the output is still to be made
   */
  countOutput(answer: Uint8Array): number | undefined;
  /** Makes the body of an answer for an error. It is JSON. */
  toErrorBody(error: GatewayError): string;
}
