/**
 * A cache for keys of a remote store. A cached key is used for at most a second, and refreshed
 * earlier. While its store fails, keys that were valid within the last {@link STALE_MS} stay valid,
 * including keys that only another process of the gateway has seen. All others are answered with
 * `key_store_unavailable`, because their state is unknown.
 *
 * @module
 */
import { GatewayError } from "../../errors/gateway_error.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { KeySiblings, KnownKey } from "../key_siblings.ts";
import type { GatewayKey } from "../key_store.ts";
import { RecentMap } from "../../exchange/recent_map.ts";

/**
 * Age up to which a cached key is used without waiting, and age from which it is refreshed.
 * Milliseconds.
 */
const FRESH_MS = 1000;
const REFRESH_MS = 500;
/** Time for which a key stays valid while its store fails. Milliseconds. */
export const STALE_MS: number = 5 * 60_000;
/** Maximum number of cached keys, and of cached digests without a key. */
const MAX_CACHED = 50_000;

interface Cached {
  readonly key: GatewayKey | undefined;
  readonly fetchedAt: number;
}

/** Fetches a key by its digest. */
type FetchKey = (digest: string) => Promise<GatewayKey | undefined>;

/** Keys by their digests. */
export class KeyCache {
  readonly #fetch: FetchKey;
  readonly #clock: Clock;
  readonly #siblings: KeySiblings | undefined;
  // By digest, never by id, so that a caller that knows an id cannot use the cached key of another.
  // Separate, so that a flood of unknown digests does not evict the keys.
  readonly #keys = new RecentMap<Cached>(MAX_CACHED / 2);
  readonly #unknown = new RecentMap<Cached>(MAX_CACHED / 2);
  readonly #pending = new Map<string, Promise<GatewayKey | undefined>>();

  constructor(fetch: FetchKey, clock: Clock, siblings?: KeySiblings) {
    this.#fetch = fetch;
    this.#clock = clock;
    this.#siblings = siblings;
    siblings?.onAsked((digest) => this.#findCached(digest));
  }

  /**
   * Finds a key.
   *
   * @throws {GatewayError} `key_store_unavailable`
   */
  find(digest: string): GatewayKey | undefined | Promise<GatewayKey | undefined> {
    const cached = this.#keys.get(digest) ?? this.#unknown.get(digest);
    const age = cached === undefined ? Infinity : this.#clock.monotonic() - cached.fetchedAt;
    if (age >= FRESH_MS) return this.#fetchOnce(digest);
    if (age >= REFRESH_MS && cached?.key !== undefined) this.#fetchOnce(digest).catch(() => {});
    return cached?.key;
  }

  /**
   * Drops the outdated cache entry of a digest. It is not used again, not even while the store
   * fails.
   */
  forget(digest: string): void {
    this.#unknown.delete(digest);
    this.#keys.delete(digest);
    this.#pending.delete(digest);
  }

  /** Fetches a key. Callers that wait for the same digest share one request. */
  #fetchOnce(digest: string): Promise<GatewayKey | undefined> {
    const pending = this.#pending.get(digest);
    if (pending !== undefined) return pending;
    const fetchedAt = this.#clock.monotonic();
    const isCurrent = () => this.#pending.get(digest) === fetching;
    const fetching: Promise<GatewayKey | undefined> = this.#fetch(digest).then((key) => {
      // If a change was announced in the meantime, only callers that already wait can use the
      // reply.
      if (isCurrent()) this.#remember(digest, { key, fetchedAt });
      return key;
    }, async (cause) => {
      const known = this.#findCached(digest) ?? await this.#siblings?.find(digest);
      if (known === undefined) throw new GatewayError("key_store_unavailable", { cause });
      // Keeps the age from the other process, so that a key does not stay valid longer by passing
      // between processes.
      if (isCurrent()) {
        this.#remember(digest, {
          key: known.key,
          fetchedAt: this.#clock.monotonic() - known.ageMs,
        });
      }
      return known.key;
    }).finally(() => {
      if (isCurrent()) this.#pending.delete(digest);
    });
    this.#pending.set(digest, fetching);
    return fetching;
  }

  /** Returns a key that is valid while the store fails. */
  #findCached(digest: string): KnownKey | undefined {
    const { key, fetchedAt = 0 } = this.#keys.get(digest) ?? {};
    const ageMs = this.#clock.monotonic() - fetchedAt;
    return key === undefined || ageMs >= STALE_MS ? undefined : { key, ageMs };
  }

  #remember(digest: string, entry: Cached): void {
    const [here, there] = entry.key === undefined
      ? [this.#unknown, this.#keys]
      : [this.#keys, this.#unknown];
    there.delete(digest);
    here.set(digest, entry);
  }
}
