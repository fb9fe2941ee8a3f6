/**
 * The relay of the answer's body to the caller: unchanged bytes, sent at once, as fast as the
 * caller reads. A stream of events is watched for its end, because client libraries would read a
 * clean close as success.
 *
 * The cause of the end, and the outcome that the stream has stated (`#streamOutcome`), decide how the
 * caller's part ends:
 *
 *     cause                       | nothing stated  | complete | error          | plain answer
 *     ----------------------------|-----------------|----------|----------------|-------------
 *     the provider ends           | error event (1) | end      | end            | end
 *     its connection breaks (2)   | error event     | break    | break          | break
 *     a deadline, the drain       | error event     | end      | end            | break
 *     the caller leaves           | nothing         | nothing  | nothing        | nothing
 *     the caller's part ends (3)  | error event     | break    | break          | break
 *     ----------------------------|-----------------|----------|----------------|-------------
 *     outcome of the exchange     | the cause's     | ok (4)   | upstream_error | the cause's
 *
 * `error event`: the event, then the end, or a break if client libraries read no such event.
 * `break`: the listener breaks the caller's connection. A caller that stops reading is treated like
 * a caller that leaves, and its connection is broken.
 *
 * 1. The event is `upstream_stream_truncated`.
 * 2. Before the last event of the stream (`hasLastEvent`), when usage can be lost. After it, as at a
 *    deadline.
 * 3. By `continueWithoutCaller`, for a deadline or the drain: the rest is read, and the exchange
 *    settles later. If a caller leaves whose call continues, nothing is sent, and the record says
 *    `client_closed` also if the answer was complete.
 * 4. If the connection breaks: `upstream_disconnected`.
 *
 * Each cause calls one function, in the order of the table: `end`, `fail`, `#onAbort`, `cancel`
 * (`#endStalled` if the caller stops reading), `continueWithoutCaller`. The caller's part ends in
 * one of three: `#settleAndEnd` (end), `#endWithError` (error event or break), `#endWithoutCaller`
 * (nothing). `#endEarly` chooses among them, except for an end that the stream has stated and for a
 * caller that leaves or stops reading. While the caller does not read, `#onAbort` settles at once.
 * The caller's part then ends when it reads again (`#settleAndEnd`, `#endWithError`), or when it
 * leaves or has not read for too long (`#endWithoutCaller`).
 *
 * @module
 */
import type { AnswerMeter, StreamScanner } from "../dialects/dialect.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import {
  ClientClosed,
  type Exchange,
  type ExchangeEnd,
  type RelayedAnswer,
  toExchangeEnd,
} from "../exchange/exchange.ts";
import { type AnyBody, type ByteSink, push, type PushedBody } from "../http/message.ts";
import { toUpstreamError } from "./failure_cause.ts";
import type { ModelSearch } from "./model_search.ts";
import { ProviderSilence, type SilenceDeadlines } from "./provider_silence.ts";

/** Options of a relay. */
export interface RelayOptions extends SilenceDeadlines {
  /** Settled when the body is over, in every case. */
  readonly exchange: Exchange;
  /** Watches a stream of events, and makes its error event. Left out for a plain answer. */
  readonly scanner?: StreamScanner | undefined;
  /** True if the tokens that a stream states are read: for this call, or for an earlier one. */
  readonly countsTokens: boolean;
  /** Watches a plain answer for the tokens that it states. */
  readonly meter?: AnswerMeter | undefined;
  /** Finds the model that answered. Left out for a call that names only one. */
  readonly modelSearch?: ModelSearch | undefined;
  /** Text that keeps a silent stream open; empty for none. */
  readonly keepAlive: string;
  /** Time of silence after which it is sent, between two events, milliseconds; 0 for never. */
  readonly keepAliveMs: number;
  /** The longest time in which the caller reads none of the available bytes, milliseconds. */
  readonly writeStallMs: number;
  readonly clock: Clock;
}

