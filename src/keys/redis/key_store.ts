/**
 * Gateway keys in Redis, for many gateways. A change takes effect everywhere within a second: it is
 * announced, and a cached key is used for at most a second.
 *
 * @module
 */
import type { ReportEvent } from "../../exchange/reported_event.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { KeyCache } from "./key_cache.ts";
import { readKeyRecord, writeKeyRecord } from "../key_record.ts";
import { BROKEN, KeyLookUps, type RedisKeyHealth, toKey } from "./key_lookups.ts";
import {
  CHANGE,
  CHANNEL,
  CONFIRM,
  type KeyNames,
  NOTE_USED,
  type NoteUsedCall,
  toKeyNames,
} from "./key_scripts.ts";
import type { KeySiblings } from "../key_siblings.ts";
import type { KeySnapshot } from "../key_snapshot_file.ts";
import {
  digestsOf,
  type GatewayKey,
  type KeyChange,
  type KeyQuery,
  type KeyRegistry,
  KeyStoreError,
  matchesQuery,
  refuseAfter,
} from "../key_store.ts";
import { explainFailure } from "./store_failure.ts";

const UNAVAILABLE = "Cannot use the keys in Redis: check that it runs, its URL and its log";

/** Maximum number of last uses that are not written yet. */
const MAX_USED = 50_000;
/** Interval between two writes of last uses, and the deadline of one part of them. Milliseconds. */
const WRITE_USED_MS = 5000;
const WRITE_DEADLINE_MS = 1000;
const PAGE = 1000;
const MAX_TRIES = 20;
/** Maximum number of keys that are changed concurrently. */
const CHANGED_AT_ONCE = 50;

/** Options of {@link RedisKeyStore}. */
export interface RedisKeyStoreOptions {
  /** True for a Cluster, which needs other names for the keys. */
  readonly isCluster?: boolean | undefined;
  /** Storage of recently used keys, for a start without Redis. */
  readonly snapshot?: KeySnapshot | undefined;
  /** The other processes of the gateway, if there are any. */
  readonly siblings?: KeySiblings | undefined;
  /** Receives one-line messages for the operator. */
  readonly report?: ReportEvent | undefined;
}

/**
 * Returns a key for a list. Keys with broken records are listed too, so that operators see them.
 */
function toListed(text: string, id: string): GatewayKey {
  try {
    return { ...readKeyRecord(JSON.parse(text)), id };
  } catch {
    return { id, digest: "", later: { fields: {}, limits: {}, refusal: BROKEN } };
  }
}

/**
 * Returns whether a record matches a query. A broken record always matches, so that operators see
 * it.
 */
function isWanted(text: string, id: string, query: KeyQuery): boolean {
  try {
    const { name, team } = JSON.parse(text);
    return matchesQuery({ id, name: typeof name === "string" ? name : undefined, team }, query);
  } catch {
    return true;
  }
}

/** Keys in Redis. */
export class RedisKeyStore implements KeyRegistry {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #change: ReturnType<RedisClient["script"]>;
  readonly #noteUsed: RedisCommand<NoteUsedCall["uses"], unknown>;
  readonly #cache: KeyCache;
  readonly #confirm: RedisCommand<string, boolean>;
  readonly #names: KeyNames;
  readonly #lookUps: KeyLookUps;
  /** The snapshot, if there is one. */
  readonly snapshot: KeySnapshot | undefined;
  #used = new Map<string, number>();
  #writing: Promise<void> = Promise.resolve();
  #isClosed = false;
  #cancelWrite = (): void => {};

  constructor(client: RedisClient, clock: Clock, options: RedisKeyStoreOptions = {}) {
    this.#client = client;
    this.#clock = clock;
    this.#names = toKeyNames(options.isCluster ?? false);
    this.snapshot = options.snapshot;
    this.#lookUps = new KeyLookUps(client, clock, { ...options, names: this.#names });
    this.#cache = new KeyCache((digest) => this.#lookUps.find(digest), clock, options.siblings);
    this.#change = client.script("sallyportChange", CHANGE);
    this.#noteUsed = client.command({
      script: NOTE_USED,
      write: (uses: NoteUsedCall["uses"]) => ({ usedKey: this.#names.used, uses }),
      read: Number,
      deadlineMs: WRITE_DEADLINE_MS,
    });
    this.#confirm = client.command({
      script: CONFIRM,
      write: (made: string) => ({ generationsKey: this.#names.generations, made }),
      read: (reply) => Number(reply) > 0,
    });
    client.listen(CHANNEL, (digests) => {
      for (const digest of digests.split(" ")) this.#forget(digest);
    });
    this.#writeLater();
  }

  /** The generation of the keys that it has met; `undefined` before the first. */
  get generation(): string | undefined {
    return this.#lookUps.generation;
  }

  /** Its health. */
  get health(): RedisKeyHealth {
    return this.#lookUps.health;
  }

  /**
   * Reads the snapshot, and begins to check if Redis answers and has its keys. Resolves after the
   * first check.
   */
  async start(): Promise<void> {
    await this.#lookUps.start();
  }

