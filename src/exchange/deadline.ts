/**
 * Waiting for an embedder's own code: no longer than its exchange lasts, and not for ever.
 *
 * @module
 */
import type { Clock } from "./clock.ts";
import { dropRejection } from "./observer.ts";
import type { Exchange } from "./exchange.ts";

/** Longer than any store of keys or counts takes that works. Milliseconds. */
export const PATIENCE_MS = 10_000;

/** What a wait depends on. */
export interface Patience<T> {
  /** On whose behalf: its abort ends the wait, with its reason. */
  readonly exchange: Exchange;
  readonly clock: Clock;
  /** What is thrown after {@link PATIENCE_MS}. */
  refuse(): Error;
  /** Takes what came when nobody waited for it any more: a lease has to be given back. */
  late?(value: T): unknown;
}

/**
 * Waits for a part.
 *
 * @param answer What the part promised
 * @param patience What the wait depends on
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
