/**
 * Open exchanges of subjects whose concurrency is limited. Redis forgets one that is not renewed: its gateway has died.
 *
 * @module
 */
import type { RedisClient } from "../storage/redis_client.ts";
import { LEASE_MS } from "./limiter.ts";
import type { Plan } from "./redis_plan.ts";
import { RENEW } from "./redis_scripts.ts";
import { BACKGROUND_MS, BATCH } from "./settlements_redis.ts";

/** Leases that one gateway holds. */
export class OpenLeases {
  readonly #client: RedisClient;
  readonly #renew: ReturnType<RedisClient["script"]>;
  /** Ids of exchanges, by the key of the set in which Redis keeps them. */
  readonly #open = new Map<string, Set<string>>();

  /** @param client The connection */
  constructor(client: RedisClient) {
    this.#client = client;
    this.#renew = client.script("sallyportRenew", RENEW);
  }

  /** Adds an exchange. */
  add({ openKey }: Plan, id: string): void {
    const ids = this.#open.get(openKey);
    if (ids === undefined) this.#open.set(openKey, new Set([id]));
    else ids.add(id);
  }

  /** Returns whether an exchange is open. */
  has({ openKey }: Plan, id: string): boolean {
    return this.#open.get(openKey)?.has(id) === true;
  }

  /** Removes an exchange. */
  delete({ openKey }: Plan, id: string): void {
    const ids = this.#open.get(openKey);
    ids?.delete(id);
    if (ids?.size === 0) this.#open.delete(openKey);
  }

  /** Renews all of them, in batches: a long script would hold up Redis for everybody. */
  async renew(): Promise<void> {
    const all = Array.from(this.#open, ([key, ids]) => Array.from(ids, (id): [string, string] => [key, id])).flat();
    for (let start = 0; start < all.length; start += BATCH) {
      const byKey = new Map<string, string[]>();
      for (const [key, id] of all.slice(start, start + BATCH)) {
        // Those that were settled meanwhile must not come back.
        if (this.#open.get(key)?.has(id) !== true) continue;
        const ids = byKey.get(key);
        if (ids === undefined) byKey.set(key, [id]);
        else ids.push(id);
      }
      await Promise.all(Array.from(byKey, ([key, ids]) => this.#renewAll(key, ids)));
    }
  }

  #renewAll(key: string, ids: readonly string[]): Promise<void> {
    return this.#client.run(
      (redis) => this.#renew(redis, [key], [LEASE_MS.redis, ...ids]),
      () => {},
      BACKGROUND_MS,
    );
  }
}
