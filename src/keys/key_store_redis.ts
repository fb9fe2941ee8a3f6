/**
 * Gateway keys in Redis, for many gateways. A change takes effect everywhere within a second: it is announced, and a
 * cached key is used for at most a second.
 *
 * While Redis fails, keys that were good within the last {@link STALE_MS} stay good; all others are answered with
 * `key_store_unavailable`, because nothing is known of them.
 *
 * @module
 */
import * as v from "valibot";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { KeySchema, toKeyJson } from "../config/key.ts";
import { type RedisClient, RedisFailed } from "../storage/redis_client.ts";
import {
  digestsOf,
  type GatewayKey,
  type KeyChange,
  type KeyQuery,
  type KeyRegistry,
  KeyStoreError,
  KeyStoreUnavailable,
  matchesSearch,
  refuseAfter,
} from "./key_store.ts";
import { RecentMap } from "./recent_map.ts";

/** Hash of id -> key as JSON, hash of digest -> id, hash of id -> last use, ids by the time they were made. */
const [KEYS, DIGESTS, USED, CREATED] = [
  "sallyport:keys",
  "sallyport:digests",
  "sallyport:used",
  "sallyport:created",
] as const;
/** Carries the digests of keys that changed. */
const CHANNEL = "sallyport:changed";
/** Age up to which a cached key is used without waiting for Redis, and age from which it is refreshed. Milliseconds. */
const FRESH_MS = 1000;
const REFRESH_MS = 500;
/** Time for which a key stays good while Redis fails. Milliseconds. */
export const STALE_MS: number = 5 * 60_000;
/** Maximum number of cached keys, of cached digests that no key has, and of last uses that are not written yet. */
const MAX_CACHED = 50_000;
/** Interval between two writes of last uses, and the deadline of one part of them. Milliseconds. */
const WRITE_USED_MS = 5000;
const WRITE_DEADLINE_MS = 1000;
const PAGE = 1000;
const MAX_TRIES = 20;
/** Maximum number of keys that are changed concurrently. */
const CHANGED_AT_ONCE = 50;

// The key with its id. 1: nobody has this digest. 0: there are no keys yet. -1: they are gone, or a part of them.
const FIND = `local id = redis.call('HGET', KEYS[2], ARGV[1])
local key = id and redis.call('HGET', KEYS[1], id)
if key then return {id, key} end
local hashes = redis.call('EXISTS', KEYS[1], KEYS[2])
if hashes == 1 or (hashes == 0 and ARGV[2] == '1') then return -1 end
return hashes == 2 and 1 or 0`;

// ARGV: id, what it is now ('' for none), what it becomes, time of creation, old digests, new digests.
// 1: done. 0: it is something else by now. Text: the id of another key with such a digest.
const CHANGE = `if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
for digest in string.gmatch(ARGV[6], '%x+') do
  local owner = redis.call('HGET', KEYS[2], digest)
  if owner and owner ~= ARGV[1] and redis.call('HEXISTS', KEYS[1], owner) == 1 then return owner end
end
for digest in string.gmatch(ARGV[5], '%x+') do redis.call('HDEL', KEYS[2], digest) end
for digest in string.gmatch(ARGV[6], '%x+') do redis.call('HSET', KEYS[2], digest, ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[3], 'NX', ARGV[4], ARGV[1])
redis.call('PUBLISH', KEYS[4], ARGV[5] .. ' ' .. ARGV[6])
return 1`;

// ARGV: id and time, in turn. An exchange may end after one that began later: the latest time stays.
const NOTE_USED = `for i = 1, #ARGV, 2 do
  if tonumber(ARGV[i + 1]) > tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or 0) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return 1`;

interface Cached {
  readonly key: GatewayKey | undefined;
  readonly fetchedAt: number;
}

/** @throws {KeyStoreUnavailable} For a broken record */
function toKey(text: unknown, id: string): GatewayKey {
  try {
    const { key, digest, ...rest } = v.parse(KeySchema, JSON.parse(String(text)));
    if (key !== undefined || digest === undefined) throw new Error("expected a digest, never a key itself");
    return { ...rest, digest };
  } catch (cause) {
    throw new KeyStoreUnavailable(
      `Cannot read the key ${id} in Redis: its record is broken. Mend it, or remove it by redis-cli HDEL ${KEYS} ${id}`,
      { cause },
    );
  }
}

