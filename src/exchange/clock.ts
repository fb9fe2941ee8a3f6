/**
 * Port: time. Tests pass their own instead of patching globals.
 *
 * @module
 */
import { runtimeClock } from "./timer_queue.ts";

/** Time, as a part: tests pass their own instead of patching globals. */
export interface Clock {
  /** Wall clock, milliseconds since 1970: for what people read and for the expiry of keys. */
  now(): number;
  /** Milliseconds that only grow: for durations and deadlines. */
  monotonic(): number;
  /**
   * Calls `fire` once after `ms` milliseconds.
   *
   * @returns Cancels it; safe to call at any time, also again
   */
  timer(ms: number, fire: () => void): () => void;
}

/** The clock of the runtime. */
export const systemClock: Clock = runtimeClock;
