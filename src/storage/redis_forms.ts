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

/**
 * Compares the number in Redis with the number of this version. If Redis does not answer, the check
 * is skipped.
 *
 * @param isWriter True for a gateway, which raises the number to its own
 * @throws {LaterForms} If the number is later
 */
export async function checkRedisForms(client: RedisClient, isWriter: boolean): Promise<void> {
  try {
    const stored = await client.run((redis) => redis.get(NAME), Number);
    if (stored > STORED_FORMS) throw new LaterForms("this Redis");
    if (stored < STORED_FORMS && isWriter) {
      await client.run((redis) => redis.set(NAME, STORED_FORMS), () => {});
    }
  } catch (error) {
    if (!(error instanceof RedisFailed)) throw error;
  }
}
