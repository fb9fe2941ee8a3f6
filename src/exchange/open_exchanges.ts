/**
 * The list of open exchanges: each from its first header until it is settled.
 *
 * @module
 */
import type { GatewayRequest } from "../http/message.ts";
import type { Clock } from "./clock.ts";
import { ClientClosed, Exchange } from "./exchange.ts";
import type { ExchangeObserver } from "./observer.ts";

/** The age at which an open exchange begins to watch whether its caller leaves. Milliseconds. */
const WATCH_CALLER_MS = 20;

/** A body breaks by itself when the caller leaves; this is for the time in which nothing goes to or fro. */
function watchCaller(request: GatewayRequest, exchange: Exchange, clock: Clock): void {
  const onGone = () => exchange.abort(new ClientClosed());
  let signal: AbortSignal | undefined;
  const cancelTimer = clock.timer(WATCH_CALLER_MS, () => {
    signal = request.signal;
    if (signal?.aborted) onGone();
    signal?.addEventListener("abort", onGone);
  });
  exchange.onSettled(() => {
    cancelTimer();
    signal?.removeEventListener("abort", onGone);
  });
}

/** The exchanges that are not settled yet, in the order in which they came. */
export class OpenExchanges implements Iterable<Exchange> {
  readonly #all = new Set<Exchange>();
  readonly #onEmpty: (() => void)[] = [];

  /** The number of open exchanges. */
  get size(): number {
    return this.#all.size;
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
    { clock, observers }: { readonly clock: Clock; readonly observers: readonly ExchangeObserver[] },
  ): Exchange {
    const exchange = new Exchange(clock);
    this.#all.add(exchange);
    exchange.onSettled(() => this.#delete(exchange));
    watchCaller(request, exchange, clock);
    for (const observer of observers) exchange.onSettled((record) => observer.settled(record));
    return exchange;
  }

  #delete(exchange: Exchange): void {
    this.#all.delete(exchange);
    if (this.#all.size > 0) return;
    for (const tell of this.#onEmpty.splice(0)) tell();
  }

  /** Resolves when there are none. */
  whenEmpty(): Promise<void> {
    return this.size === 0 ? Promise.resolve() : new Promise((resolve) => this.#onEmpty.push(resolve));
  }

  /** Iterates over them; exchanges may be settled meanwhile. */
  [Symbol.iterator](): Iterator<Exchange> {
    return this.#all.values();
  }
}
