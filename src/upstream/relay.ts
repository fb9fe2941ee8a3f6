/**
 * The relay of the answer's body to the caller: unchanged bytes, sent at once, as fast as the
 * caller reads. A stream of events is watched for its end, because client libraries would read a
 * clean close as success.
 *
 * The event, and the outcome that the stream has stated (`#streamOutcome`), decide how the caller's
 * part ends:
 *
 *     event                     | nothing stated  | complete | error          | plain answer
 *     --------------------------|-----------------|----------|----------------|-------------
 *     the provider ends         | error event (1) | end      | end            | end
 *     its connection breaks (2) | error event     | break    | break          | break
 *     a deadline, the drain     | error event     | end      | end            | break
 *     the caller leaves         | nothing         | nothing  | nothing        | nothing
 *     outcome of the exchange   | the event's     | ok (3)   | upstream_error | the event's
 *     the caller is let go (4)  | error event     | break    | break          | break
 *
 * `error event`: the event, then the end, or a break if client libraries read no such event.
 * `break`: the listener breaks the caller's connection. A caller that stops reading is treated like
 * a caller that leaves, and its connection is broken. (1) `upstream_stream_truncated`. (2) Before
 * the last event of the stream (`hasLastEvent`), when usage can be lost. After it, as at a
 * deadline. (3) If the connection breaks: `upstream_disconnected`. (4) By `continueWithoutCaller`:
 * the rest is read, and the exchange settles later.
 *
 * Each event calls one function: `end`, `fail`, `#onAbort`, `cancel` (`#endStalled` if the caller
 * stops reading) or `continueWithoutCaller`. The caller's part ends in one of three:
 * `#settleAndEnd` (end), `#endWithError` (error event or break), `#endWithoutCaller` (nothing).
 *
 * @module
 */
import type { AnswerMeter, StreamScanner } from "../dialects/dialect.ts";
import type { ErrorCode } from "../errors/codes.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import {
  ClientClosed,
  type Exchange,
  type RelayedAnswer,
  type Settlement,
  toSettlement,
} from "../exchange/exchange.ts";
import { type AnyBody, type ByteSink, push, type PushedBody } from "../http/message.ts";
import { toUpstreamError } from "./failure_cause.ts";

/** Options of a relay. */
export interface RelayOptions {
  /** Settled when the body is over, in every case. */
  readonly exchange: Exchange;
  /** Watches a stream of events, and makes its error event. Left out for a plain answer. */
  readonly scanner?: StreamScanner | undefined;
  /**
   * True if the tokens that a stream states count. False if the stream is the answer of an earlier
   * call.
   */
  readonly countsTokens: boolean;
  /** Watches a plain answer for the tokens that it states. */
  readonly meter?: AnswerMeter | undefined;
  /**
   * The longest time without payload, milliseconds; before the first event of a stream, the longest
   * time without any byte. Time in which the caller does not read is not counted, here and in
   * `firstEventMs`.
   */
  readonly idleMs: number;
  /** The longest time until the first event of a stream, milliseconds. */
  readonly firstEventMs: number;
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
const COMPLETE: Settlement = { outcome: "ok" };

const ignore = (): void => {};

/** A body that settles its exchange. The upstream pushes to it, and it pushes to the caller. */
export class RelayedBody implements PushedBody, ByteSink, RelayedAnswer {
  readonly #body: AnyBody;
  readonly #options: RelayOptions;
  #cancelTimer = ignore;
  /** Receiver of the answer; `undefined` until the caller's side is ready for it. */
  #sink: ByteSink | undefined;
  #askForMore = ignore;
  /** True while the caller accepts bytes, so that the relay waits for the upstream. */
  #isFlowing = false;
  /** Monotonic time when the wait for the upstream began, or its last bytes arrived. */
  #waitingSince: number;
  /** Monotonic time when the last byte was sent. */
  #lastSentAt: number;
  /** Milliseconds waited since the last bytes, before the caller delayed the answer. */
  #earlierWaitMs = 0;
  /** Milliseconds waited between the last payload and the last bytes. */
  #payloadWaitMs = 0;
  #isOver = false;
  /** Bytes of the answer that arrived after its caller had left. */
  #unreadBytes = 0;

