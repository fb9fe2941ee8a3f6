/**
 * Gateway keys in Redis, for many gateways. A change holds everywhere within a second: it is announced, and what was
 * looked up is asked for anew after a second at the latest.
 *
 * While Redis fails, keys that were good within the last {@link STALE_MS} stay good; all others are answered with
 * `key_store_unavailable`, for nobody can tell.
 *
 * @module
 */
import * as v from "valibot";
import { GatewayError } from "../errors.ts";
import type { Clock } from "../exchange.ts";
import { KeySchema, toKeyJson } from "../key_config.ts";
import { type RedisClient, RedisFailed } from "./client_redis.ts";
import {
  type GatewayKey,
  type KeyQuery,
  type KeyRegistry,
  KeyStoreError,
  KeyStoreUnavailable,
  matchesSearch,
} from "./key_store.ts";

/** Hash of id -> key as JSON, hash of digest -> id, hash of id -> last use, ids by the time they were made. */
const [KEYS, DIGESTS, USED, CREATED] = [
  "sallyport:keys",
  "sallyport:digests",
  "sallyport:used",
  "sallyport:created",
] as const;
/** Carries the digests of keys that changed. */
const CHANNEL = "sallyport:changed";
/** For how long what was looked up is used without asking, and from when on it is asked for beside. Milliseconds. */
const FRESH_MS = 1000;
const REFRESH_MS = 500;
/** For how long a key stays good while Redis fails. Milliseconds. */
export const STALE_MS: number = 5 * 60_000;
/** So many keys are remembered at most; the same number of digests that nobody has. */
const MAX_CACHED = 50_000;
/** Last uses are written so often. Milliseconds. */
const WRITE_USED_MS = 5000;
const PAGE = 1000;
const MAX_TRIES = 20;

const FIND = `local id = redis.call('HGET', KEYS[2], ARGV[1])
if not id then return {redis.call('EXISTS', KEYS[1])} end
return {1, redis.call('HGET', KEYS[1], id)}`;

// ARGV: id, what it is now ('' for none), what it becomes, time of creation, old digests, new digests
const CHANGE = `if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
for digest in string.gmatch(ARGV[6], '%x+') do
  local owner = redis.call('HGET', KEYS[2], digest)
  if owner and owner ~= ARGV[1] then return redis.error_reply('DIGEST taken') end
end
for digest in string.gmatch(ARGV[5], '%x+') do redis.call('HDEL', KEYS[2], digest) end
for digest in string.gmatch(ARGV[6], '%x+') do redis.call('HSET', KEYS[2], digest, ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[3], 'NX', ARGV[4], ARGV[1])
redis.call('PUBLISH', KEYS[4], ARGV[5] .. ' ' .. ARGV[6])
return 1`;

interface Cached {
  readonly key: GatewayKey | undefined;
  readonly fetchedAt: number;
}

function toKey(text: unknown): GatewayKey {
  const { digest = "", ...rest } = v.parse(KeySchema, JSON.parse(String(text)));
  return { ...rest, digest };
}

function digestsOf(key: GatewayKey | undefined): string {
  return [key?.digest, key?.previous?.digest].filter((digest) => digest !== undefined).join(" ");
}

/** Keeps the most recently used entries. */
function remember(cache: Map<string, Cached>, digest: string, entry: Cached): void {
  cache.delete(digest);
  cache.set(digest, entry);
  if (cache.size <= MAX_CACHED) return;
  for (const [oldest] of cache) {
    cache.delete(oldest);
    return;
  }
}

/** Keys in Redis. */
export class RedisKeyStore implements KeyRegistry {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #find: ReturnType<RedisClient["script"]>;
  readonly #change: ReturnType<RedisClient["script"]>;
  // By digest, never by id: who knows an id must not profit from what another showed. Apart, so that a flood of
  // digests that nobody has does not push out the keys.
  readonly #known = new Map<string, Cached>();
  readonly #unknown = new Map<string, Cached>();
  readonly #pending = new Map<string, Promise<GatewayKey | undefined>>();
  #used = new Map<string, number>();
  #cancelWrite = (): void => {};
  #hadKeys = false;

  /**
   * @param client The connection
   * @param clock Where its times come from
   */
  constructor(client: RedisClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
    this.#find = client.script("sallyportFind", FIND);
    this.#change = client.script("sallyportChange", CHANGE);
    client.listen(CHANNEL, (digests) => {
      for (const digest of digests.split(" ")) this.#expire(digest);
    });
    this.#writeLater();
  }

  find(digest: string): GatewayKey | undefined | Promise<GatewayKey | undefined> {
    const cached = this.#known.get(digest) ?? this.#unknown.get(digest);
    const age = cached === undefined ? Infinity : this.#clock.monotonic() - cached.fetchedAt;
    if (age >= FRESH_MS) return this.#fetchOnce(digest);
    if (age >= REFRESH_MS && cached?.key !== undefined) this.#fetchOnce(digest).catch(() => {});
    return cached?.key;
  }

