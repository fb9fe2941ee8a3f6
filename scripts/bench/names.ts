/** The names of measurements, as the option `--what` accepts them. */

/** All measurements, in the order in which they run. */
export const MEASUREMENTS = [
  "correct",
  "startup",
  "plain",
  "streamed",
  "setup",
  "single",
  "first",
  "large",
  "large-many",
  "conversation",
  "paced",
  "paced-setup",
  "paced-alone",
  "delay",
  "connections",
  "tls",
  "tls-streamed",
  "tls-single",
  "tls-first",
  "key-flood",
  "head-of-line",
  "argument-deltas",
  "session-replay",
  "quiet",
  "memory",
  "keys",
  "observers",
  "workers",
] as const;
export type MeasurementName = (typeof MEASUREMENTS)[number];

/** Left out of a whole run: `conversation` measures nearly the same. */
const ONLY_ALONE: readonly MeasurementName[] = ["large-many"];
/** The measurements of a whole run. */
export const WHOLE: readonly MeasurementName[] = MEASUREMENTS.filter((name) =>
  !ONLY_ALONE.includes(name)
);
/** The measurements of a quick run. */
export const QUICK: readonly MeasurementName[] = ["plain", "streamed", "single"];
