/**
 * Reading of hashes in Redis in steps, so that a large hash does not block Redis.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";

/** The part of a Redis connection that usage needs. */
export type UsageRedis = Pick<RedisClient, "script" | "run" | "ask">;

/** Number of fields per read. */
const FIELDS_AT_ONCE = 500;

function readPage(reply: unknown): [cursor: string, fields: readonly string[]] {
  const [cursor, fields]: unknown[] = Array.isArray(reply) ? reply : [];
  if (typeof cursor !== "string" || !Array.isArray(fields)) throw new Error("no page");
  return [cursor, fields];
}

/**
 * Reads a hash.
 *
 * @param name Name of the hash. The hash need not exist
 * @param found Receives each field and its value. Can receive a field twice while Redis rehashes
 * the hash
 */
export async function scanHash(
  client: UsageRedis,
  name: string,
  found: (field: string, value: string) => void,
): Promise<void> {
  let cursor = "0";
  do {
    const [next, fields] = await client.ask(
      (redis) => redis.hscan(name, cursor, "COUNT", FIELDS_AT_ONCE),
      readPage,
    );
    for (const [index, field] of fields.entries()) {
      const value = fields[index + 1];
      if (index % 2 === 0 && value !== undefined) found(field, value);
    }
    cursor = next;
  } while (cursor !== "0");
}