  async list({ limit, after, search }: KeyQuery): Promise<readonly GatewayKey[]> {
    return await this.#administer(async () => {
      const rank = after === undefined ? -1 : await this.#client.ask((redis) => redis.zrevrank(CREATED, after), Number);
      const found: GatewayKey[] = [];
      for (let start = rank + 1; found.length < limit; start += PAGE) {
        const page = search === undefined ? Math.min(PAGE, limit - found.length) : PAGE;
        const ids = await this.#client.ask(
          (redis) => redis.zrevrange(CREATED, start, start + page - 1),
          (answer) => answer as string[],
        );
        if (ids.length === 0) break;
        const texts = await this.#client.ask((redis) => redis.hmget(KEYS, ...ids), (answer) => answer as string[]);
        const keys = texts.filter((text) => text !== null).map(toKey);
        found.push(...keys.filter((key) => matchesSearch(key, search)));
        if (ids.length < page) break;
      }
      return found.slice(0, limit);
    });
  }

  async get(id: string): Promise<GatewayKey | undefined> {
    return await this.#administer(() =>
      this.#client.ask((redis) => redis.hget(KEYS, id), (text) => text === null ? undefined : toKey(text))
    );
  }

  async lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    if (ids.length === 0) return new Map();
    const times = await this.#administer(() =>
      this.#client.ask((redis) => redis.hmget(USED, ...ids), (answer) => answer as (string | null)[])
    );
    const used = new Map<string, number>();
    for (const [index, id] of ids.entries()) {
      const time = Number(times[index] ?? 0);
      if (time > 0) used.set(id, time);
    }
    return used;
  }

  used(id: string, at: number): void {
    if (this.#used.size < MAX_CACHED) this.#used.set(id, at);
  }

  async change(id: string, change: (current: GatewayKey | undefined) => GatewayKey): Promise<GatewayKey> {
    return await this.#administer(async () => {
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        const text = await this.#client.ask((redis) => redis.hget(KEYS, id), (answer) => answer as string | null);
        const current = text === null ? undefined : toKey(text);
        const next = change(current);
        const [before, after] = [digestsOf(current), digestsOf(next)];
        const made = next.createdAt ?? this.#clock.now();
        const args = [id, text ?? "", JSON.stringify(toKeyJson(next)), made, before, after];
        const isDone = await this.#client.ask(
          (redis) => this.#change(redis, [KEYS, DIGESTS, CREATED, CHANNEL], args),
          (answer) => answer === 1,
        );
        if (isDone) return next;
      }
      throw new KeyStoreError("Cannot change the key: others keep changing it. Try again");
    });
  }

  /** Writes what is left to write. */
  async close(): Promise<void> {
    this.#cancelWrite();
    await this.#writeUsed();
  }

  #expire(digest: string): void {
    this.#unknown.delete(digest);
    const cached = this.#known.get(digest);
    if (cached !== undefined) this.#known.set(digest, { ...cached, fetchedAt: cached.fetchedAt - FRESH_MS });
  }

  /** One question for all who wait for the same digest. */
  #fetchOnce(digest: string): Promise<GatewayKey | undefined> {
    const pending = this.#pending.get(digest);
    if (pending !== undefined) return pending;
    const fetching = this.#fetch(digest).finally(() => this.#pending.delete(digest));
    this.#pending.set(digest, fetching);
    return fetching;
  }

  async #fetch(digest: string): Promise<GatewayKey | undefined> {
    const fetchedAt = this.#clock.monotonic();
    try {
      const key = await this.#client.run(
        (redis) => this.#find(redis, [KEYS, DIGESTS], [digest]),
        (answer) => this.#read(answer),
      );
      if (key === undefined) this.#known.delete(digest);
      else this.#unknown.delete(digest);
      remember(key === undefined ? this.#unknown : this.#known, digest, { key, fetchedAt });
      return key;
    } catch (cause) {
      const last = this.#known.get(digest);
      if (last !== undefined && fetchedAt - last.fetchedAt < STALE_MS) return last.key;
      throw new GatewayError("key_store_unavailable", { cause });
    }
  }

  #read(answer: unknown): GatewayKey | undefined {
    const [hasKeys, text] = answer as [number, string | null | undefined];
    if (hasKeys === 1) this.#hadKeys = true;
    // A Redis that has lost all its keys knows nobody: that is no reason to turn everybody away as a stranger.
    else if (this.#hadKeys) throw new Error("the keys are gone");
    if (text === null) throw new Error("a digest without its key");
    return text === undefined ? undefined : toKey(text);
  }

  async #administer<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (cause) {
      if (!(cause instanceof RedisFailed)) throw cause;
      throw new KeyStoreUnavailable("Cannot use the keys in Redis: check that it runs, its URL and its log", { cause });
    }
  }

  #writeLater(): void {
    this.#cancelWrite = this.#clock.timer(WRITE_USED_MS, () => {
      this.#writeUsed().finally(() => this.#writeLater());
    });
  }

  async #writeUsed(): Promise<void> {
    const used = this.#used;
    if (used.size === 0) return;
    this.#used = new Map();
    await this.#client.run((redis) => redis.hset(USED, used), Number, 1000).catch(() => {});
  }
}
