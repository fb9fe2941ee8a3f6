/**
 * The error for operators if a store in Redis can't be used.
 *
 * @module
 */
import { RedisFailed } from "../../storage/redis_client.ts";
import { KeyStoreUnavailable } from "../key_store.ts";

/**
 * Runs an act on a store in Redis.
 *
 * @param message The text for the operator if Redis fails
 * @throws {KeyStoreUnavailable} If Redis fails
 */
export async function explainFailure<T>(message: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (cause) {
    if (!(cause instanceof RedisFailed)) throw cause;
    throw new KeyStoreUnavailable(message, { cause });
  }
}
