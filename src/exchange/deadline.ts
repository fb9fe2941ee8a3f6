/**
 * Waits for an embedder's own code, at most until its exchange is aborted, and never forever.
 *
 * @module
 */
import type { Clock } from "./clock.ts";
import { dropRejection } from "./observer.ts";
import type { Exchange } from "./exchange.ts";

/** The longest wait for a store of keys or counts; a store that works answers sooner. Milliseconds. */
export const PATIENCE_MS = 10_000;

/** Conditions of a wait. */
export interface Patience<T> {
  /** The exchange that waits; its abort ends the wait, with its reason. */
  readonly exchange: Exchange;
  readonly clock: Clock;
  /** Makes the error that is thrown after {@link PATIENCE_MS}. */
  refuse(): Error;
  /** Takes a value that came after the wait had ended: a lease, for example, has to be given back. */
  late?(value: T): unknown;
}

/**
 * Waits for the answer of a part of the gateway.
 *
 * @param answer What the part promised
 * @param patience Conditions of the wait
 * @returns What it answered
 * @throws What the part threw, the reason of the exchange's abort, or the refusal
 */
export function waitFor<T>(answer: Promise<T>, { exchange, clock, refuse, late }: Patience<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    let isOver = false;
    const end = (thrown: unknown): void => {
      isOver = true;
      cancelTimer();
      forget();
      reject(thrown);
    };
    const forget = exchange.onAbort(() => end(exchange.reason));
    const cancelTimer = clock.timer(PATIENCE_MS, () => end(refuse()));
    Promise.resolve(answer).then((value) => {
      if (isOver) return dropRejection(late?.(value));
      cancelTimer();
      forget();
      resolve(value);
    }).catch(end);
    if (exchange.reason !== undefined) end(exchange.reason);
  });
}
