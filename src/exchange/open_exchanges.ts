/**
 * The list of open exchanges: each from its first header until it is settled.
 *
 * @module
 */
import { type GatewayRequest, whenGone } from "../http/message.ts";
import type { Clock } from "./clock.ts";
import { ClientClosed, Exchange } from "./exchange.ts";
import type { ExchangeRecord } from "./record.ts";

/** The age at which an open exchange begins to watch whether its caller leaves. Milliseconds. */
const WATCH_CALLER_MS = 20;

/**
 * Watches whether the caller leaves. A body breaks by itself then; this is for the time in which nothing goes to or fro.
 */
class CallerWatch {
  /** The request, until it is watched: an exchange may be open for much longer than anybody needs it. */
  #request: GatewayRequest | undefined;
  #end: () => void;

  constructor(request: GatewayRequest, exchange: Exchange, clock: Clock) {
    this.#request = request;
    this.#end = clock.timer(WATCH_CALLER_MS, () => this.#begin(exchange));
    exchange.onSettled(() => this.#end());
  }

  #begin(exchange: Exchange): void {
    const onGone = () => exchange.reader === undefined ? exchange.abort(new ClientClosed()) : exchange.reader.cancel();
    if (this.#request !== undefined) this.#end = whenGone(this.#request, onGone);
    this.#request = undefined;
  }
}

/** The number of open exchanges, of one list or of several. */
export interface OpenCount {
  open: number;
}

/**
 * The exchanges that are not settled yet, in no order. An array, in which each knows its index: a `Set` with many
 * additions and deletions replaces its table over and over, and in V8 the old tables keep their entries alive when the
 * young generation is collected. Collections then took 8 % of a plain call on Node, instead of 3 % (2026-11-22, CPU
 * profile).
 */
export class OpenExchanges implements Iterable<Exchange> {
  /** The number of open exchanges, with those of the lists that share it. */
  readonly count: OpenCount;
  readonly #all: Exchange[] = [];
  /** Answers that are read after their exchange has settled: functions that break them off. */
  readonly #held = new Set<(reason: Error) => void>();
  readonly #onEmpty: (() => void)[] = [];

  /** @param count Counts them; one of its own if left out */
  constructor(count: OpenCount = { open: 0 }) {
    this.count = count;
  }

  /** The number of open exchanges. */
  get size(): number {
    return this.#all.length;
  }

  /**
   * Opens an exchange. It is aborted when the caller leaves.
   *
   * @param request What arrived
   * @param parts Source of its times, and the observers that are told of its end
   * @returns The exchange
   */
  begin(
    request: GatewayRequest,
    { clock, observers }: { readonly clock: Clock; readonly observers: readonly ((record: ExchangeRecord) => void)[] },
  ): Exchange {
    const exchange = new Exchange(clock);
    exchange.openIndex = this.#all.push(exchange) - 1;
    this.count.open++;
    exchange.onSettled(() => this.#delete(exchange));
    new CallerWatch(request, exchange, clock);
    for (const observer of observers) exchange.onSettled(observer);
    return exchange;
  }

  /** Removes an exchange; the last one is moved to its index. */
  #delete({ openIndex }: Exchange): void {
    this.count.open--;
    const last = this.#all.pop();
    if (last !== undefined && last.openIndex !== openIndex) {
      this.#all[openIndex] = last;
      last.openIndex = openIndex;
    }
    this.#tell();
  }

  #tell(): void {
    if (this.#all.length > 0 || this.#held.size > 0) return;
    for (const tell of this.#onEmpty.splice(0)) tell();
  }

  /**
   * Holds the end of the gateway up for an answer that may be read for longer than its exchange lasts.
   *
   * @param end Breaks it off, when the gateway can wait no longer
   * @returns Lets go of it
   */
  hold(end: (reason: Error) => void): () => void {
    this.#held.add(end);
    return () => {
      if (this.#held.delete(end)) this.#tell();
    };
  }

  /** Aborts all of them. @param reason Why */
  abort(reason: Error): void {
    for (const exchange of this) exchange.abort(reason);
    for (const end of Array.from(this.#held)) end(reason);
  }

  /** Resolves when there are none, and no answer is held. */
  whenEmpty(): Promise<void> {
    const isEmpty = this.size === 0 && this.#held.size === 0;
    return isEmpty ? Promise.resolve() : new Promise((resolve) => this.#onEmpty.push(resolve));
  }

  /** Iterates over a copy, so that exchanges may be settled meanwhile. */
  [Symbol.iterator](): Iterator<Exchange> {
    return [...this.#all][Symbol.iterator]();
  }
}
