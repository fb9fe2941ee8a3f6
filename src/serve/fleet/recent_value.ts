/**
 * A cached value that is read again when it is too old.
 *
 * @module
 */
import { systemClock } from "../../exchange/clock.ts";

/** A value that several readers need at about the same time. It is read once for all of them. */
export class RecentValue<T> {
  readonly #freshMs: number;
  #value: Promise<T> | undefined;
  #readAt = -Infinity;

  /** @param freshMs Time for which it is cached. Milliseconds */
  constructor(freshMs: number) {
    this.#freshMs = freshMs;
  }

  /** Returns the last value if it is recent, else the value that `read` returns. */
  get(read: () => Promise<T>): Promise<T> {
    const now = systemClock.monotonic();
    if (this.#value !== undefined && now - this.#readAt < this.#freshMs) return this.#value;
    this.#readAt = now;
    const value = this.#value = read();
    value.catch(() => this.#value = undefined);
    return value;
  }
}