  constructor(body: AnyBody, options: RelayOptions) {
    this.#body = body;
    this.#options = options;
    this.#waitingSince = this.#lastSentAt = options.clock.monotonic();
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
    this.#flow();
    if (!this.#isOver) this.#askForMore = push(this.#body, this);
    return () => {
      if (this.#isFlowing || this.#isOver) return;
      this.#flow();
      if (!this.#isOver) this.#askForMore();
    };
  }

  write(chunk: Uint8Array): boolean {
    const { scanner, meter, exchange, clock } = this.#options;
    if (this.#isOver) return false;
    const now = clock.monotonic();
    this.#payloadWaitMs += this.#byteWaitMs(now);
    this.#earlierWaitMs = 0;
    this.#waitingSince = now;
    const before = scanner?.payloadCount;
    scanner?.push(chunk);
    meter?.push(chunk);
    if (scanner === undefined || scanner.payloadCount !== before) this.#payloadWaitMs = 0;
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
    else exchange.leave(new ClientClosed());
  }

  /** Ends the relay. A complete answer counts as complete: client libraries close at `[DONE]`. */
  #endWithoutCaller(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    this.#settle(this.#streamOutcome ?? toSettlement(new ClientClosed()));
    this.#body.cancel();
  }

  /** Reads the rest of the answer and drops it. The deadlines apply as before. */
  continueWithoutCaller(reason: Error): void {
    if (this.#isOver) return;
    const hasBegun = this.#sink !== undefined;
    if (reason instanceof ClientClosed) this.#sink = undefined;
    else this.#endWithError(reason);
    this.#flow();
    if (this.#isOver) return;
    if (hasBegun) this.#askForMore();
    else this.#askForMore = push(this.#body, this);
    if (!this.#isOver) this.#restart();
  }

  /**
   * Watches the provider's silence from now on, because the caller's stall has used up the timer.
   */
  #restart(): void {
    this.#cancelTimer();
    this.#earlierWaitMs = 0;
    this.#watch();
  }

  /** Keeps a stream open of which no bytes have arrived yet, if that is configured. */
  announce(): void {
    if (this.#options.exchange.bytesOut === 0 && this.#isFlowing) this.#sendKeepAlive();
  }

  /** The outcome that a stream has stated; `undefined` before, and for a plain answer. */
  get #streamOutcome(): Settlement | undefined {
    const { scanner } = this.#options;
    if (scanner?.hasError) return { outcome: "upstream_error" };
    return scanner?.isComplete ? COMPLETE : undefined;
  }

  /** Settles the exchange, with the tokens that were stated until then. */
  #settle(settlement: Settlement): void {
    const { exchange, scanner, meter, countsTokens } = this.#options;
    if (exchange.isSettled) return;
    const counted = countsTokens ? scanner ?? meter : undefined;
    const usage = counted?.usage; // read once, because a plain answer is parsed for it
    if (usage !== undefined) exchange.facts.usage = usage;
    exchange.outputTokens = counted?.outputTokens;
    exchange.laterId = counted?.laterId;
    const { reason } = exchange.caller;
    if (reason === undefined) return exchange.settle(settlement);
    if (settlement.outcome === "ok") exchange.completeWithoutCaller(reason);
    exchange.settle(toSettlement(reason));
  }

  /**
   * Resumes the upstream, unless the exchange was aborted in the meantime. Then the caller receives
   * the error now.
   */
  #flow(): void {
    const { exchange, clock } = this.#options;
    if (exchange.reason !== undefined) return this.#endEarly(exchange.reason);
    this.#isFlowing = true;
    this.#waitingSince = clock.monotonic();
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
      this.#isFlowing = false;
      exchange.isDelayed = true;
      this.#earlierWaitMs += now - this.#waitingSince;
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
    this.#endWithError(reason, hasFailed ? stated : toSettlement(reason));
  }

  /** Returns whether a reason is a connection that broke before the last event of the stream. */
  #isCut(reason: unknown): boolean {
    return GatewayError.is(reason) && reason.code === "upstream_disconnected" &&
      !this.#options.scanner?.hasLastEvent;
  }

  /** Settles the exchange and ends the caller's part. */
  #settleAndEnd(settlement: Settlement): void {
    this.#settle(settlement);
    this.#sink?.end();
  }

  /**
   * Ends the caller's part with an error: an event in a stream that has stated no end, else a
   * broken connection. A caller that is not ready receives it when it is ready.
   *
   * @param settlement Settles the exchange, with the event counted. Left out while the answer
   * continues
   */
  #endWithError(reason: unknown, settlement?: Settlement): void {
    const { exchange, scanner } = this.#options;
    const sink = this.#sink;
    this.#sink = undefined;
    const isOpen = scanner !== undefined && this.#streamOutcome === undefined;
    const isEvent = isOpen && GatewayError.is(reason);
    if (isEvent && sink !== undefined) {
      const event = new TextEncoder().encode(scanner.boundary + scanner.toErrorEvent(reason));
      exchange.bytesOut += event.byteLength;
      sink.write(event);
    }
    if (settlement !== undefined) this.#settle(settlement);
    if (isEvent && scanner.hasErrorEvent) sink?.end();
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
    this.#settle(this.#streamOutcome ?? toSettlement(reason));
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
    const due = this.#silence(this.#byteWaitMs(now));
    if (due.leftMs <= 0) return this.#options.exchange.abort(new GatewayError(due.code));
    let { leftMs } = due;
    if (!this.#isFlowing) {
      if (quietMs >= writeStallMs) return this.#endStalled();
      leftMs = Math.min(leftMs, writeStallMs - quietMs);
    }
    if (this.#hasKeepAlive) {
      const isDue = quietMs >= keepAliveMs;
      if (isDue && this.#isFlowing && scanner?.isAtBoundary) this.#sendKeepAlive();
      leftMs = Math.min(leftMs, isDue ? keepAliveMs : keepAliveMs - quietMs);
    }
    this.#cancelTimer = clock.timer(Math.max(1, Math.ceil(leftMs)), () => this.#watch());
  }

  /** Returns the time waited since the last bytes. Milliseconds. */
  #byteWaitMs(now: number): number {
    return this.#earlierWaitMs + (this.#isFlowing ? now - this.#waitingSince : 0);
  }

  /**
   * Computes the remaining time of silence for the provider. Before the first event of a stream,
   * any byte ends the silence, because providers send comments while a call is queued.
   */
  #silence(byteWaitMs: number): { leftMs: number; code: ErrorCode } {
    const { scanner, idleMs, firstEventMs } = this.#options;
    const silentMs = this.#payloadWaitMs + byteWaitMs;
    if (scanner === undefined || scanner.payloadCount > 0) {
      return { leftMs: idleMs - silentMs, code: "upstream_idle_timeout" };
    }
    const isFirstEvent = firstEventMs - silentMs <= idleMs - byteWaitMs;
    return isFirstEvent
      ? { leftMs: firstEventMs - silentMs, code: "upstream_first_event_timeout" }
      : { leftMs: idleMs - byteWaitMs, code: "upstream_idle_timeout" };
  }

  /** Ends the relay, because the caller has stopped reading and counts as gone. */
  #endStalled(): void {
    if (this.#isOver) return;
    const sink = this.#sink;
    if (this.#options.exchange.isSettled) this.#endWithoutCaller();
    else this.cancel();
    sink?.fail(new Error(STALLED));
  }
}
