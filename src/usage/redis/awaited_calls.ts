/**
 * Calls whose usage is stated later, in Redis: one key for each, as JSON, with an expiry. The
 * gateway that answers the later call can be another one.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import { AWAITED_MS, type AwaitedCalls, type AwaitedName } from "../awaited_calls.ts";

/** Deadline of commands that no caller waits for. Milliseconds. */
const DEADLINE_MS = 1000;
/** Version of the stored form. The estimate stays for a call in the form of another version. */
const VERSION = 1;

const toKey = ({ provider, answerId }: AwaitedName): string =>
  `sallyport:awaited:${provider}:${answerId}`;

/** Awaited calls in Redis. */
export class RedisAwaitedCalls<Call extends object> implements AwaitedCalls<Call> {
  readonly #client: RedisClient;

  constructor(client: RedisClient) {
    this.#client = client;
  }

  async put(name: AwaitedName, call: Call): Promise<void> {
    const value = JSON.stringify({ version: VERSION, call });
    const set = this.#client.run(
      (redis) => redis.set(toKey(name), value, "PX", AWAITED_MS),
      () => {},
      DEADLINE_MS,
    );
    await set.catch(() => {}); // the estimate stays
  }

  async take(name: AwaitedName): Promise<Call | undefined> {
    const text = await this.#client.run(
      (redis) => redis.getdel(toKey(name)),
      (answer) => typeof answer === "string" ? answer : undefined,
      DEADLINE_MS,
    ).catch(() => undefined);
    if (text === undefined) return undefined;
    const { version, call }: { readonly version: unknown; readonly call: Call } = JSON.parse(text);
    return version === VERSION ? call : undefined;
  }
}
