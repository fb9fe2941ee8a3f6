/**
 * Numbers of input tokens from which a model can have another price.
 *
 * @module
 */
import type { Price } from "./prices.ts";

/**
 * Numbers of tokens at which published prices change. Some prices begin at the number itself, others
 * beyond it.
 */
const THRESHOLDS: readonly number[] = [100, 128, 200, 256, 272, 512].map((k) => 1000 * k);

const known = new WeakMap<Pick<Price, "rows">, readonly number[]>();

function toEnds({ rows = [] }: Pick<Price, "rows">): readonly number[] {
  const ends = new Set(THRESHOLDS.flatMap((threshold) => [threshold, threshold + 1]));
  for (const { when: { over, from } = {} } of rows) {
    if (over !== undefined) ends.add(over + 1);
    if (from !== undefined) ends.add(from);
  }
  return [...ends].sort((one, other) => one - other);
}

const STANDARD = toEnds({});

/**
 * Lists the numbers of input tokens from which a model can have another price, in ascending order:
 * those of published prices, and those in its rows.
 */
export function contextEndsOf(price: Pick<Price, "rows"> | undefined): readonly number[] {
  if (price === undefined) return STANDARD;
  let ends = known.get(price);
  if (ends === undefined) known.set(price, ends = toEnds(price));
  return ends;
}
