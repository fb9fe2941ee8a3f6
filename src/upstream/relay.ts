/**
 * The answer's body on its way to the caller: the bytes as they came, when they came, as fast as the caller reads.
 * A stream of events is watched for its end, for a clean close would read as success in the client libraries.
 *
 * @module
 */
import type { ByteSource } from "../byte_source.ts";
import { GatewayError, toErrorEvent } from "../errors.ts";
import { ClientClosed, type Clock, type Exchange, toSettlement } from "../exchange.ts";
import type { EventStreamScanner } from "./event_stream.ts";

/** What a relay needs beside the body. */
export interface RelayOptions {
  /** Settled when the body is over, whichever way. */
  readonly exchange: Exchange;
  /** Watches a stream of events; left out for a plain answer. */
  readonly scanner?: EventStreamScanner | undefined;
  /** The longest time without payload, milliseconds. Time in which the caller does not read does not count. */
  readonly idleMs: number;
  readonly clock: Clock;
}

/** A body that settles its exchange. */
export class Relay implements ByteSource {
  readonly #body: ByteSource;
  readonly #exchange: Exchange;
  readonly #scanner: EventStreamScanner | undefined;
  readonly #clock: Clock;
  readonly #idleMs: number;
  #cancelTimer = (): void => {};
  /** Milliseconds waited for payload in reads that are over, and since when the pending one waits. */
  #waitedMs = 0;
  #waitingSince: number | undefined;
  #isOver = false;

  /**
   * @param body The upstream's body
   * @param options What it needs beside
   */
  constructor(body: ByteSource, { exchange, scanner, idleMs, clock }: RelayOptions) {
    this.#body = body;
    this.#exchange = exchange;
    this.#scanner = scanner;
    this.#idleMs = idleMs;
    this.#clock = clock;
    exchange.signal.addEventListener("abort", () => this.#aborted(), { once: true });
    exchange.onSettled(() => this.#cancelTimer());
    this.#watchIdle(idleMs);
  }

  /**
   * @returns The next bytes; an error event, when a stream of events can't be completed; `undefined` at the end
   * @throws When a plain answer can't be completed: the adapter then breaks the connection
   */
  async read(): Promise<Uint8Array | undefined> {
    if (this.#isOver) return undefined;
    if (this.#exchange.signal.aborted) return this.#fail(this.#exchange.signal.reason);
    this.#waitingSince = this.#clock.monotonic();
    let chunk: Uint8Array | undefined;
    try {
      chunk = await this.#body.read();
    } catch (cause) {
      const { signal } = this.#exchange;
      return this.#fail(signal.aborted ? signal.reason : new GatewayError("upstream_disconnected", { cause }));
    }
    this.#waitedMs += this.#clock.monotonic() - this.#waitingSince;
    this.#waitingSince = undefined;
    if (this.#isOver) return undefined;
    if (this.#exchange.signal.aborted) return this.#fail(this.#exchange.signal.reason);
    return chunk === undefined ? this.#end() : this.#pass(chunk);
  }

  /** The caller left. What is complete counts as complete: client libraries close as soon as they have seen `[DONE]`. */
  cancel(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#exchange.settle(this.#scanner?.isComplete ? { outcome: "ok" } : toSettlement(new ClientClosed()));
    this.#body.cancel();
  }

  #pass(chunk: Uint8Array): Uint8Array {
    this.#exchange.bytesOut += chunk.byteLength;
    const before = this.#scanner?.payloads;
    this.#scanner?.push(chunk);
    if (this.#scanner === undefined || this.#scanner.payloads !== before) this.#waitedMs = 0;
    return chunk;
  }

  #end(): Uint8Array | undefined {
    this.#scanner?.end();
    if (this.#scanner !== undefined && !this.#scanner.isComplete) {
      return this.#fail(new GatewayError("upstream_stream_truncated"));
    }
    this.#isOver = true;
    this.#exchange.settle({ outcome: "ok" });
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
    const isComplete = this.#scanner?.isComplete ?? false;
    const event = this.#scanner && !isComplete && GatewayError.is(reason)
      ? new TextEncoder().encode(this.#scanner.boundary + toErrorEvent(reason))
      : undefined;
    this.#exchange.bytesOut += event?.byteLength ?? 0;
    this.#exchange.settle(isComplete ? { outcome: "ok" } : toSettlement(reason));
    if (event === undefined && !isComplete) throw reason;
    return event;
  }

  /** Frees the upstream at once; a pending read then ends and tells the caller, else the next one does. */
  #aborted(): void {
    const { reason } = this.#exchange.signal;
    if (reason instanceof ClientClosed) return this.cancel();
    this.#body.cancel();
    // A caller that has stopped reading must not keep the books open.
    if (this.#waitingSince === undefined) this.#exchange.settle(toSettlement(reason));
  }

  #watchIdle(ms: number): void {
    this.#cancelTimer = this.#clock.timer(ms, () => {
      const pending = this.#waitingSince === undefined ? 0 : this.#clock.monotonic() - this.#waitingSince;
      const left = this.#idleMs - this.#waitedMs - pending;
      if (left <= 0) this.#exchange.abort(new GatewayError("upstream_idle_timeout"));
      else this.#watchIdle(left);
    });
  }
}
