/**
 * The version of the stored forms in Redis: a gateway refuses a Redis with data of a later version
 * that it would misread.
 *
 * @module
 */
import { type RedisClient, RedisFailed } from "./redis_client.ts";
import { LaterForms, STORED_FORMS } from "./stored_forms.ts";

/** The key of the number in Redis. */
const NAME = "sallyport:forms";
/** No caller waits for this check. Milliseconds. */
const DEADLINE_MS = 1000;

/**
 * Compares the number in Redis with the number of this version. If Redis does not answer, the check
 * is skipped.
 *
 * @param isWriter True for a gateway, which raises the number to its own
 * @throws {LaterForms} If the number is later
 */
export async function checkRedisForms(client: RedisClient, isWriter: boolean): Promise<void> {
  try {
    const stored = await client.run((redis) => redis.get(NAME), Number, DEADLINE_MS);
    if (stored > STORED_FORMS) throw new LaterForms("this Redis");
    if (stored < STORED_FORMS && isWriter) {
      await client.run((redis) => redis.set(NAME, STORED_FORMS), () => {}, DEADLINE_MS);
    }
  } catch (error) {
    if (!(error instanceof RedisFailed)) throw error;
  }
}
