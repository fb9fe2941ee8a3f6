/**
 * Places of usage in Redis. The rows of an hour or day are spread by gateway key over at most 1,024
 * hashes, so that none grows large: a million keys with one model each are 1,000 fields per hash.
 * The hashes are in 16 groups, each with its own hash tag. A Cluster spreads the groups, and all
 * keys of one script are in one slot.
 *
 * @module
 */
import { STEP_MS, type UsageStep } from "../counts.ts";
import { hashText } from "../wide_map.ts";

/**
 * Number of groups, and of hashes in each. They must be the same in all versions, or rows would not
 * be found.
 */
export const GROUPS = 16;
export const HASHES = 64;

/** The shard of a key's rows. */
export interface Shard {
  readonly group: number;
  readonly hash: number;
}

/** Returns the shard of a key's rows. */
export function shardOf(key: string): Shard {
  const number = hashText(key);
  return { group: number % GROUPS, hash: Math.floor(number / GROUPS) % HASHES };
}

const prefixOf = (group: number): string => `sallyport:{usage:${group}}`;

/**
 * Returns the name of the index: the Redis key that has one bit for each hash of a group that an
 * hour or day has.
 */
export function indexName(group: number, step: UsageStep, at: number): string {
  return `${prefixOf(group)}:${step}:${at}`;
}

/** Returns the name of a hash. */
export function hashName({ group, hash }: Shard, step: UsageStep, at: number): string {
  return `${indexName(group, step, at)}:${hash}`;
}

/** Returns the name of the Redis key with the number of a gateway's last script in a group. */
export function markName(group: number, gateway: string): string {
  return `${prefixOf(group)}:from:${gateway}`;
}

/**
 * Returns the expiry of a hash. The hashes of an hour expire one after the other within the next
 * hour, the hashes of a day within the next day. Freeing all at once would block Redis too long.
 *
 * @param at Its start, milliseconds since 1970
 * @param keptMs Time for which it is kept, milliseconds
 * @param shard The hash. Default: the index, which outlives all hashes
 */
export function expiryOf(step: UsageStep, at: number, keptMs: number, shard?: Shard): number {
  const part = shard === undefined ? 1 : (shard.hash * GROUPS + shard.group) / (GROUPS * HASHES);
  return at + keptMs + 2 * STEP_MS[step] + Math.floor(part * STEP_MS[step]);
}

/** Returns the numbers of the hashes in an index. */
export function readIndex(bits: Uint8Array): readonly number[] {
  return Array.from({ length: HASHES }, (_, hash) => hash)
    .filter((hash) => ((bits[hash >> 3] ?? 0) & (0x80 >> (hash & 7))) !== 0);
}
