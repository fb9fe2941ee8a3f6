/**
 * The version of the stored forms in Redis: a gateway refuses a Redis with data of a later version
 * that it would misread.
 *
 * @module
 */
import { type RedisClient, RedisFailed } from "./redis_client.ts";
import { defineScript } from "./redis_script.ts";
import { LaterForms, STORED_FORMS } from "./stored_forms.ts";

/** The key of the number in Redis. */
const NAME = "sallyport:forms";
/** No caller waits for this check. Milliseconds. */
const DEADLINE_MS = 1000;

/** Returns the number in Redis, and raises it for a writer: in one step, so that it never falls. */
const FORMS = defineScript<{ name: string; own: number; isWriter: boolean }>(
  "sallyportForms",
  { name: "key", own: "number", isWriter: "flag" },
  () => `
local stored = tonumber(redis.call('GET', name)) or 0
if isWriter and stored < own then redis.call('SET', name, own) end
return stored
`,
);

/**
 * Compares the number in Redis with the number of this version. If Redis does not answer, the check
 * is skipped.
 *
 * @param isWriter True for a gateway, which raises the number to its own
 * @throws {LaterForms} If the number is later
 */
export async function checkRedisForms(client: RedisClient, isWriter: boolean): Promise<void> {
  const readForms = client.command({
    script: FORMS,
    write: (call: { isWriter: boolean }) => ({ name: NAME, own: STORED_FORMS, ...call }),
    read: Number,
    deadlineMs: DEADLINE_MS,
  });
  try {
    if (await readForms({ isWriter }) > STORED_FORMS) throw new LaterForms("this Redis");
  } catch (error) {
    if (!(error instanceof RedisFailed)) throw error;
  }
}
