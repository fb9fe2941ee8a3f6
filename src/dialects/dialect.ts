/**
 * Port: a dialect, the part of a provider's interface that the gateway must know: the end of a
 * stream, the location of usage, and the form of the gateway's errors before and within an answer.
 * `README.md` has a table of the ends of streams, by dialect.
 *
 * @module
 */
import type { GatewayError } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/billing.ts";

/**
 * The most bytes of an answer that are kept: of a line, of a long text, or of a plain answer's end.
 */
export const MAX_KEPT_BYTES = 65_536;

/** Watches a stream of events while it is relayed, without changing or keeping it. */
export interface StreamScanner {
  /** The number of non-empty `data` lines so far. */
  readonly payloadCount: number;
  /** True once the answer in the stream has its end. Its usage can still follow. */
  readonly isComplete: boolean;
  /** True once the last event of this dialect has passed, so that nothing can be lost after it. */
  readonly hasLastEvent: boolean;
  /** True after an error of the provider's own. */
  readonly hasError: boolean;
  /** Tokens as stated so far. Some providers state them once, others with every chunk. */
  readonly usage: TokenUsage | undefined;
  /**
   * Tokens of output so far, estimated from the bytes of their content, for a stream that states
   * none. For streams of the same provider and model, the estimate is proportional to the stated
   * tokens.
   */
  readonly outputTokens: number;
  /** Id of the answer, if it can be read later; `undefined` for other interfaces. */
  readonly laterId?: string | undefined;
  /** True if an event of the gateway can be inserted now without a {@link boundary} before it. */
  readonly isAtBoundary: boolean;
  /** The text to send before an event of the gateway: it ends the unfinished line and event. */
  readonly boundary: string;
  /** Scans the next bytes. @param chunk Unchanged bytes, whose buffer can be reused afterwards */
  push(chunk: Uint8Array): void;
  /** Notes the end of the stream. */
  end(): void;
  /**
   * True if client libraries read the error event as an error. Otherwise the connection breaks
   * after it, because they would read a clean end as success.
   */
  readonly clientsReadErrorEvent: boolean;
  /**
   * Makes the event for an error of the gateway, with its blank line. It is sent after the {@link
   * boundary}.
   */
  toErrorEvent(error: GatewayError): string;
}

/**
 * Lists the numbers of input tokens from which a model can have another price, in ascending order.
 */
export type ContextEnds = (model: string) => readonly number[];

/** Watches a plain answer while it is relayed, and keeps its end. */
export interface AnswerMeter {
  /** The tokens that it states, once it is over. */
  readonly usage: TokenUsage | undefined;
  /** Estimated tokens of its output so far, for an answer that states none. */
  readonly outputTokens: number | undefined;
  /** Id of the answer, as in {@link StreamScanner}. */
  readonly laterId?: string | undefined;
  /** Scans the next bytes. @param chunk Unchanged bytes, whose buffer can be reused afterwards */
  push(chunk: Uint8Array): void;
}

/** Usage that the streams of an interface state only on request. */
export interface UsageOptIn {
  /**
   * Adds the request to a body: the JSON of an object without such a request. All its bytes stay.
   */
  addTo(body: Uint8Array): Uint8Array;
  /** Returns whether an incomplete line of data can be the chunk that states usage. */
  mayBeChunk(bytes: Uint8Array, start: number, end: number): boolean;
  /** Returns whether a line of data is that chunk: it states only usage. */
  isChunk(bytes: Uint8Array, start: number, end: number): boolean;
}

/** Headers of an answer. */
export interface AnswerHeaders {
  get(name: string): string | null | undefined;
}

/** Port: a dialect. */
export interface Dialect {
  /** Content type of its streams, in lower case. Default: `text/event-stream`. */
  readonly streamType?: string;
  /** Dialect of its streams of a second type. Left out if it has none. */
  readonly list?: Dialect;
  /**
   * Text that keeps a silent stream open between two events; empty if its clients accept none.
   * Default: a comment.
   */
  readonly keepAlive?: string;
  /** Reads the usage that headers of an answer state. Left out if they state none. */
  readHeaderUsage?(headers: AnswerHeaders): TokenUsage | undefined;
  /** Reads the tier that headers of an answer state. Left out if they state none. */
  readHeaderTier?(headers: AnswerHeaders): string | undefined;
  /**
   * Creates the scanner of one stream.
   *
   * @param answers The number of requested answers, at least 1
   * @param model Model that the caller named, for answers that name none
   */
  createScanner(answers: number, model?: string): StreamScanner;
  /**
   * Creates the meter of one plain answer that is relayed in pieces.
   *
   * @param model As in {@link createScanner}
   * @param contextEnds For answers of many model runs. Default: the ends of published prices
   */
  createMeter(model?: string, contextEnds?: ContextEnds): AnswerMeter;
  /**
   * Reads the tokens that a plain answer states.
   *
   * @param answer All of it
   * @param model As in {@link createScanner}
   * @param contextEnds As in {@link createMeter}
   */
  readUsage(answer: Uint8Array, model?: string, contextEnds?: ContextEnds): TokenUsage | undefined;
  /**
   * Estimates the tokens of output in a plain answer that states none.
   *
   * @param answer All of it
   * @returns Their number; `undefined` if the provider makes the output later
   */
  countOutput(answer: Uint8Array): number | undefined;
  /**
   * Reads the id of an answer that can be read later, when it states its usage. Left out if the
   * interface has no such answers. @param answer All of it, or its beginning
   */
  readLaterId?(answer: Uint8Array): string | undefined;
  /** Makes the JSON body of an error answer. */
  toErrorBody(error: GatewayError): string;
}