/** The most bytes of an answer that are read after the caller has left. */
const MAX_UNREAD_BYTES = 33_554_432;
const STALLED = "The caller has stopped reading";
const COMPLETE: ExchangeEnd = { outcome: "ok" };

const ignore = (): void => {};

/** A body that settles its exchange. The upstream pushes to it, and it pushes to the caller. */
export class RelayedBody implements PushedBody, ByteSink, RelayedAnswer {
  readonly #body: AnyBody;
  readonly #options: RelayOptions;
  #cancelTimer = ignore;
  /** Receiver of the answer; `undefined` until the caller's side is ready for it. */
  #sink: ByteSink | undefined;
  #askForMore = ignore;
  /** The provider's silence. Paused while the caller does not accept bytes. */
  readonly #silence: ProviderSilence;
  /** Monotonic time when the last byte was sent. */
  #lastSentAt: number;
  #isOver = false;
  /** Bytes of the answer that arrived after its caller had left. */
  #unreadBytes = 0;

  constructor(body: AnyBody, options: RelayOptions) {
    this.#body = body;
    this.#options = options;
    this.#silence = new ProviderSilence(options);
    this.#lastSentAt = options.clock.monotonic();
    const { exchange } = options;
    exchange.onAbort(() => this.#onAbort());
    exchange.onSettled(() => this.#cancelTimer());
    this.#watch();
    exchange.beginRelay(this);
  }

  /**
   * Pushes the answer. If a stream of events cannot be completed, it pushes an error event. A plain
   * answer then fails, and the listener breaks the connection.
   */
  pushTo(sink: ByteSink): () => void {
    const { reason } = this.#options.exchange.caller;
    if (reason !== undefined) {
      this.#sink = sink;
      this.#endWithError(reason);
      return ignore;
    }
    if (this.#isOver) {
      sink.fail(new Error(STALLED)); // it was requested too late
      return ignore;
    }
    this.#sink = sink;
    if (this.#resume()) this.#askForMore = push(this.#body, this);
    return () => {
      if (!this.#isFlowing && this.#resume()) this.#askForMore();
    };
  }

  write(chunk: Uint8Array): boolean {
    const { scanner, meter, modelSearch, exchange, clock } = this.#options;
    if (this.#isOver) return false;
    const now = clock.monotonic();
    this.#silence.noteBytes(now);
    const before = scanner?.payloadCount;
    scanner?.push(chunk);
    meter?.push(chunk);
    modelSearch?.push(chunk);
    if (scanner === undefined || scanner.payloadCount !== before) this.#silence.notePayload();
    if (before === 0 && scanner?.payloadCount !== 0) exchange.markFirstToken();
    return this.#send(chunk, now);
  }

  end(): void {
    const { scanner } = this.#options;
    if (this.#isOver) return;
    scanner?.end();
    const outcome = scanner === undefined ? COMPLETE : this.#streamOutcome;
    if (outcome === undefined) return this.#endEarly(new GatewayError("upstream_stream_truncated"));
    this.#isOver = true;
    this.#settleAndEnd(outcome);
  }

  fail(cause: unknown): void {
    if (!this.#isOver) {
      this.#endEarly(
        this.#options.exchange.reason ?? toUpstreamError("upstream_disconnected", cause),
      );
    }
  }

  /** Ends the relay after the caller left, or continues without it. */
  cancel(): void {
    const { exchange } = this.#options;
    if (this.#isOver) return;
    if (exchange.caller.name === "bound") this.#endWithoutCaller();
    else exchange.endCallerPart(new ClientClosed());
  }

  /** Ends the relay. The outcome is ok if the stream has ended: client libraries close at `[DONE]`. */
  #endWithoutCaller(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    this.#settle(this.#streamOutcome ?? toExchangeEnd(new ClientClosed()));
    this.#body.cancel();
  }

  /** Reads the rest of the answer and drops it. The deadlines apply as before. */
  continueWithoutCaller(reason: Error): void {
    if (this.#isOver) return;
    const hasBegun = this.#sink !== undefined;
    if (reason instanceof ClientClosed) this.#sink = undefined;
    else this.#endWithError(reason);
    if (!this.#resume()) return;
    if (hasBegun) this.#askForMore();
    else this.#askForMore = push(this.#body, this);
    if (!this.#isOver) this.#restart();
  }

  /**
   * Watches the provider's silence from now on, because the caller's stall has used up the timer.
   */
  #restart(): void {
    this.#cancelTimer();
    this.#silence.restart();
    this.#watch();
  }

  /** Keeps a stream open of which no bytes have arrived yet, if that is configured. */
  announce(): void {
    if (this.#options.exchange.bytesOut === 0 && this.#isFlowing) this.#sendKeepAlive();
  }

  /** The outcome that a stream has stated; `undefined` before, and for a plain answer. */
  get #streamOutcome(): ExchangeEnd | undefined {
    const { scanner } = this.#options;
    if (scanner?.hasError) return { outcome: "upstream_error" };
    return scanner?.isComplete ? COMPLETE : undefined;
  }

  /** Settles the exchange, with the tokens that were stated until then. */
  #settle(end: ExchangeEnd): void {
    const { exchange, scanner, meter, modelSearch, countsTokens } = this.#options;
    if (exchange.isSettled) return;
    const counted = countsTokens ? scanner ?? meter : undefined;
    const usage = counted?.usage; // read once, because a plain answer is parsed for it
    if (usage !== undefined) exchange.facts.usage = usage;
    exchange.outputTokens = counted?.outputTokens;
    exchange.laterId = counted?.laterId;
    exchange.answeringModel = modelSearch?.name;
    const { reason } = exchange.caller;
    if (reason === undefined) return exchange.settle(end);
    if (end.outcome === "ok") exchange.completeWithoutCaller(reason);
    exchange.settle(toExchangeEnd(reason));
  }

  /** True while the caller accepts bytes, so that the relay waits for the upstream. */
  get #isFlowing(): boolean {
    return this.#silence.isAwaited;
  }

  /**
   * Waits for the upstream from now on. If the exchange was aborted in the meantime, the caller
   * receives the error now.
   *
   * @returns False if the relay is over
   */
  #resume(): boolean {
    const { exchange, clock } = this.#options;
    if (exchange.reason !== undefined) this.#endEarly(exchange.reason);
    if (this.#isOver) return false;
    this.#silence.resume(clock.monotonic());
    return true;
  }

  #send(chunk: Uint8Array, now: number): boolean {
    const { exchange } = this.#options;
    if (exchange.caller.reason !== undefined) return this.#drop(chunk);
    exchange.bytesOut += chunk.byteLength;
    this.#lastSentAt = now;
    const isTaken = this.#sink?.write(chunk) !== false;
    // A failing write can cancel this body at once.
    const isHeldBack = !isTaken && this.#isFlowing && exchange.caller.reason === undefined;
    if (isHeldBack) {
      this.#silence.pause(now);
      exchange.isDelayed = true;
    }
    return this.#isFlowing;
  }

  #drop(chunk: Uint8Array): boolean {
    this.#unreadBytes += chunk.byteLength;
    if (this.#unreadBytes > MAX_UNREAD_BYTES) this.#endWithoutCaller();
    return !this.#isOver;
  }

  get #hasKeepAlive(): boolean {
    const { scanner, keepAlive, keepAliveMs } = this.#options;
    return scanner !== undefined && keepAlive !== "" && keepAliveMs > 0;
  }

  #sendKeepAlive(): void {
    const { keepAlive, clock } = this.#options;
    if (this.#hasKeepAlive) this.#send(new TextEncoder().encode(keepAlive), clock.monotonic());
  }

  /** Ends the relay for a reason other than the provider's end. */
  #endEarly(reason: unknown): void {
    if (this.#isOver) return;
    if (reason instanceof ClientClosed) return this.#endWithoutCaller();
    this.#isOver = true;
    this.#cancelTimer();
    this.#body.cancel();
    const stated = this.#streamOutcome;
    if (stated !== undefined && !this.#isCut(reason)) return this.#settleAndEnd(stated);
    const hasFailed = stated?.outcome === "upstream_error";
    this.#endWithError(reason, hasFailed ? stated : toExchangeEnd(reason));
  }

  /** Returns whether a reason is a connection that broke before the last event of the stream. */
  #isCut(reason: unknown): boolean {
    return GatewayError.is(reason) && reason.code === "upstream_disconnected" &&
      !this.#options.scanner?.hasLastEvent;
  }

  /** Settles the exchange and ends the caller's part. */
  #settleAndEnd(end: ExchangeEnd): void {
    this.#settle(end);
    this.#sink?.end();
  }

  /**
   * Ends the caller's part with an error: an event in a stream that has stated no end, else a
   * broken connection. A caller that is not ready receives it when it is ready.
   *
   * @param end Settles the exchange, with the event counted. Left out while the answer
   * continues
   */
  #endWithError(reason: unknown, end?: ExchangeEnd): void {
    const { exchange, scanner } = this.#options;
    const sink = this.#sink;
    this.#sink = undefined;
    const lacksEnd = scanner !== undefined && this.#streamOutcome === undefined;
    const isEvent = lacksEnd && GatewayError.is(reason);
    if (isEvent && sink !== undefined) {
      const event = new TextEncoder().encode(scanner.boundary + scanner.toErrorEvent(reason));
      exchange.bytesOut += event.byteLength;
      sink.write(event);
    }
    if (end !== undefined) this.#settle(end);
    if (isEvent && scanner.clientsReadErrorEvent) sink?.end();
    else sink?.fail(reason);
  }

  /**
   * Frees the upstream at once, and sends the error to the caller. A caller that does not read
   * receives it when it reads again. If it never does, its connection is closed.
   */
  #onAbort(): void {
    const { exchange: { reason }, clock, writeStallMs } = this.#options;
    if (this.#isFlowing || reason instanceof ClientClosed) return this.#endEarly(reason);
    this.#body.cancel();
    // A caller that has stopped reading must not delay the settlement.
    this.#settle(this.#streamOutcome ?? toExchangeEnd(reason));
    const leftMs = writeStallMs - (clock.monotonic() - this.#lastSentAt);
    this.#cancelTimer = clock.timer(Math.max(1, Math.ceil(leftMs)), () => this.#endStalled(), {
      isBackground: true,
    });
  }