  /**
   * Confirms that Redis holds all keys, after data loss. Callers with other keys are unknown from
   * now on.
   *
   * @returns True if there was anything to confirm
   * @throws {KeyStoreUnavailable} If Redis does not answer
   */
  async confirm(): Promise<boolean> {
    return await this.#administer(() =>
      this.#confirm(crypto.randomUUID(), { isAdministrative: true })
    );
  }

  find(digest: string): GatewayKey | undefined | Promise<GatewayKey | undefined> {
    return this.#cache.find(digest);
  }

  async list(query: KeyQuery): Promise<readonly GatewayKey[]> {
    const { limit, after } = query;
    const wantsAll = query.search === undefined && query.team === undefined;
    return await this.#administer(async () => {
      let start = after === undefined ? 0 : await this.#rankAfter(after);
      // By id, because a key that is made in the meantime shifts the others.
      const found = new Map<string, GatewayKey>();
      while (found.size < limit) {
        const page = wantsAll ? Math.min(PAGE, limit - found.size) : PAGE;
        const ids = await this.#client.ask(
          (redis) => redis.zrevrange(this.#names.created, start, start + page - 1),
          (reply) => reply as string[],
        );
        if (ids.length === 0) break;
        const texts = await this.#client.ask(
          (redis) => redis.hmget(this.#names.keys, ...ids),
          (reply) => reply as (string | null)[],
        );
        for (const [index, id] of ids.entries()) {
          const text = texts[index];
          if (typeof text !== "string" || found.size >= limit) continue;
          if (wantsAll || isWanted(text, id, query)) found.set(id, toListed(text, id));
        }
        start += ids.length;
      }
      return Array.from(found.values());
    });
  }

  async get(id: string): Promise<GatewayKey | undefined> {
    const text = await this.#administer(() =>
      this.#client.ask((redis) => redis.hget(this.#names.keys, id), (reply) => reply)
    );
    return text === null ? undefined : toKey(text, id, this.#names);
  }

  async lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    if (ids.length === 0) return new Map();
    const times = await this.#administer(() =>
      this.#client.ask(
        (redis) => redis.hmget(this.#names.used, ...ids),
        (reply) => reply as (string | null)[],
      )
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

  async change(
    id: string,
    change: (current: GatewayKey | undefined) => GatewayKey,
  ): Promise<GatewayKey> {
    return await this.#administer(async () => {
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        const text = await this.#client.ask(
          (redis) => redis.hget(this.#names.keys, id),
          (reply) => reply as string | null,
        );
        const current = text === null ? undefined : toKey(text, id, this.#names);
        const next = change(current);
        if (next === current) return next;
        const before = current === undefined ? "" : digestsOf(current).join(" ");
        const made = next.createdAt ?? this.#clock.now();
        const { keys, digests, created, generations } = this.#names;
        const after = digestsOf(next).join(" ");
        const args = [
          id,
          text ?? "",
          writeKeyRecord(next),
          made,
          before,
          after,
          CHANNEL,
          crypto.randomUUID(),
        ];
        const reply = await this.#client.ask(
          (redis) => this.#change(redis, [keys, digests, created, generations], args),
          (reply) => reply as 0 | 1 | string,
        );
        if (reply === 1) {
          // Applied here at once, before the announcement arrives.
          for (const digest of [...digestsOf(next), ...before.split(" ")]) this.#forget(digest);
          return next;
        }
        if (reply !== 0) {
          throw new KeyStoreError(`Cannot add the key: ${reply} has the same digest`);
        }
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
    // Redis changes one key at a time, so refusals must occur before the first change.
    await ofEach(async (id) => change(id, await this.get(id)));
    return await ofEach((id) => this.change(id, (current) => change(id, current)));
  }

  /** Writes the remaining data. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelWrite();
    await this.#writing;
    await this.#writeUsed();
    await this.#lookUps.close();
  }

  #forget(digest: string): void {
    this.#cache.forget(digest);
    this.#lookUps.forget(digest);
  }

  async #rankAfter(id: string): Promise<number> {
    const rank = await this.#client.ask(
      (redis) => redis.zrevrank(this.#names.created, id),
      (reply) => reply as number | null,
    );
    return rank === null ? refuseAfter() : rank + 1;
  }

  #administer<T>(act: () => Promise<T>): Promise<T> {
    return explainFailure(UNAVAILABLE, act);
  }

  #writeLater(): void {
    if (this.#isClosed) return;
    this.#cancelWrite = this.#clock.timer(WRITE_USED_MS, () => {
      this.#writing = this.#writeUsed();
      void this.#writing.finally(() => this.#writeLater());
    });
  }

  /**
   * Writes last uses in parts, so that no call waits behind a long one. Failed parts are retried.
   */
  async #writeUsed(): Promise<void> {
    const used = Array.from(this.#used);
    this.#used = new Map();
    for (let start = 0; start < used.length; start += PAGE) {
      try {
        await this.#noteUsed(used.slice(start, start + PAGE).map(([id, at]) => ({ id, at })));
      } catch {
        for (const [id, at] of used.slice(start)) this.used(id, at);
        return;
      }
    }
  }
}
