/**
 * The clock of a Worker. On that platform a timer belongs to the request that has set it and cannot
 * be shared.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";

/** The clock of the current request, or of a Durable Object. */
export const clock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  timer(ms, fire) {
    const handle = setTimeout(fire, ms);
    return () => clearTimeout(handle);
  },
};
