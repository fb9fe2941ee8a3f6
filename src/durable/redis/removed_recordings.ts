/**
 * Recordings in Redis that this gateway has removed. A failed removal is retried for the duration
 * of a lease. A failover can lose a successful removal, so it is repeated at the new primary.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import { type RedisClient } from "../../storage/redis_client.ts";
import { toDeletedKey, toLogKey, toRecordingKey } from "./replies.ts";
import { DELETE, DISCARD } from "./scripts.ts";
import { RECENT_MS } from "./recent_entries.ts";

/** Deadline of commands for which no caller waits, or which have many bytes. Milliseconds. */
export const PATIENT_MS = 1000;
/** Number of removals that are repeated at once. */
const REPEATED_AT_ONCE = 100;
const TRIES = 4;

export interface RemovedRecordingsOptions {
  readonly client: RedisClient;
  readonly clock: Clock;
  /** Time for which the id of an expired recording stays known. Milliseconds. */
  readonly tombstoneMs: number;
}

interface Removal {
  readonly run: () => Promise<void>;
  triesLeft: number;
  /** The generation of the server where it was done. */
  doneAt: number | undefined;
  readonly askedAt: number;
}

/** Recordings that this gateway has discarded or deleted. */
export class RemovedRecordings {
  readonly #options: RemovedRecordingsOptions;
  readonly #discard: ReturnType<RedisClient["script"]>;
  readonly #delete: ReturnType<RedisClient["script"]>;
  readonly #removals = new Map<string, Removal>();
  #repeating: Promise<void> | undefined;

  constructor(options: RemovedRecordingsOptions) {
    this.#options = options;
    this.#discard = options.client.script("sallyportRecordingDiscard", DISCARD);
    this.#delete = options.client.script("sallyportRecordingDelete", DELETE);
  }

  /** The number of removals that can need another attempt. */
  get size(): number {
    return this.#removals.size;
  }

  /** Discards a recording. Never rejects. */
  async discard(id: string, epoch: number): Promise<void> {
    const { client, tombstoneMs } = this.#options;
    const keys = [toRecordingKey(id), toLogKey(id)];
    const run = () =>
      client.run(
        (redis) => this.#discard(redis, keys, [id, epoch, tombstoneMs]),
        () => {},
        PATIENT_MS,
      );
    await this.#try(id, this.#add(id, run));
  }

  /** Deletes a recording. @throws If that fails */
  async delete(id: string): Promise<void> {
    const { client } = this.#options;
    const keys = [toRecordingKey(id), toLogKey(id), toDeletedKey(id)];
    const run = () =>
      client.run((redis) => this.#delete(redis, keys, [id, RECENT_MS]), () => {}, PATIENT_MS);
    const { generation } = client;
    await run();
    this.#add(id, run).doneAt = generation;
  }

  /** Repeats failed removals, and removals that were done at another server. Never rejects. */
  async repeat(): Promise<void> {
    this.#repeating ??= this.#repeatAll().finally(() => this.#repeating = undefined);
    await this.#repeating;
  }

  async #repeatAll(): Promise<void> {
    const all = Array.from(this.#removals);
    for (let start = 0; start < all.length; start += REPEATED_AT_ONCE) {
      const batch = all.slice(start, start + REPEATED_AT_ONCE);
      await Promise.all(batch.map(([id, removal]) => this.#try(id, removal)));
    }
  }

  #add(id: string, run: () => Promise<void>): Removal {
    const askedAt = this.#options.clock.monotonic();
    const removal: Removal = { run, triesLeft: TRIES, doneAt: undefined, askedAt };
    this.#removals.set(id, removal);
    return removal;
  }

  async #try(id: string, removal: Removal): Promise<void> {
    const { client, clock } = this.#options;
    const { generation } = client;
    const isDone = removal.doneAt === generation;
    const isOver = isDone
      ? clock.monotonic() - removal.askedAt > RECENT_MS
      : removal.triesLeft-- <= 0;
    if (isOver) this.#removals.delete(id);
    if (isDone || isOver) return;
    try {
      await removal.run();
      removal.doneAt = generation;
      removal.triesLeft = TRIES;
    } catch {
      // The next round tries again.
    }
  }
}
