/**
 * Waits for a store of keys or a limiter, which can be an embedder's own code. The wait ends when
 * its exchange is aborted, or at a deadline.
 *
 * @module
 */
import type { Clock } from "./clock.ts";
import { dropRejection, type Exchange, isPromise } from "./exchange.ts";

/** The longest wait for a store of keys or counts. A working store answers sooner. Milliseconds. */
export const STORE_DEADLINE_MS = 10_000;

/** Conditions of a wait. */
export interface WaitOptions<T> {
  /** The exchange that waits; its abort ends the wait, with its reason. */
  readonly exchange: Exchange;
  readonly clock: Clock;
  /** Makes the error that is thrown after {@link STORE_DEADLINE_MS}. */
  toError(): Error;
  /**
   * Receives a value that arrived after the wait had ended. A lease, for example, must be released.
   */
  onLate?(value: T): unknown;
}

/**
 * Waits for the answer of a part of the gateway. A value that is not a promise is returned at once:
 * parts with data in memory answer like this, and each of the two waits of a call costs Node 0.9
 * µs, a hundredth of the call (2026-11-22).
 *
 * @throws The error of the part, the reason of the exchange's abort, or the error for a late answer
 */
export function withDeadline<T>(
  answer: T | Promise<T>,
  options: WaitOptions<T>,
): T | Promise<T> {
  if (!isPromise(answer)) return answer;
  const { exchange, clock } = options;
  return new Promise((resolve, reject) => {
    let isOver = false;
    const end = (thrown: unknown): void => {
      isOver = true;
      cancelTimer();
      forgetAbort();
      reject(thrown);
    };
    const forgetAbort = exchange.onAbort(() => end(exchange.reason));
    const cancelTimer = clock.timer(STORE_DEADLINE_MS, () => end(options.toError()));
    Promise.resolve(answer).then((value) => {
      if (isOver) return dropRejection(options.onLate?.(value));
      cancelTimer();
      forgetAbort();
      resolve(value);
    }).catch(end);
    if (exchange.reason !== undefined) end(exchange.reason);
  });
}
