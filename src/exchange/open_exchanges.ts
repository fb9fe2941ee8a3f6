/**
 * The list of open exchanges: each from its first header until it is settled.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import { type GatewayRequest, whenGone } from "../http/message.ts";
import type { Clock } from "./clock.ts";
import { ClientClosed, Exchange } from "./exchange.ts";
import type { ExchangeRecord } from "./record.ts";
import { createShare, type Share, SharedBudget } from "./shared_budget.ts";

/** The age at which an open exchange begins to watch whether its caller leaves. Milliseconds. */
const WATCH_CALLER_MS = 20;

/**
 * Watches whether the caller leaves. A body breaks by itself then; this is for the time in which
 * nothing goes to or fro.
 */
class CallerWatch {
  /**
   * The request, until it is watched: an exchange may be open for much longer than anybody needs
   * it.
   */
  #request: GatewayRequest | undefined;
  #end: () => void;

  constructor(request: GatewayRequest, exchange: Exchange, clock: Clock) {
    this.#request = request;
    this.#end = clock.timer(WATCH_CALLER_MS, () => this.#begin(exchange));
    exchange.onSettled(() => this.#end());
  }

  #begin(exchange: Exchange): void {
    const onGone = () =>
      exchange.reader === undefined ? exchange.leave(new ClientClosed()) : exchange.reader.cancel();
    if (this.#request !== undefined) this.#end = whenGone(this.#request, onGone);
    this.#request = undefined;
  }
}

/** A key may have four places for each that stays free: at most four fifths. */
const KEY_FACTOR = 4;
/**
 * One of several providers may have nine, so that a key that has its share leaves places for other
 * keys there.
 */
const PROVIDER_FACTOR = 9;

/** Places for open exchanges, of one list or of several. */
export class ExchangePlaces {
  /** Places of the exchanges whose key is known, with the shares of keys and providers. */
  readonly known: SharedBudget;
  /** Number of places that are taken, also of exchanges whose key is not known yet. */
  taken = 0;
  #max: number;

  constructor(max: number) {
    this.known = new SharedBudget(max, createShare);
    this.#max = max;
  }

  resize(max: number): void {
    this.known.resize(max);
    this.#max = max;
  }

  /** True if more exchanges are open than may be. */
  get isOverfull(): boolean {
    return this.taken > this.#max;
  }
}

/**
 * The exchanges that are not settled yet, in no order. An array, in which each knows its index: a
 * `Set` with many additions and deletions replaces its table over and over, and in V8 the old
 * tables keep their entries alive when the young generation is collected. Collections then took 8 %
 * of a plain call on Node, instead of 3 % (2026-11-22, CPU profile).
 */
export class OpenExchanges implements Iterable<Exchange> {
  /** Places of the exchanges, and of those in the lists that share them. */
  readonly places: ExchangePlaces;
  readonly #all: Exchange[] = [];
  /**
   * Exchanges whose answers may be read after they have settled, with functions that break these
   * answers off.
   */
  readonly #held = new Map<Exchange, (reason: Error) => void>();
  readonly #onEmpty: (() => void)[] = [];

  /** @param places Places of the exchanges; as many as are needed if left out */
  constructor(places: ExchangePlaces = new ExchangePlaces(Infinity)) {
    this.places = places;
  }

  /** The number of open exchanges. */
  get size(): number {
    return this.#all.length;
  }

  /** Opens an exchange. It is aborted when the caller leaves. */
  begin(
    request: GatewayRequest,
    { clock, observers }: {
      readonly clock: Clock;
      readonly observers: readonly ((record: ExchangeRecord) => void)[];
    },
  ): Exchange {
    const exchange = new Exchange(clock);
    exchange.openIndex = this.#all.push(exchange) - 1;
    this.places.taken++;
    exchange.onSettled(() => this.#delete(exchange));
    new CallerWatch(request, exchange, clock);
    for (const observer of observers) exchange.onSettled(observer);
    return exchange;
  }

  /**
   * Counts an exchange for its key and its provider.
   *
   * @param provider Name of its provider; left out where there is no other one
   * @throws {GatewayError} `gateway_overloaded` if one of them has its share of the places
   */
  share(exchange: Exchange, key: string, provider?: string): void {
    const { known } = this.places;
    known.count(1);
    const own = known.join(`key:${key}`);
    const common = provider === undefined ? undefined : known.join(`provider:${provider}`);
    exchange.shares = common === undefined ? [own] : [own, common];
    for (const share of exchange.shares) share.held++;
    this.#assertWithin(own, KEY_FACTOR, "this gateway key");
    if (common !== undefined) this.#assertWithin(common, PROVIDER_FACTOR, "this provider");
  }

  #assertWithin({ held }: Share, factor: number, owner: string): void {
    if (held === 1 || held <= factor * this.places.known.free) return;
    throw new GatewayError("gateway_overloaded", {
      detail: `${owner} has its share of the open exchanges`,
    });
  }

  /** Frees the place of an exchange. */
  #free({ shares }: Exchange): void {
    const { places } = this;
    places.taken--;
    if (shares.length > 0) places.known.count(-1);
    for (const share of shares) {
      share.held--;
      places.known.leave(share);
    }
  }

  /** Removes an exchange; the last one is moved to its index. */
  #delete(exchange: Exchange): void {
    const { openIndex } = exchange;
    if (!this.#held.has(exchange)) this.#free(exchange);
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
   * Keeps the place of an exchange, and the gateway from its end, for an answer that may be read
   * for longer than the exchange lasts.
   *
   * @param end Breaks the answer off, when the gateway can wait no longer
   * @returns Lets go of it
   */
  hold(exchange: Exchange, end: (reason: Error) => void): () => void {
    this.#held.set(exchange, end);
    return () => {
      if (!this.#held.delete(exchange)) return;
      if (exchange.isSettled) this.#free(exchange);
      this.#tell();
    };
  }

  /** Aborts all of them. */
  abort(reason: Error): void {
    for (const exchange of this) exchange.abort(reason);
    for (const end of Array.from(this.#held.values())) end(reason);
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
