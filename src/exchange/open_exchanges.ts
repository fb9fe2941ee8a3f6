/**
 * The list of open exchanges: each from its first header until it is settled.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import { type GatewayRequest, whenGone } from "../http/message.ts";
import type { Clock } from "./clock.ts";
import { Exchange } from "./exchange.ts";
import type { ExchangeRecord } from "./record.ts";
import { createShare, type Share, SharedBudget } from "./shared_budget.ts";

/** The age at which an open exchange begins to watch whether its caller leaves. Milliseconds. */
const WATCH_CALLER_MS = 20;

/**
 * Watches for a caller that leaves. A body in transit breaks without this. The watch is for the
 * time in which no bytes are transferred.
 */
class CallerWatch {
  /**
   * The request, until it is watched. Released then, because an exchange can be open much longer
   * than the request is needed.
   */
  #request: GatewayRequest | undefined;
  #end: () => void;

  constructor(request: GatewayRequest, exchange: Exchange, clock: Clock) {
    this.#request = request;
    this.#end = clock.timer(WATCH_CALLER_MS, () => this.#begin(exchange));
    exchange.onSettled(() => this.#end());
  }

  #begin(exchange: Exchange): void {
    if (this.#request !== undefined) {
      this.#end = whenGone(this.#request, () => exchange.disconnect());
    }
    this.#request = undefined;
  }
}

/** A key can have four slots for each free one: at most four fifths. */
const KEY_FACTOR = 4;
/**
 * A provider can have nine slots for each free one if there are several, so that a key with its
 * full share leaves slots for other keys there.
 */
const PROVIDER_FACTOR = 9;

/** Slots for the open exchanges of one list or several. */
export class ExchangeSlots {
  /** Slots of exchanges with a known key, with the shares of keys and providers. */
  readonly withKey: SharedBudget;
  /** Number of used slots, including exchanges whose key is not known yet. */
  used = 0;
  #max: number;

  constructor(max: number) {
    this.withKey = new SharedBudget(max, createShare);
    this.#max = max;
  }

  resize(max: number): void {
    this.withKey.resize(max);
    this.#max = max;
  }

  /** True if more exchanges are open than allowed. */
  get isOverfull(): boolean {
    return this.used > this.#max;
  }
}

/**
 * The exchanges that are not settled yet, in no order. It is an array, and each exchange knows its
 * index. A `Set` with many additions and deletions replaces its table often, and in V8 the old
 * tables keep their entries alive when the young generation is collected. Collections then cost 8 %
 * of a plain call on Node, instead of 3 % (2026-11-22, CPU profile).
 */
export class OpenExchanges implements Iterable<Exchange> {
  /** Slots of the exchanges, shared with other lists. */
  readonly slots: ExchangeSlots;
  readonly #all: Exchange[] = [];
  /**
   * Exchanges whose answers can be read after they have settled, with functions that break off
   * these answers.
   */
  readonly #readable = new Map<Exchange, (reason: Error) => void>();
  readonly #onEmpty: (() => void)[] = [];

  /** @param slots Slots of the exchanges. If left out, their number is unlimited */
  constructor(slots: ExchangeSlots = new ExchangeSlots(Infinity)) {
    this.slots = slots;
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
    this.slots.used++;
    exchange.onSettled(() => this.#delete(exchange));
    new CallerWatch(request, exchange, clock);
    for (const observer of observers) exchange.onSettled(observer);
    return exchange;
  }

  /**
   * Counts an exchange for its key and its provider.
   *
   * @param provider Name of its provider; left out if there is no other one
   * @throws {GatewayError} `gateway_overloaded` if one of them already has its full share of the
   * slots
   */
  takeSlots(exchange: Exchange, key: string, provider?: string): void {
    const { withKey } = this.slots;
    withKey.count(1);
    const own = withKey.join(`key:${key}`);
    const common = provider === undefined ? undefined : withKey.join(`provider:${provider}`);
    exchange.shares = common === undefined ? [own] : [own, common];
    for (const share of exchange.shares) share.used++;
    this.#assertWithin(own, KEY_FACTOR, "this gateway key");
    if (common !== undefined) this.#assertWithin(common, PROVIDER_FACTOR, "this provider");
  }

  #assertWithin({ used }: Share, factor: number, owner: string): void {
    if (used === 1 || used <= factor * this.slots.withKey.free) return;
    throw new GatewayError("gateway_overloaded", {
      detail: `${owner} has its share of the open exchanges`,
    });
  }

  /** Frees the slot of an exchange. */
  #free({ shares }: Exchange): void {
    const { slots } = this;
    slots.used--;
    if (shares.length > 0) slots.withKey.count(-1);
    for (const share of shares) {
      share.used--;
      slots.withKey.leave(share);
    }
  }

  /** Removes an exchange, and moves the last exchange to its index. */
  #delete(exchange: Exchange): void {
    const { openIndex } = exchange;
    if (!this.#readable.has(exchange)) this.#free(exchange);
    const last = this.#all.pop();
    if (last !== undefined && last.openIndex !== openIndex) {
      this.#all[openIndex] = last;
      last.openIndex = openIndex;
    }
    this.#notifyEmpty();
  }

  #notifyEmpty(): void {
    if (this.#onEmpty.length === 0 || this.#all.length > 0 || this.#readable.size > 0) return;
    for (const notify of this.#onEmpty.splice(0)) notify();
  }

  /**
   * Keeps the slot of an exchange, and keeps the gateway open, for an answer that can be read for
   * longer than the exchange lasts.
   *
   * @param end Breaks off the answer when the gateway can wait no longer
   * @returns Function that frees the slot
   */
  keepOpen(exchange: Exchange, end: (reason: Error) => void): () => void {
    this.#readable.set(exchange, end);
    return () => {
      if (!this.#readable.delete(exchange)) return;
      if (exchange.isSettled) this.#free(exchange);
      this.#notifyEmpty();
    };
  }

  /** Aborts all of them. */
  abort(reason: Error): void {
    for (const exchange of this) exchange.abort(reason);
    for (const end of Array.from(this.#readable.values())) end(reason);
  }

  /** Resolves when no exchange is open and no answer is kept open. */
  whenEmpty(): Promise<void> {
    const isEmpty = this.size === 0 && this.#readable.size === 0;
    return isEmpty ? Promise.resolve() : new Promise((resolve) => this.#onEmpty.push(resolve));
  }

  /** Iterates over a copy, so that exchanges can be settled during the iteration. */
  [Symbol.iterator](): Iterator<Exchange> {
    return [...this.#all][Symbol.iterator]();
  }
}
