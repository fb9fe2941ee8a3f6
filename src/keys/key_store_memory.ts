/**
 * Gateway keys in memory, from the configuration or from a file.
 *
 * @module
 */
import { ConfigError } from "../config/config.ts";
import type { KeyConfig } from "../config/key.ts";
import { type Digest, isPlausibleKey } from "./key_format.ts";
import {
  digestsOf,
  type GatewayKey,
  type KeyQuery,
  type KeyRegistry,
  KeyStoreError,
  matchesQuery,
  refuseAfter,
} from "./key_store.ts";

/** Keys in memory. */
export class MemoryKeyStore implements KeyRegistry {
  readonly isReadOnly = true;
  readonly #byId = new Map<string, GatewayKey>();
  readonly #byDigest = new Map<string, GatewayKey>();

  /**
   * @param keys The keys, oldest first. Of two with the same id or digest, the later one is used
   */
  constructor(keys: Iterable<GatewayKey> = []) {
    for (const key of keys) this.add(key);
  }

  /** The number of keys. */
  get size(): number {
    return this.#byId.size;
  }

  /** The keys, the oldest first. */
  values(): Iterable<GatewayKey> {
    return this.#byId.values();
  }

  find(digest: string): GatewayKey | undefined {
    return this.#byDigest.get(digest);
  }

  /** Adds a key. */
  add(key: GatewayKey): void {
    this.#byId.set(key.id, key);
    for (const digest of digestsOf(key)) this.#byDigest.set(digest, key);
  }

  /** Returns a key with one of the digests of another. */
  findTwin(key: GatewayKey): GatewayKey | undefined {
    return digestsOf(key).map((digest) => this.find(digest)).find((twin) => twin !== undefined);
  }

  /** Returns whether there is a key with this id. */
  has(id: string): boolean {
    return this.#byId.has(id);
  }

  // deno-lint-ignore require-await -- a refusal is a rejection
  async list(query: KeyQuery): Promise<readonly GatewayKey[]> {
    const { limit, after } = query;
    const newest = Array.from(this.#byId.values()).reverse();
    const start = after === undefined ? 0 : newest.findIndex(({ id }) => id === after) + 1;
    if (after !== undefined && start === 0) refuseAfter();
    const found: GatewayKey[] = [];
    for (let index = start; index < newest.length && found.length < limit; index++) {
      const key = newest[index];
      if (key !== undefined && matchesQuery(key, query)) found.push(key);
    }
    return found;
  }

  get(id: string): Promise<GatewayKey | undefined> {
    return Promise.resolve(this.#byId.get(id));
  }

  lastUsed(): Promise<ReadonlyMap<string, number>> {
    return Promise.resolve(new Map());
  }

  used(): void {}

  changeAll(): Promise<never> {
    return this.change();
  }

  change(): Promise<never> {
    const fix = 'set keys to { "file": "gateway-keys.json" } or "redis"';
    return Promise.reject(
      new KeyStoreError(`Cannot change keys of the configuration: ${fix}`),
    );
  }

  /**
   * Returns all keys, the oldest first, with some of them changed or added.
   *
   * @param keys The new records, without duplicates. New keys are added at the end, in this order
   * @returns The keys. The store itself is unchanged
   * @throws {KeyStoreError} If two keys would have the same digest
   */
  with(keys: readonly GatewayKey[]): readonly GatewayKey[] {
    const owners = new Map<string, string>();
    for (const key of keys) {
      for (const digest of digestsOf(key)) {
        const owner = owners.get(digest) ?? this.find(digest)?.id ?? key.id;
        if (owner !== key.id) {
          throw new KeyStoreError(`Cannot add the key: ${owner} has the same digest`);
        }
        owners.set(digest, key.id);
      }
    }
    const all = new Map(this.#byId);
    for (const key of keys) all.set(key.id, key);
    return Array.from(all.values());
  }
}

/**
 * Creates the store of the keys in the configuration.
 *
 * @throws {ConfigError} For a key that could never be used, and for a duplicate key
 */
export function createInlineKeyStore(keys: readonly KeyConfig[], digest: Digest): MemoryKeyStore {
  const store = new MemoryKeyStore();
  for (const [index, { key, ...rest }] of keys.entries()) {
    const path = `keys[${index}]`;
    if (key !== undefined && !isPlausibleKey(key)) {
      throw new ConfigError([{
        path,
        message: "expected a whole key: this one begins with gk_ and is mistyped or cut",
      }]);
    }
    const keyDigest = key === undefined ? rest.digest : digest(key);
    if (keyDigest === undefined) {
      throw new ConfigError([{ path, message: "expected either key or digest" }]);
    }
    const gatewayKey = { ...rest, digest: keyDigest };
    const twin = store.findTwin(gatewayKey);
    if (twin !== undefined) {
      throw new ConfigError([{
        path,
        message: `expected a different key: ${twin.id} has the same one`,
      }]);
    }
    store.add(gatewayKey);
  }
  return store;
}