/** Tells whether a record matches a search. A broken one always does, so that somebody learns of it. */
function isWanted(text: string, id: string, search: string): boolean {
  try {
    const { name } = JSON.parse(text);
    return matchesSearch({ id, name: typeof name === "string" ? name : undefined }, search);
  } catch {
    return true;
  }
}

/** Keys in Redis. */
export class RedisKeyStore implements KeyRegistry {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #find: ReturnType<RedisClient["script"]>;
  readonly #change: ReturnType<RedisClient["script"]>;
  readonly #noteUsed: ReturnType<RedisClient["script"]>;
  // By digest, never by id: who knows an id must not profit from what another showed. Apart, so that a flood of
  // digests that nobody has does not push out the keys.
  readonly #known = new RecentMap<string, Cached>(MAX_CACHED);
  readonly #unknown = new RecentMap<string, Cached>(MAX_CACHED);
  readonly #pending = new Map<string, Promise<GatewayKey | undefined>>();
  #used = new Map<string, number>();
  #writing: Promise<void> = Promise.resolve();
  #isClosed = false;
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
    this.#noteUsed = client.script("sallyportNoteUsed", NOTE_USED);
    client.listen(CHANNEL, (digests) => {
      for (const digest of digests.split(" ")) this.#forget(digest);
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
      let start = after === undefined ? 0 : await this.#rankAfter(after);
      const found = new Map<string, GatewayKey>(); // a key that is made meanwhile moves the others on
      while (found.size < limit) {
        const page = search === undefined ? Math.min(PAGE, limit - found.size) : PAGE;
        const ids = await this.#client.ask(
          (redis) => redis.zrevrange(CREATED, start, start + page - 1),
          (answer) => answer as string[],
        );
        if (ids.length === 0) break;
        const texts = await this.#client.ask(
          (redis) => redis.hmget(KEYS, ...ids),
          (answer) => answer as (string | null)[],
        );
        for (const [index, id] of ids.entries()) {
          const text = texts[index];
          if (typeof text !== "string" || found.size >= limit) continue;
          if (search === undefined || isWanted(text, id, search)) found.set(id, toKey(text, id));
        }
        start += ids.length;
      }
      return Array.from(found.values());
    });
  }

  async get(id: string): Promise<GatewayKey | undefined> {
    const text = await this.#administer(() => this.#client.ask((redis) => redis.hget(KEYS, id), (answer) => answer));
    return text === null ? undefined : toKey(text, id);
  }

  async lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    if (ids.length === 0) return new Map();
    const times = await this.#administer(() =>
      this.#client.ask((redis) => redis.hmget(USED, ...ids), (answer) => answer as (string | null)[])
    );
    const used = new Map<string, number>();
    for (const [index, id] of ids.entries()) {
      const time = Math.max(Number(times[index] ?? 0), this.#used.get(id) ?? 0);
      if (time > 0) used.set(id, time);
    }
    return used;
  }

  used(id: string, at: number): void {
    const last = this.#used.get(id);
    if (last === undefined ? this.#used.size < MAX_CACHED : last < at) this.#used.set(id, at);
  }

  async change(id: string, change: (current: GatewayKey | undefined) => GatewayKey): Promise<GatewayKey> {
    return await this.#administer(async () => {
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        const text = await this.#client.ask((redis) => redis.hget(KEYS, id), (answer) => answer as string | null);
        const current = text === null ? undefined : toKey(text, id);
        const next = change(current);
        if (next === current) return next;
        const before = current === undefined ? "" : digestsOf(current).join(" ");
        const made = next.createdAt ?? this.#clock.now();
        const args = [id, text ?? "", JSON.stringify(toKeyJson(next)), made, before, digestsOf(next).join(" ")];
        const answer = await this.#client.ask(
          (redis) => this.#change(redis, [KEYS, DIGESTS, CREATED, CHANNEL], args),
          (answer) => answer as 0 | 1 | string,
        );
        if (answer === 1) {
          for (const digest of [...digestsOf(next), ...before.split(" ")]) this.#forget(digest); // here at once
          return next;
        }
        if (answer !== 0) throw new KeyStoreError(`Cannot add the key: ${answer} has the same digest`);
      }
      throw new KeyStoreError("Cannot change the key: others keep changing it. Try again");
    });
  }

  async changeAll(ids: readonly string[], change: KeyChange): Promise<readonly GatewayKey[]> {
    const ofEach = async (act: (id: string) => Promise<GatewayKey>): Promise<GatewayKey[]> => {
      const done: GatewayKey[] = [];
      for (let start = 0; start < ids.length; start += CHANGED_AT_ONCE) {
        done.push(...await Promise.all(ids.slice(start, start + CHANGED_AT_ONCE).map(act)));
      }
      return done;
    };
    // Redis changes one key at a time: what is to be refused is refused before the first of them.
    await ofEach(async (id) => change(id, await this.get(id)));
    return await ofEach((id) => this.change(id, (current) => change(id, current)));
  }

  /** Writes what is left to write. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelWrite();
    await this.#writing;
    await this.#writeUsed();
  }

  /** Forgets what is cached of a digest, which is out of date: it is not used again, not even while Redis fails. */
  #forget(digest: string): void {
    this.#unknown.delete(digest);
    this.#known.delete(digest);
    this.#pending.delete(digest);
  }

  /** Fetches a key; callers that wait for the same digest share one request. */
  #fetchOnce(digest: string): Promise<GatewayKey | undefined> {
    const pending = this.#pending.get(digest);
    if (pending !== undefined) return pending;
    const fetchedAt = this.#clock.monotonic();
    const isCurrent = () => this.#pending.get(digest) === fetching;
    const fetching: Promise<GatewayKey | undefined> = this.#fetch(digest).then((key) => {
      // A change that was announced meanwhile makes the answer good for those only who wait already.
      if (isCurrent()) this.#remember(digest, { key, fetchedAt });
      return key;
    }, (cause) => {
      const last = this.#known.get(digest);
      if (last !== undefined && fetchedAt - last.fetchedAt < STALE_MS) return last.key;
      throw new GatewayError("key_store_unavailable", { cause });
    }).finally(() => {
      if (isCurrent()) this.#pending.delete(digest);
    });
    this.#pending.set(digest, fetching);
    return fetching;
  }

  #fetch(digest: string): Promise<GatewayKey | undefined> {
    return this.#client.run(
      (redis) => this.#find(redis, [KEYS, DIGESTS], [digest, this.#hadKeys ? 1 : 0]),
      (answer) => {
        if (answer === 0) return undefined;
        const key = Array.isArray(answer) ? toKey(answer[1], String(answer[0])) : undefined;
        // A Redis that has lost its keys knows nobody: that is no reason to turn everybody away as a stranger.
        if (key === undefined && answer !== 1) throw new Error("the keys are gone");
        this.#hadKeys = true;
        return key;
      },
    );
  }

  #remember(digest: string, entry: Cached): void {
    const [here, there] = entry.key === undefined ? [this.#unknown, this.#known] : [this.#known, this.#unknown];
    there.delete(digest);
    here.set(digest, entry);
  }

  async #rankAfter(id: string): Promise<number> {
    const rank = await this.#client.ask((redis) => redis.zrevrank(CREATED, id), (answer) => answer as number | null);
    return rank === null ? refuseAfter() : rank + 1;
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
    if (this.#isClosed) return;
    this.#cancelWrite = this.#clock.timer(WRITE_USED_MS, () => {
      this.#writing = this.#writeUsed();
      void this.#writing.finally(() => this.#writeLater());
    });
  }

  /** Writes last uses in parts, so that no call waits behind a long one; what fails is tried again. */
  async #writeUsed(): Promise<void> {
    const used = Array.from(this.#used);
    this.#used = new Map();
    for (let start = 0; start < used.length; start += PAGE) {
      try {
        const part = used.slice(start, start + PAGE).flat();
        await this.#client.run((redis) => this.#noteUsed(redis, [USED], part), Number, WRITE_DEADLINE_MS);
      } catch {
        for (const [id, at] of used.slice(start)) this.used(id, at);
        return;
      }
    }
  }
}
