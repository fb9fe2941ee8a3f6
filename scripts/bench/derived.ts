/** Results that are derived from the readings of paced streams. */
import type { Measurement } from "./measurements.ts";
import type { Series } from "./session.ts";

/** The same measurement with another figure of its readings. */
type Derived = readonly [Measurement, readonly Series[]];

/** Numbers of streams whose event delay is a separate result. */
const DELAY_STREAMS: readonly number[] = [1000, 5000];
/** The number of streams whose cost with set-up is a separate result. */
const SETUP_STREAMS = 500;

function derive(
  measurement: Measurement,
  all: readonly Series[],
  figure: string,
): Derived {
  const series = all.map((each) => ({
    ...each,
    readings: each.readings.map((reading) => ({
      ...reading,
      value: reading.details[figure] ?? NaN,
    })),
  }));
  return [measurement, series];
}

/**
 * Derives results from the readings of paced streams: the 99.9th percentile of the delay of an
 * event, and the processor time of an event with its part of the set-up.
 *
 * @param measurement A measurement
 * @param all Its readings
 * @returns Nothing for other measurements
 */
export function deriveAll(measurement: Measurement, all: readonly Series[]): Derived[] {
  const { name, at = 0 } = measurement;
  if (name !== "paced") return [];
  const derived: Derived[] = [];
  const streams = at.toLocaleString("en");
  if (at === SETUP_STREAMS) {
    const title = `${streams} paced streams: an event with its part of the set-up of its stream`;
    derived.push(derive({ ...measurement, name: "paced-setup", title }, all, "withSetupUs"));
  }
  if (DELAY_STREAMS.includes(at)) {
    const title = `delay of an event at ${streams} streams, p99.9`;
    const delay = { name: "delay", title, unit: "ms", compare: "difference" } as const;
    derived.push(derive({ ...measurement, ...delay }, all, "p999Ms"));
  }
  return derived;
}
