/**
 * Changes in Redis, next to the keys: a list, the newest first.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import {
  type ChangeLog,
  type LoggedChange,
  MAX_CHANGES,
  readChange,
  writeChange,
} from "../change_log.ts";
import { NOTE_CHANGE, toKeyNames } from "./key_scripts.ts";
import { explainFailure } from "./store_failure.ts";

const UNAVAILABLE = "Cannot use the changes in Redis: check that it runs, its URL and its log";

/** Changes in Redis. */
export class RedisChangeLog implements ChangeLog {
  readonly #client: RedisClient;
  readonly #add: RedisCommand<LoggedChange, unknown>;
  readonly #changesKey: string;

  constructor(client: RedisClient) {
    this.#client = client;
    this.#changesKey = toKeyNames(client.isCluster).changes;
    this.#add = client.command({
      script: NOTE_CHANGE,
      write: (change: LoggedChange) => ({
        changesKey: this.#changesKey,
        change: writeChange(change),
        last: MAX_CHANGES - 1,
      }),
      read: (reply) => reply,
    });
  }

  async add(change: LoggedChange): Promise<void> {
    await this.#explain(() => this.#add(change, { isAdministrative: true }));
  }

  async read(): Promise<readonly LoggedChange[]> {
    const lines = await this.#explain(() =>
      this.#client.ask(
        (redis) => redis.lrange(this.#changesKey, 0, -1),
        (reply) => reply as string[],
      )
    );
    return lines.map(readChange).filter((change) => change !== undefined);
  }

  #explain<T>(act: () => Promise<T>): Promise<T> {
    return explainFailure(UNAVAILABLE, act);
  }
}
