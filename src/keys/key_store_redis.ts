/**
 * Gateway keys in Redis, for many gateways. A change takes effect everywhere within a second: it is announced, and a
 * cached key is used for at most a second.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { type RedisClient, RedisFailed } from "../storage/redis_client.ts";
import { KeyCache } from "./key_cache.ts";
import { readRecord, writeRecord } from "./key_record.ts";
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

/** Hash of id -> key as JSON, hash of digest -> id, hash of id -> last use, ids by the time they were made. */
const [KEYS, DIGESTS, USED, CREATED] = [
  "sallyport:keys",
  "sallyport:digests",
  "sallyport:used",
  "sallyport:created",
] as const;
/** Carries the digests of keys that changed. */
const CHANNEL = "sallyport:changed";
/** Maximum number of last uses that are not written yet. */
const MAX_USED = 50_000;
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

/** @throws {KeyStoreUnavailable} For a broken record */
function toKey(text: unknown, id: string): GatewayKey {
  try {
    return readRecord(JSON.parse(String(text)));
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
  readonly #cache: KeyCache;
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
    this.#cache = new KeyCache((digest) => this.#fetch(digest), clock);
    this.#find = client.script("sallyportFind", FIND);
    this.#change = client.script("sallyportChange", CHANGE);
    this.#noteUsed = client.script("sallyportNoteUsed", NOTE_USED);
    client.listen(CHANNEL, (digests) => {
      for (const digest of digests.split(" ")) this.#cache.forget(digest);
    });
    this.#writeLater();
  }

  find(digest: string): GatewayKey | undefined | Promise<GatewayKey | undefined> {
    return this.#cache.find(digest);
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
    if (last === undefined ? this.#used.size < MAX_USED : last < at) this.#used.set(id, at);
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
        const args = [id, text ?? "", writeRecord(next), made, before, digestsOf(next).join(" ")];
        const answer = await this.#client.ask(
          (redis) => this.#change(redis, [KEYS, DIGESTS, CREATED, CHANNEL], args),
          (answer) => answer as 0 | 1 | string,
        );
        if (answer === 1) {
          for (const digest of [...digestsOf(next), ...before.split(" ")]) this.#cache.forget(digest); // here at once
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
