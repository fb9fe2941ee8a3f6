/**
 * Slots of this gateway's open exchanges, in subjects with limited concurrency. Redis frees a slot
 * that is not renewed, because its gateway has died.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { LEASE_MS } from "../limiter.ts";
import type { SubjectLayout } from "./subject_layout.ts";
import { RENEW, type RenewCall } from "./scripts.ts";
import { BACKGROUND_MS, BATCH } from "./settlements.ts";

/**
 * Maximum number of ended exchanges that are remembered. Only the last seconds matter, because
 * older ones have expired in Redis.
 */
const MAX_ENDED = 10_000;

/** An exchange that is over. */
interface Ended {
  readonly key: string;
  readonly id: string;
}

/** Slots of one gateway. */
export class OpenSlots {
  readonly #client: RedisClient;
  readonly #renew: RedisCommand<Pick<RenewCall, "openKey" | "ids">, void>;
  /** Ids of exchanges, by the key of their set in Redis. */
  readonly #open = new Map<string, Set<string>>();
  #ended: Ended[] = [];
  #hasUnfreed = false;

  constructor(client: RedisClient) {
    this.#client = client;
    this.#renew = client.command({
      script: RENEW,
      write: (open) => ({ ...open, lifeMs: LEASE_MS.redis }),
      read: () => {},
      deadlineMs: BACKGROUND_MS,
    });
  }

  /** Adds an exchange. */
  add({ openKey }: SubjectLayout, id: string): void {
    const ids = this.#open.get(openKey);
    if (ids === undefined) this.#open.set(openKey, new Set([id]));
    else ids.add(id);
  }

  /** Returns whether an exchange is open. */
  has({ openKey }: SubjectLayout, id: string): boolean {
    return this.#open.get(openKey)?.has(id) === true;
  }

  /** Returns the number of open exchanges of a subject. */
  count({ openKey }: SubjectLayout): number {
    return this.#open.get(openKey)?.size ?? 0;
  }

  /** Removes an exchange. */
  delete({ openKey: key }: SubjectLayout, id: string): void {
    const ids = this.#open.get(key);
    ids?.delete(id);
    if (ids?.size === 0) this.#open.delete(key);
    this.#ended.push({ key, id });
    if (this.#ended.length > MAX_ENDED) this.#ended = this.#ended.slice(MAX_ENDED / 2);
  }

  /**
   * Notes that Redis can still count ended exchanges. It could not be reached when they ended, or a
   * new primary has not replicated their ends.
   */
  noteUnfreed(): void {
    this.#hasUnfreed = true;
  }

  /** Renews all of them, in batches, because a long script would block Redis for all clients. */
  async renew(): Promise<void> {
    if (this.#hasUnfreed) await this.#freeEnded();
    const all = Array.from(
      this.#open,
      ([key, ids]) => Array.from(ids, (id): [string, string] => [key, id]),
    ).flat();
    for (let start = 0; start < all.length; start += BATCH) {
      const byKey = new Map<string, string[]>();
      for (const [key, id] of all.slice(start, start + BATCH)) {
        // Exchanges that were settled in the meantime must not be added again.
        if (this.#open.get(key)?.has(id) !== true) continue;
        const ids = byKey.get(key);
        if (ids === undefined) byKey.set(key, [id]);
        else ids.push(id);
      }
      await Promise.all(Array.from(byKey, ([openKey, ids]) => this.#renew({ openKey, ids })));
    }
  }

  async #freeEnded(): Promise<void> {
    this.#hasUnfreed = false;
    const byKey = new Map<string, string[]>();
    for (const { key, id } of this.#ended) {
      const ids = byKey.get(key);
      if (ids === undefined) byKey.set(key, [id]);
      else ids.push(id);
    }
    const remove = async (key: string, ids: readonly string[]) => {
      for (let start = 0; start < ids.length; start += BATCH) {
        const batch = ids.slice(start, start + BATCH);
        await this.#client.run((redis) => redis.zrem(key, ...batch), () => {}, BACKGROUND_MS);
      }
    };
    try {
      await Promise.all(Array.from(byKey, ([key, ids]) => remove(key, ids)));
    } catch (error) {
      this.#hasUnfreed = true;
      throw error;
    }
  }
}
