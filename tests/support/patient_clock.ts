/** Clocks for connections to Redis, for tests that need its replies and not its deadlines. */
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { REDIS_DEADLINE_MS } from "../../src/storage/redis_client.ts";

/** Longer than a reply of Redis on a busy machine. Milliseconds. */
const LONG_MS = 5000;

/**
 * Makes a clock of the system with longer deadlines, which a busy machine meets too.
 *
 * @param deadlines The deadlines that are longer. Milliseconds
 */
export function createPatientClock(...deadlines: readonly number[]): Clock {
  return {
    ...systemClock,
    timer: (ms, fire, options) =>
      systemClock.timer(deadlines.includes(ms) ? LONG_MS : ms, fire, options),
  };
}

/** A clock with a longer deadline of calls for which a caller waits. */
export const patientClock: Clock = createPatientClock(REDIS_DEADLINE_MS);
