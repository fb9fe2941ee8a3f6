/**
 * Places of usage in Redis. The rows of an hour or day are spread by their key over at most 1,024
 * hashes, so that none grows large: a million keys of one model each are 1,000 fields a hash. The
 * hashes lie in 16 groups, each with its own hash tag: a Cluster spreads the groups, and all
 * that one script touches is in one slot.
 *
 * @module
 */
import { STEP_MS, type UsageStep } from "../counts.ts";
import { hashText } from "../wide_map.ts";

/**
 * Number of groups, and of hashes in each. They are the same in all versions: rows are looked for
 * where they are.
 */
export const GROUPS = 16;
export const HASHES = 64;

/** The place of a key's rows. */
export interface Place {
  readonly group: number;
  readonly hash: number;
}

/** Returns the place of a key's rows. */
export function placeOf(key: string): Place {
  const number = hashText(key);
  return { group: number % GROUPS, hash: Math.floor(number / GROUPS) % HASHES };
}

const prefixOf = (group: number): string => `sallyport:{usage:${group}}`;

/**
 * Returns the name of the key that says which hashes of a group an hour or day has: a bit for each.
 */
export function indexName(group: number, step: UsageStep, at: number): string {
  return `${prefixOf(group)}:${step}:${at}`;
}

/** Returns the name of a hash. */
export function hashName({ group, hash }: Place, step: UsageStep, at: number): string {
  return `${indexName(group, step, at)}:${hash}`;
}

/** Returns the name of the key that holds the number of the last script of a gateway in a group. */
export function markName(group: number, gateway: string): string {
  return `${prefixOf(group)}:from:${gateway}`;
}

/**
 * Returns the time at which Redis forgets a hash. The hashes of an hour are forgotten within the
 * next one, those of a day within the next day, one after the other: freeing all at once would keep
 * Redis busy for long.
 *
 * @param at Its start, milliseconds since 1970
 * @param keptMs Time for which it is kept, milliseconds
 * @param place The hash; left out, the time for the index, which outlives all hashes
 */
export function expiryOf(step: UsageStep, at: number, keptMs: number, place?: Place): number {
  const part = place === undefined ? 1 : (place.hash * GROUPS + place.group) / (GROUPS * HASHES);
  return at + keptMs + 2 * STEP_MS[step] + Math.floor(part * STEP_MS[step]);
}

/** Returns the numbers of the hashes that an index names. */
export function readIndex(bits: Uint8Array): readonly number[] {
  return Array.from({ length: HASHES }, (_, hash) => hash)
    .filter((hash) => ((bits[hash >> 3] ?? 0) & (0x80 >> (hash & 7))) !== 0);
}
