/**
 * The answer's body on its way to the caller: the bytes as they came, when they came, as fast as the caller reads.
 * A stream of events is watched for its end, for a clean close would read as success in the client libraries.
 *
 * @module
 */
import { type ByteSource, joinChunks } from "../byte_source.ts";
import { GatewayError, toErrorEvent } from "../errors.ts";
import { ClientClosed, type Clock, type Exchange, type Settlement, toSettlement } from "../exchange.ts";
import type { EventStreamScanner } from "./event_stream.ts";
import { toUpstreamError } from "./failure_cause.ts";
import type { PlainAnswerMeter } from "./usage.ts";

/** What a relay needs beside the body. */
export interface RelayOptions {
  /** Settled when the body is over, whichever way. */
  readonly exchange: Exchange;
  /** Watches a stream of events; left out for a plain answer. */
  readonly scanner?: EventStreamScanner | undefined;
  /** Watches a plain answer for the tokens that it states. */
  readonly meter?: PlainAnswerMeter | undefined;
  /** The longest time without payload, milliseconds. Time in which the caller does not read does not count. */
  readonly idleMs: number;
  /** After so long a quiet a stream of events is sent a comment, milliseconds; 0 for never. */
  readonly keepAliveMs: number;
  /** The longest time in which the caller reads nothing of what is there, milliseconds. */
  readonly writeStallMs: number;
  readonly clock: Clock;
}

// A line that starts with a colon is a comment (WHATWG HTML §9.2.6 names this very use for it).
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n\n");

/** A plain answer of at most this size goes to the caller in one piece, and so does an error in its place. Bytes. */
export const MAX_WHOLE_BYTES = 65536;

/**
 * Reads a small plain answer to its end.
 *
 * @param body The upstream's body
 * @param options As for a relay; the exchange is left open
 * @returns The body
 * @throws {GatewayError} `upstream_disconnected`, `upstream_idle_timeout`, or why the exchange was aborted
 */
export function readWhole(
  body: ByteSource,
  { exchange, idleMs, clock }: Pick<RelayOptions, "exchange" | "idleMs" | "clock">,
): Promise<Uint8Array> {
  if (body.isWhole === true && exchange.reason === undefined) {
    return body.read().then((whole = new Uint8Array()) => whole);
  }
  return new Promise((resolve, reject) => {
    const chunks: Uint8Array[] = [];
    const watch = () => clock.timer(idleMs, () => exchange.abort(new GatewayError("upstream_idle_timeout")));
    let cancelTimer = watch();
    const onAbort = () => body.cancel();
    const forgetAbort = exchange.onAbort(onAbort);
    if (exchange.reason !== undefined) onAbort();
    const end = () => {
      cancelTimer();
      forgetAbort();
    };
    const fail = (cause: unknown) => {
      end();
      reject(exchange.reason ?? toUpstreamError("upstream_disconnected", cause));
    };
    const take = (chunk: Uint8Array | undefined): void => {
      if (exchange.reason !== undefined) return fail(exchange.reason);
      if (chunk === undefined) {
        end();
        return resolve(joinChunks(chunks));
      }
      chunks.push(chunk);
      cancelTimer();
      cancelTimer = watch();
      body.read().then(take, fail);
    };
    body.read().then(take, fail);
  });
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
  /** Whether the caller waits for more: then it is the upstream's turn. */
  #isReading = false;
  /** Monotonic times: since when the pending read waits, and when the last byte went out. */
  #pendingSince: number;
  #lastSentAt: number;
  /** Milliseconds waited for payload in earlier turns. */
  #waitedMs = 0;
  #isOver = false;

  /**
   * @param body The upstream's body
   * @param options What it needs beside
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

  /** The caller left. What is complete counts as complete: client libraries close as soon as they have seen `[DONE]`. */
  cancel(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#settle(this.#options.scanner?.isComplete ? { outcome: "ok" } : toSettlement(new ClientClosed()));
    this.#body.cancel();
  }

  /** Closes the books, with the tokens that were stated until then. */
  #settle(settlement: Settlement): void {
    const { exchange, scanner, meter } = this.#options;
    if (exchange.isSettled) return;
    const usage = (scanner ?? meter)?.usage;
    if (usage !== undefined) exchange.facts.usage = usage;
    exchange.settle(settlement);
  }

  /** What the upstream says next, or the comment that {@link #sayAlive} puts in before it. */
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
    if (scanner !== undefined && !scanner.isComplete) return this.#fail(new GatewayError("upstream_stream_truncated"));
    this.#isOver = true;
    this.#settle({ outcome: "ok" });
    return undefined;
  }

  /** Ends with an error: as an event where there are events, else by throwing. */
  #fail(reason: unknown): Uint8Array | undefined {
    if (this.#isOver) return undefined;
    if (reason instanceof ClientClosed) {
      this.cancel();
      return undefined;
    }
    this.#isOver = true;
    this.#body.cancel();
    const { scanner } = this.#options;
    const isComplete = scanner?.isComplete ?? false;
    const event = scanner && !isComplete && GatewayError.is(reason)
      ? this.#send(new TextEncoder().encode(scanner.boundary + toErrorEvent(reason)))
      : undefined;
    this.#settle(isComplete ? { outcome: "ok" } : toSettlement(reason));
    if (event === undefined && !isComplete) throw reason;
    return event;
  }

  /** Frees the upstream at once; a pending read then ends and tells the caller, else the next one does. */
  #aborted(): void {
    const { exchange } = this.#options;
    const { reason } = exchange;
    if (reason instanceof ClientClosed) return this.cancel();
    this.#body.cancel();
    // A caller that has stopped reading must not keep the books open.
    if (!this.#isReading) this.#settle(toSettlement(reason));
  }

  /** One timer for everything that time decides; it sleeps until the earliest of them can be due. */
  #watch(): void {
    const { clock, idleMs, keepAliveMs, writeStallMs, scanner } = this.#options;
    const now = clock.monotonic();
    const quietMs = now - this.#lastSentAt;
    let leftMs: number;
    if (this.#isReading) {
      leftMs = idleMs - this.#waitedMs - (now - this.#pendingSince);
      if (leftMs <= 0) return this.#options.exchange.abort(new GatewayError("upstream_idle_timeout"));
    } else {
      if (quietMs >= writeStallMs) return this.#stall();
      leftMs = Math.min(writeStallMs - quietMs, idleMs);
    }
    if (scanner !== undefined && keepAliveMs > 0) {
      if (quietMs >= keepAliveMs && this.#isReading && scanner.isAtBoundary) this.#sayAlive?.();
      leftMs = Math.min(leftMs, quietMs >= keepAliveMs ? keepAliveMs : keepAliveMs - quietMs);
    }
    this.#cancelTimer = clock.timer(Math.max(1, Math.ceil(leftMs)), () => this.#watch());
  }

  /** The caller takes nothing any more, and is held to have left. */
  #stall(): void {
    this.cancel();
    this.onBroken?.();
  }
}