  /** Sets the only timer, which serves all deadlines. It waits until the earliest of them. */
  #watch(): void {
    const { clock, keepAliveMs, writeStallMs, scanner } = this.#options;
    const now = clock.monotonic();
    const quietMs = now - this.#lastSentAt;
    const due = this.#silence.due(now, scanner);
    if (due.leftMs <= 0) return this.#options.exchange.abort(new GatewayError(due.code));
    let { leftMs } = due;
    if (!this.#isFlowing) {
      if (quietMs >= writeStallMs) return this.#endStalled();
      leftMs = Math.min(leftMs, writeStallMs - quietMs);
    }
    if (this.#hasKeepAlive) {
      const isDue = quietMs >= keepAliveMs;
      if (isDue && this.#isFlowing && scanner?.isAtBoundary) this.#sendKeepAlive();
      if (this.#isOver) return; // a failing write can end this relay at once
      leftMs = Math.min(leftMs, isDue ? keepAliveMs : keepAliveMs - quietMs);
    }
    this.#cancelTimer = clock.timer(Math.max(1, Math.ceil(leftMs)), () => this.#watch());
  }

  /** Ends the relay, because the caller has stopped reading and counts as gone. */
  #endStalled(): void {
    if (this.#isOver) return;
    // After an abort the exchange is settled, and only the caller's part is left.
    const sink = this.#sink;
    if (this.#options.exchange.isSettled) this.#endWithoutCaller();
    else this.cancel();
    sink?.fail(new Error(STALLED));
  }
}
