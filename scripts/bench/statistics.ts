/** Statistics over many readings of one figure. */

/** The median of several readings, and their range. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/**
 * @param values Readings, at least one
 * @returns Their median and range
 */
export function toSpread(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (index: number) => sorted[index] ?? NaN;
  const half = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? at(half) : (at(half - 1) + at(half)) / 2;
  return { median, min: at(0), max: at(sorted.length - 1) };
}

/**
 * Compares two alternating series of readings, round by round. If the machine is slower for a
 * while, both are slower.
 *
 * @param values The first series
 * @param base The second series
 * @param compare Computes the result of a pair
 */
export function comparePairs(
  values: readonly number[],
  base: readonly number[],
  compare: (value: number, base: number) => number,
): Spread {
  return toSpread(values.map((value, round) => compare(value, base[round] ?? NaN)));
}
