/**
 * The answer's body on its way to the caller: the bytes as they came, when they came, as fast as the caller reads. A
 * stream of events is watched for its end, for a clean close would read as success in the client libraries.
 *
 * @module
 */
import type { AnswerMeter, StreamScanner } from "../dialects/dialect.ts";
import { type ErrorCode, GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { ClientClosed, type Exchange, type Settlement, toSettlement } from "../exchange/exchange.ts";
import { type ByteSource, SMALL_BODY_BYTES } from "../http/message.ts";
import { readAll, type ReadAllOptions } from "../http/read_all.ts";
import { toUpstreamError } from "./failure_cause.ts";
import type { UpstreamResponse } from "./transport.ts";

/** Options of a relay. */
export interface RelayOptions {
  /** Settled when the body is over, whichever way. */
  readonly exchange: Exchange;
  /** Watches a stream of events, and makes the event for an error in it; left out for a plain answer. */
  readonly scanner?: StreamScanner | undefined;
  /** True if the tokens that a stream states count: not where it is one of an earlier call's answer. */
  readonly isMetered: boolean;
  /** Watches a plain answer for the tokens that it states. */
  readonly meter?: AnswerMeter | undefined;
  /**
   * The longest time without payload, milliseconds; before the first event of a stream, the longest time without any
   * byte. Time in which the caller does not read does not count, here and in `firstEventMs`.
   */
  readonly idleMs: number;
  /** The longest time until the first event of a stream, milliseconds. */
  readonly firstEventMs: number;
  /** Time of silence after which a comment is sent in a stream of events, milliseconds; 0 for never. */
  readonly keepAliveMs: number;
  /** The longest time in which the caller reads nothing of what is there, milliseconds. */
  readonly writeStallMs: number;
  readonly clock: Clock;
}

// A line that starts with a colon is a comment (WHATWG HTML §9.2.6 names this very use for it).
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n\n");

/**
 * Tells whether a plain answer is small enough to go to the caller in one piece, and so does an error in its place.
 *
 * @param headers The upstream's headers: the length of a packed body says nothing
 * @param body The upstream's body
 * @returns Whether it has arrived already, or its announced length is small
 */
export function isSmall(headers: UpstreamResponse["headers"], body: ByteSource): boolean {
  if ((headers.get("content-encoding") ?? "") !== "") return false;
  return body.isWhole === true || Number(headers.get("content-length") ?? Infinity) <= SMALL_BODY_BYTES;
}

/** Conditions of a read. */
export type ReadWholeOptions = Pick<RelayOptions, "exchange" | "idleMs" | "clock"> & Pick<ReadAllOptions, "accept">;

/**
 * Reads a plain answer to its end.
 *
 * @param body The upstream's body
 * @param options As for a relay; the exchange is left open
 * @returns The body
 * @throws {GatewayError} `upstream_disconnected`, `upstream_idle_timeout`, or why the exchange was aborted
 */
export async function readWhole(
  body: ByteSource,
  { exchange, idleMs, clock, accept }: ReadWholeOptions,
): Promise<Uint8Array> {
  try {
    return await readAll(body, {
      accept,
      exchange,
      deadline: { ms: idleMs, isOfSilence: true, code: "upstream_idle_timeout", clock },
      toError: (cause) => toUpstreamError("upstream_disconnected", cause),
    });
  } catch (error) {
    body.cancel();
    throw error;
  }
}

/** A body that settles its exchange. */
export class Relay implements ByteSource {
  onBroken?: () => void;

  readonly #body: ByteSource;
  readonly #options: RelayOptions;
  #cancelTimer = (): void => {};
  /** The read that waits for the upstream; it outlives a read that a comment answered. */
  #pending: Promise<Uint8Array | undefined> | undefined;
  /** Answers the caller's read with a comment. */
  #sayAlive: (() => void) | undefined;
  /** True while the caller waits for more: then it is the upstream's turn. */
  #isReading = false;
  /** Monotonic times at which the pending read began, and at which the last byte was sent. */
  #pendingSince: number;
  #lastSentAt: number;
  /** Milliseconds waited for payload in earlier turns. */
  #waitedMs = 0;
  #isOver = false;

  /**
   * @param body The upstream's body
   * @param options Options of the relay
   */
  constructor(body: ByteSource, options: RelayOptions) {
    this.#body = body;
    this.#options = options;
    this.#pendingSince = this.#lastSentAt = options.clock.monotonic();
    options.exchange.onAbort(() => this.#aborted());
    options.exchange.onSettled(() => this.#cancelTimer());
    this.#watch();
  }

  /**
   * Waits for the next bytes.
   *
   * @returns The next bytes; an error event, when a stream of events can't be completed; `undefined` at the end
   * @throws When a plain answer can't be completed: the adapter then breaks the connection
   */
  async read(): Promise<Uint8Array | undefined> {
    const { exchange, clock } = this.#options;
    if (this.#isOver) return undefined;
    if (exchange.reason !== undefined) return this.#fail(exchange.reason);
    this.#isReading = true;
    let chunk: Uint8Array | undefined;
    try {
      if (this.#pending === undefined) {
        this.#pendingSince = clock.monotonic();
        this.#pending = this.#body.read();
      }
      chunk = await this.#next(this.#pending);
      if (chunk === KEEP_ALIVE) return this.#send(chunk);
    } catch (cause) {
      return this.#fail(exchange.reason ?? toUpstreamError("upstream_disconnected", cause));
    } finally {
      this.#isReading = false;
    }
    this.#pending = undefined;
    this.#waitedMs += clock.monotonic() - this.#pendingSince;
    if (this.#isOver) return undefined;
    if (exchange.reason !== undefined) return this.#fail(exchange.reason);
    return chunk === undefined ? this.#end() : this.#pass(chunk);
  }

  get isReady(): boolean {
    return this.#isOver || (this.#pending === undefined && this.#body.isReady === true);
  }

  /** Ends the relay after the caller left. A complete answer counts as complete: client libraries close at `[DONE]`. */
  cancel(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#settle(this.#ended ?? toSettlement(new ClientClosed()));
    this.#body.cancel();
  }

  /** Answers a waiting read with a comment, if nothing came yet of a stream that is sent comments at all. */
  announce(): void {
    if (this.#options.exchange.bytesOut === 0 && this.#isReading) this.#sayAlive?.();
  }

  /** Outcome of a stream, as its own content tells it; `undefined` while it goes on. */
  get #ended(): Settlement | undefined {
    const { scanner } = this.#options;
    if (scanner?.hasError) return { outcome: "upstream_error" };
    return scanner?.isComplete ? { outcome: "ok" } : undefined;
  }

  /** Settles the exchange, with the tokens that were stated until then. */
  #settle(settlement: Settlement): void {
    const { exchange, scanner, meter, isMetered } = this.#options;
    if (exchange.isSettled) return;
    const counted = isMetered ? scanner ?? meter : undefined;
    if (counted?.usage !== undefined) exchange.facts.usage = counted.usage;
    exchange.outputTokens = counted?.outputTokens;
    exchange.settle(settlement);
  }

  /** Waits for the upstream's next bytes, or for the comment that {@link #sayAlive} sends before them. */
  #next(pending: Promise<Uint8Array | undefined>): Promise<Uint8Array | undefined> {
    const { scanner, keepAliveMs } = this.#options;
    if (scanner === undefined || keepAliveMs === 0) return pending;
    return new Promise((resolve, reject) => {
      this.#sayAlive = () => resolve(KEEP_ALIVE);
      pending.then(resolve, reject);
    });
  }

  #send(chunk: Uint8Array): Uint8Array {
    const { exchange, clock } = this.#options;
    exchange.bytesOut += chunk.byteLength;
    this.#lastSentAt = clock.monotonic();
    return chunk;
  }

  #pass(chunk: Uint8Array): Uint8Array {
    const { scanner, meter, exchange } = this.#options;
    const before = scanner?.payloads;
    scanner?.push(chunk);
    meter?.push(chunk);
    if (scanner === undefined || scanner.payloads !== before) this.#waitedMs = 0;
    if (before === 0 && scanner?.payloads !== 0) exchange.markFirstToken();
    return this.#send(chunk);
  }

  #end(): Uint8Array | undefined {
    const { scanner } = this.#options;
    scanner?.end();
    const ended = scanner === undefined ? { outcome: "ok" } as const : this.#ended;
    if (ended === undefined) return this.#fail(new GatewayError("upstream_stream_truncated"));
    this.#isOver = true;
    this.#settle(ended);
    return undefined;
  }

  /**
   * Ends with an error: as an event where there are events, else by throwing. A stream that had its end needs no event;
   * if its connection broke before `[DONE]`, so does the caller's, for usage or more may have been lost.
   */
  #fail(reason: unknown): Uint8Array | undefined {
    if (this.#isOver) return undefined;
    if (reason instanceof ClientClosed) {
      this.cancel();
      return undefined;
    }
    this.#isOver = true;
    this.#body.cancel();
    const { scanner } = this.#options;
    const ended = this.#ended;
    const isBroken = GatewayError.is(reason) && reason.code === "upstream_disconnected" && !scanner?.isDone;
    if (ended !== undefined && !isBroken) {
      this.#settle(ended);
      return undefined;
    }
    const event = scanner !== undefined && ended === undefined && GatewayError.is(reason)
      ? this.#send(new TextEncoder().encode(scanner.boundary + scanner.toErrorEvent(reason)))
      : undefined;
    this.#settle(ended !== undefined && scanner?.hasError ? ended : toSettlement(reason));
    if (event === undefined) throw reason;
    return event;
  }

  /** Frees the upstream at once; a pending read then ends and tells the caller, else the next one does. */
  #aborted(): void {
    const { exchange } = this.#options;
    const { reason } = exchange;
    if (reason instanceof ClientClosed) return this.cancel();
    this.#body.cancel();
    // A caller that has stopped reading must not keep the books open.
    if (!this.#isReading) this.#settle(this.#ended ?? toSettlement(reason));
  }

  /** One timer for everything that time decides; it sleeps until the earliest of them can be due. */
  #watch(): void {
    const { clock, keepAliveMs, writeStallMs, scanner } = this.#options;
    const now = clock.monotonic();
    const quietMs = now - this.#lastSentAt;
    const due = this.#silence(this.#isReading ? now - this.#pendingSince : 0);
    if (due.leftMs <= 0) return this.#options.exchange.abort(new GatewayError(due.code));
    let { leftMs } = due;
    if (!this.#isReading) {
      if (quietMs >= writeStallMs) return this.#stall();
      leftMs = Math.min(leftMs, writeStallMs - quietMs);
    }
    if (scanner !== undefined && keepAliveMs > 0) {
      if (quietMs >= keepAliveMs && this.#isReading && scanner.isAtBoundary) this.#sayAlive?.();
      leftMs = Math.min(leftMs, quietMs >= keepAliveMs ? keepAliveMs : keepAliveMs - quietMs);
    }
    this.#cancelTimer = clock.timer(Math.max(1, Math.ceil(leftMs)), () => this.#watch());
  }

  /**
   * Computes how much longer the provider may be silent. Before the first event of a stream any byte ends its silence:
   * providers send comments while a call waits for its turn.
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
    this.cancel();
    this.onBroken?.();
  }
}
