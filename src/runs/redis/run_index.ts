/**
 * The gateway keys that have runs in Redis, by their last use. Operators list the runs of all keys,
 * and the runs of each key are in a separate slot of a Cluster.
 *
 * @module
 */
import { dropRejection } from "../../exchange/exchange.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { defineScript, NOW, type RedisScript } from "../../storage/redis_script.ts";

const INDEX = "sallyport:run-keys";
/** A key that is used again after this time is noted again. Milliseconds. */
const NOTE_EVERY_MS = 60_000;
/** A key is listed for this time after it was noted: the longest time of an idle run. Milliseconds. */
const KEPT_MS = 32 * 24 * 3_600_000;
/** The most keys that a gateway remembers to have noted. */
const MAX_NOTED = 10_000;
const DEADLINE_MS = 1000;

interface NoteCall {
  readonly indexKey: string;
  readonly keyId: string;
  readonly keptMs: number;
}

/** Answer: 1. */
const NOTE: RedisScript<NoteCall> = defineScript(
  "sallyportRunNote",
  { indexKey: "key", keyId: "text", keptMs: "number" },
  () =>
    `${NOW}
redis.call('ZADD', indexKey, now, keyId)
redis.call('ZREMRANGEBYSCORE', indexKey, '-inf', now - keptMs)
redis.call('PEXPIRE', indexKey, keptMs)
return 1`,
);

/** The gateway keys with runs. */
export class RunIndex {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #note: RedisCommand<NoteCall, unknown>;
  /** Time at which each key was noted. */
  readonly #noted = new Map<string, number>();

  constructor(client: RedisClient, clock: Clock) {
    this.#client = client;
    this.#note = client.command({
      script: NOTE,
      write: (call) => call,
      read: () => undefined,
      deadlineMs: DEADLINE_MS,
    });
    this.#clock = clock;
  }

  /** Notes that a key has runs. */
  note(keyId: string): void {
    const now = this.#clock.now();
    const before = this.#noted.get(keyId);
    if (before !== undefined && now - before < NOTE_EVERY_MS) return;
    if (this.#noted.size >= MAX_NOTED) this.#noted.clear();
    this.#noted.set(keyId, now);
    const noted = this.#note({ indexKey: INDEX, keyId, keptMs: KEPT_MS });
    dropRejection(noted.catch(() => this.#noted.delete(keyId)));
  }

  /** Lists the keys, the last used first. */
  async list(limit: number): Promise<readonly string[]> {
    return await this.#client.ask(
      (redis) => redis.zrevrange(INDEX, 0, limit - 1),
      (reply) => {
        if (!Array.isArray(reply)) throw new Error("no list of keys");
        return reply.map(String);
      },
    );
  }
}
