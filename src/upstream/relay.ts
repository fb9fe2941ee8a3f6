/**
 * The relay of the answer's body to the caller: unchanged bytes, sent at once, as fast as the
 * caller reads. A stream of events is watched for its end, because client libraries would read a
 * clean close as success.
 *
 * The event and the stream's own statement (`#stated`) decide how the caller's part ends:
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
 * the last event of the stream (`isDone`), when usage can be lost. After it, as at a deadline. (3)
 * If the connection breaks: `upstream_disconnected`. (4) By
 * `continueWithoutCaller`: the rest is read, and the exchange settles later.
 *
 * @module
 */
import type { AnswerMeter, StreamScanner } from "../dialects/dialect.ts";
import { type ErrorCode, GatewayError } from "../errors/gateway_error.ts";
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
  /**
   * Time of silence after which a comment is sent in a stream of events, milliseconds; 0 for never.
   */
  readonly keepAliveMs: number;
  /** The longest time in which the caller reads none of the available bytes, milliseconds. */
  readonly writeStallMs: number;
  readonly clock: Clock;
}

// A line that starts with a colon is a comment (WHATWG HTML §9.2.6 suggests this use).
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n\n");

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
  /**
   * Monotonic times: when the wait for the upstream began or its last bytes arrived, and when the
   * last byte was sent.
   */
  #waitingSince: number;
  #lastSentAt: number;
  /**
   * Milliseconds waited for bytes in earlier waits: since the last bytes, and since the last
   * payload.
   */
  #heldMs = 0;
  #waitedMs = 0;
  #isOver = false;
  /**
   * The reason why the caller receives no more of an answer that continues, and the number of bytes
   * since then.
   */
  #leftReason: Error | undefined;
  #unreadBytes = 0;

  constructor(body: AnyBody, options: RelayOptions) {
    this.#body = body;
    this.#options = options;
    this.#waitingSince = this.#lastSentAt = options.clock.monotonic();
    const { exchange } = options;
    exchange.relayedAnswer = this;
    exchange.onAbort(() => this.#aborted());
    exchange.onSettled(() => this.#cancelTimer());
    this.#watch();
    if (exchange.leftReason !== undefined) this.continueWithoutCaller(exchange.leftReason);
  }

  /**
   * Pushes the answer. If a stream of events cannot be completed, it pushes an error event. A plain
   * answer then fails, and the listener breaks the connection.
   */
  pushTo(sink: ByteSink): () => void {
    if (this.#leftReason !== undefined) {
      this.#sink = sink;
      this.#break(this.#leftReason);
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
    this.#waitedMs += this.#heldMs + (this.#isFlowing ? now - this.#waitingSince : 0);
    this.#heldMs = 0;
    this.#waitingSince = now;
    const before = scanner?.payloads;
    scanner?.push(chunk);
    meter?.push(chunk);
    if (scanner === undefined || scanner.payloads !== before) this.#waitedMs = 0;
    if (before === 0 && scanner?.payloads !== 0) exchange.markFirstToken();
    return this.#send(chunk, now);
  }

  end(): void {
    const { scanner } = this.#options;
    if (this.#isOver) return;
    scanner?.end();
    const outcome = scanner === undefined ? COMPLETE : this.#stated;
    if (outcome === undefined) return this.#fail(new GatewayError("upstream_stream_truncated"));
    this.#isOver = true;
    this.#finish(outcome);
  }

  fail(cause: unknown): void {
    if (!this.#isOver) {
      this.#fail(this.#options.exchange.reason ?? toUpstreamError("upstream_disconnected", cause));
    }
  }

  /** Ends the relay after the caller left, or continues without it. */
  cancel(): void {
    if (this.#isOver || this.#leftReason !== undefined) return;
    if (this.#options.exchange.outlivesCaller) this.#options.exchange.leave(new ClientClosed());
    else this.#quit();
  }

  /** Ends the relay. A complete answer counts as complete: client libraries close at `[DONE]`. */
  #quit(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    this.#settle(this.#stated ?? toSettlement(new ClientClosed()));
    this.#body.cancel();
  }

  /** Reads the rest of the answer and drops it. The deadlines apply as before. */
  continueWithoutCaller(reason: Error): void {
    if (this.#isOver) return;
    const hasBegun = this.#sink !== undefined;
    this.#leftReason = reason;
    if (reason instanceof ClientClosed) this.#sink = undefined;
    else this.#break(reason);
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
    this.#heldMs = 0;
    this.#watch();
  }

  /** Sends a comment if no bytes of the stream have arrived yet, and if comments are configured. */
  announce(): void {
    if (this.#options.exchange.bytesOut === 0 && this.#isFlowing) this.#sendComment();
  }

  /** The outcome that a stream has stated; `undefined` before, and for a plain answer. */
  get #stated(): Settlement | undefined {
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
    exchange.answerId = counted?.laterId;
    exchange.isCompleteWithoutCaller = this.#leftReason !== undefined &&
      settlement.outcome === "ok";
    exchange.settle(this.#leftReason === undefined ? settlement : toSettlement(this.#leftReason));
  }

  /**
   * Resumes the upstream, unless the exchange was aborted in the meantime. Then the caller receives
   * the error now.
   */
  #flow(): void {
    const { exchange, clock } = this.#options;
    if (exchange.reason !== undefined) return this.#fail(exchange.reason);
    this.#isFlowing = true;
    this.#waitingSince = clock.monotonic();
  }

  #send(chunk: Uint8Array, now: number): boolean {
    if (this.#leftReason !== undefined) return this.#drop(chunk);
    this.#options.exchange.bytesOut += chunk.byteLength;
    this.#lastSentAt = now;
    const isTaken = this.#sink?.write(chunk) !== false;
    // A failing write can cancel this body at once.
    const isHeldBack = !isTaken && this.#isFlowing && this.#leftReason === undefined;
    if (isHeldBack) {
      this.#isFlowing = false;
      this.#options.exchange.isDelayed = true;
      this.#heldMs += now - this.#waitingSince;
    }
    return this.#isFlowing;
  }

  #drop(chunk: Uint8Array): boolean {
    this.#unreadBytes += chunk.byteLength;
    if (this.#unreadBytes > MAX_UNREAD_BYTES) this.#quit();
    return !this.#isOver;
  }

  #sendComment(): void {
    const { scanner, keepAliveMs, clock } = this.#options;
    if (scanner !== undefined && keepAliveMs > 0) this.#send(KEEP_ALIVE, clock.monotonic());
  }

  /** Ends the relay for a reason other than the provider's end. */
  #fail(reason: unknown): void {
    if (this.#isOver) return;
    if (reason instanceof ClientClosed) return this.#quit();
    this.#isOver = true;
    this.#cancelTimer();
    this.#body.cancel();
    const stated = this.#stated;
    if (stated !== undefined && !this.#isCut(reason)) return this.#finish(stated);
    const hasFailed = stated?.outcome === "upstream_error";
    this.#break(reason, hasFailed ? stated : toSettlement(reason));
  }

  /** Returns whether a reason is a connection that broke before the last event of the stream. */
  #isCut(reason: unknown): boolean {
    return GatewayError.is(reason) && reason.code === "upstream_disconnected" &&
      !this.#options.scanner?.isDone;
  }

  /** Settles the exchange and ends the caller's part. */
  #finish(settlement: Settlement): void {
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
  #break(reason: unknown, settlement?: Settlement): void {
    const { exchange, scanner } = this.#options;
    const sink = this.#sink;
    this.#sink = undefined;
    const isOpen = scanner !== undefined && this.#stated === undefined;
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
  #aborted(): void {
    const { exchange: { reason }, clock, writeStallMs } = this.#options;
    if (this.#isFlowing || reason instanceof ClientClosed) return this.#fail(reason);
    this.#body.cancel();
    // A caller that has stopped reading must not delay the settlement.
    this.#settle(this.#stated ?? toSettlement(reason));
    const leftMs = writeStallMs - (clock.monotonic() - this.#lastSentAt);
    this.#cancelTimer = clock.timer(Math.max(1, Math.ceil(leftMs)), () => this.#stall(), {
      isBackground: true,
    });
  }

  /** Sets the only timer, which serves all deadlines. It waits until the earliest of them. */
  #watch(): void {
    const { clock, keepAliveMs, writeStallMs, scanner } = this.#options;
    const now = clock.monotonic();
    const quietMs = now - this.#lastSentAt;
    const due = this.#silence(this.#heldMs + (this.#isFlowing ? now - this.#waitingSince : 0));
    if (due.leftMs <= 0) return this.#options.exchange.abort(new GatewayError(due.code));
    let { leftMs } = due;
    if (!this.#isFlowing) {
      if (quietMs >= writeStallMs) return this.#stall();
      leftMs = Math.min(leftMs, writeStallMs - quietMs);
    }
    if (scanner !== undefined && keepAliveMs > 0) {
      const isDue = quietMs >= keepAliveMs;
      if (isDue && this.#isFlowing && scanner.isAtBoundary) this.#sendComment();
      leftMs = Math.min(leftMs, isDue ? keepAliveMs : keepAliveMs - quietMs);
    }
    this.#cancelTimer = clock.timer(Math.max(1, Math.ceil(leftMs)), () => this.#watch());
  }

  /**
   * Computes the remaining time of silence for the provider. Before the first event of a stream,
   * any byte ends the silence, because providers send comments while a call is queued.
   */
  #silence(pendingMs: number): { leftMs: number; code: ErrorCode } {
    const { scanner, idleMs, firstEventMs } = this.#options;
    const silentMs = this.#waitedMs + pendingMs;
    if (scanner === undefined || scanner.payloads > 0) {
      return { leftMs: idleMs - silentMs, code: "upstream_idle_timeout" };
    }
    const isFirstEvent = firstEventMs - silentMs <= idleMs - pendingMs;
    return isFirstEvent
      ? { leftMs: firstEventMs - silentMs, code: "upstream_first_event_timeout" }
      : { leftMs: idleMs - pendingMs, code: "upstream_idle_timeout" };
  }

  /** Ends the relay, because the caller has stopped reading and counts as gone. */
  #stall(): void {
    if (this.#isOver) return;
    const sink = this.#sink;
    if (this.#options.exchange.isSettled) this.#quit();
    else this.cancel();
    sink?.fail(new Error(STALLED));
  }
}
