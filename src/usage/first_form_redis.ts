/**
 * Usage in Redis as the first versions wrote it: one hash for all keys of an hour or day, with a field for each count.
 * It is read until it has expired, and while gateways of such a version run beside this one.
 *
 * @module
 */
import {
  noCounts,
  STEP_MS,
  UNNAMED_OPERATION,
  type UsageCount,
  type UsageCounts,
  type UsageRange,
  type UsageRow,
} from "./counts.ts";
import { scanHash, type UsageRedis } from "./scan_redis.ts";
import { inParts } from "./usage_memory.ts";

/** Number of hashes that are read concurrently. */
const HASHES_AT_ONCE = 8;

/** A field is the letter of a count and its names, as JSON: `["key","provider","model","operation"]`; in old ones without the last. */
const COUNT_OF: ReadonlyMap<string, UsageCount> = new Map([
  ["r", "requests"],
  ["p", "partial"],
  ["u", "unmetered"],
  ["f", "failed"],
  ["i", "input"],
  ["c", "cached"],
  ["o", "output"],
  ["t", "reasoning"],
  ["x", "other"],
]);

async function readHash(client: UsageRedis, hash: string, at: number): Promise<Iterable<UsageRow>> {
  const rows = new Map<string, UsageRow & { counts: UsageCounts }>();
  await scanHash(client, hash, (field, value) => {
    const count = COUNT_OF.get(field.charAt(0));
    if (count === undefined) return;
    const name = field.slice(1);
    let row = rows.get(name);
    if (row === undefined) {
      const [key = "", provider = "", model = "", operation = UNNAMED_OPERATION] = JSON.parse(name) as string[]; // as it was written
      rows.set(name, row = { at, key, provider, model, operation, counts: noCounts() });
    }
    row.counts[count] = Number(value);
  });
  return rows.values();
}

/**
 * Reads what is left of this form.
 *
 * @param client The connection
 * @param range The range of the rows
 * @returns The rows, some at a time
 */
export async function* readFirstForm(
  client: UsageRedis,
  { step, from, to }: UsageRange,
): AsyncIterable<readonly UsageRow[]> {
  const length = Math.max(0, Math.ceil((to - from) / STEP_MS[step]));
  const times = Array.from({ length }, (_, n) => from + n * STEP_MS[step]);
  for (const some of inParts(times, HASHES_AT_ONCE)) {
    const found = await Promise.all(some.map((at) => readHash(client, `sallyport:usage:${step}:${at}`, at)));
    for (const rows of found) yield* inParts(rows);
  }
}
