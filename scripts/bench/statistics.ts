/** What many readings of one thing say together. */

/** The middle of several readings, and how far they are apart. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/**
 * @param values Readings, at least one
 * @returns Their middle and their ends
 */
export function toSpread(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (index: number) => sorted[index] ?? NaN;
  const half = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? at(half) : (at(half - 1) + at(half)) / 2;
  return { median, min: at(0), max: at(sorted.length - 1) };
}

/**
 * Two rows of readings that were taken in turn, compared round by round: what slows the machine
 * down for a while slows both down.
 *
 * @param values The one
 * @param base The other
 * @param compare What to say of a pair
 */
export function comparePairs(
  values: readonly number[],
  base: readonly number[],
  compare: (value: number, base: number) => number,
): Spread {
  return toSpread(values.map((value, round) => compare(value, base[round] ?? NaN)));
}
