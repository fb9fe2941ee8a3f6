/**
 * Stores of gateway keys, which are kept and compared as digests: no store ever holds a key itself.
 *
 * @module
 */
import { ConfigError } from "../config/config.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import type { Exchange } from "../exchange/exchange.ts";
import type { KeyConfig } from "../config/key.ts";
import { withDeadline } from "../exchange/deadline.ts";
import { type Digest, isPlausibleKey } from "./key_format.ts";
import { type ResolveKey, resolveOwnKey } from "./key_resolver.ts";

/** A gateway key as a store holds it: its digest, never the key itself. */
export interface GatewayKey extends Omit<KeyConfig, "key"> {
  /** SHA-256 of the whole key, 64 hexadecimal digits in lower case. */
  readonly digest: string;
}

/** Port: where keys are looked up. */
export interface KeyStore {
  /**
   * Looks one up.
   *
   * @param digest SHA-256 of the key that was shown
   * @returns The key whose secret, or secret before the last rotation, this is; `undefined` where there is none
   * @throws {GatewayError} `key_store_unavailable` when the store can't be asked
   */
  find(digest: string): GatewayKey | undefined | Promise<GatewayKey | undefined>;
}

/** A query for keys to list. */
export interface KeyQuery {
  /** Maximum number of keys. */
  readonly limit: number;
  /** Id of a key: the list begins after it. */
  readonly after?: string | undefined;
  /** Text in the id or name of the keys, in any case. */
  readonly search?: string | undefined;
}

/**
 * A change of one key, from what it is (`undefined` for a new one) to what it becomes. An error that it throws ends the
 * change. It may be called again if somebody else has changed the key meanwhile.
 */
export type KeyChange = (id: string, current: GatewayKey | undefined) => GatewayKey;

/** Port: where keys are kept and changed. */
export interface KeyRegistry extends KeyStore {
  /** @returns The keys, the newest first */
  list(query: KeyQuery): Promise<readonly GatewayKey[]>;
  /** @returns The key with this id */
  get(id: string): Promise<GatewayKey | undefined>;
  /** @returns When keys were last used, milliseconds since 1970, by id; as far as it was written down */
  lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /**
   * Notes that a key was used. Written down lazily.
   *
   * @param id Its id
   * @param at Milliseconds since 1970
   */
  used(id: string, at: number): void;
  /**
   * Changes one key, or adds it. Nobody else changes it meanwhile.
   *
   * @param id Its id
   * @param change From what it is (`undefined` for a new one) to what it becomes; an error ends the change
   * @returns What it became
   * @throws {KeyStoreError} When it is refused
   * @throws {KeyStoreUnavailable} When it can't be written
   */
  change(id: string, change: (current: GatewayKey | undefined) => GatewayKey): Promise<GatewayKey>;
  /**
   * Changes several keys, or adds them in the order that is given. All changes are decided before the first is written;
   * a key that a change returns as it was is not written.
   *
   * @param ids Their ids, none of them twice
   * @param change From what each is to what it becomes
   * @returns What they became
   * @throws {KeyStoreError} When one of them is refused: then none is changed, unless that was decided too late
   * @throws {KeyStoreUnavailable} When they can't be written. In a file it is all of them or none
   */
  changeAll(ids: readonly string[], change: KeyChange): Promise<readonly GatewayKey[]>;
}

/** A change of keys is refused. Its message is for the operator and says what to do. */
export class KeyStoreError extends Error {
  override readonly name: string = "KeyStoreError";
}

/** Keys can't be read or written at all. */
export class KeyStoreUnavailable extends KeyStoreError {
  override readonly name = "KeyStoreUnavailable";
}

/** Compares two digests, in a time that does not depend on where they differ. */
function equalDigests(a: string, b: string): boolean {
  let difference = a.length ^ b.length;
  for (let index = 0; index < a.length; index++) difference |= a.charCodeAt(index) ^ b.charCodeAt(index);
  return difference === 0;
}

/** The digests by which a key is found. */
export function digestsOf({ digest, previous }: Pick<GatewayKey, "digest" | "previous">): readonly string[] {
  return previous === undefined ? [digest] : [digest, previous.digest];
}

/** Tells whether the id or name of a key contains a text, in any case. */
export function matchesSearch({ id, name = "" }: { id: string; name?: string | undefined }, search = ""): boolean {
  const wanted = search.toLowerCase();
  return id.toLowerCase().includes(wanted) || name.toLowerCase().includes(wanted);
}

/** Refuses a list that should begin after a key that does not exist. */
export function refuseAfter(): never {
  throw new KeyStoreError("Cannot list the keys after one that is not there: begin without it");
}

/** Keys in memory. */
export class MemoryKeyStore implements KeyRegistry {
  readonly #byId = new Map<string, GatewayKey>();
  readonly #byDigest = new Map<string, GatewayKey>();

  /** @param keys The keys, oldest first; of two with the same id or digest the later one holds */
  constructor(keys: Iterable<GatewayKey> = []) {
    for (const key of keys) this.add(key);
  }

  find(digest: string): GatewayKey | undefined {
    return this.#byDigest.get(digest);
  }

  /** Adds a key. */
  add(key: GatewayKey): void {
    this.#byId.set(key.id, key);
    for (const digest of digestsOf(key)) this.#byDigest.set(digest, key);
  }

  // deno-lint-ignore require-await -- a refusal is a rejection
  async list({ limit, after, search }: KeyQuery): Promise<readonly GatewayKey[]> {
    const newest = Array.from(this.#byId.values()).reverse();
    const start = after === undefined ? 0 : newest.findIndex(({ id }) => id === after) + 1;
    if (after !== undefined && start === 0) refuseAfter();
    const found: GatewayKey[] = [];
    for (let index = start; index < newest.length && found.length < limit; index++) {
      const key = newest[index];
      if (key !== undefined && matchesSearch(key, search)) found.push(key);
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
    return Promise.reject(new KeyStoreError(`Cannot change keys that stand in the configuration: ${fix}`));
  }
}

/**
 * Creates the store of the keys in the configuration.
 *
 * @param keys The keys
 * @param digest SHA-256
 * @returns Their store
 * @throws {ConfigError} For a key that could never be used, and for one that stands there twice
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
    const gatewayKey = { ...rest, digest: key === undefined ? rest.digest ?? "" : digest(key) };
    const twin = digestsOf(gatewayKey).map((one) => store.find(one)).find((found) => found !== undefined);
    if (twin !== undefined) {
      throw new ConfigError([{ path, message: `expected a key of its own: ${twin.id} has the same one` }]);
    }
    store.add(gatewayKey);
  }
  return store;
}

/** Digest with which an unknown key is compared, so that it takes as long as a known one. */
const NO_DIGEST = "0".repeat(64);

/**
 * Finds the key that a caller showed. Waits for a store no longer than its exchange lasts.
 *
 * @param shown The credential
 * @param store Where to look: a store, or the function that an embedder gave
 * @param options SHA-256, the exchange of the caller, and the clock
 * @returns The key, or `undefined`: for a malformed one without hashing or a look-up
 * @throws {GatewayError} `key_store_unavailable`, also for a store that never answers
 */
export async function findGatewayKey(
  shown: string,
  store: KeyStore | ResolveKey,
  { digest, exchange, clock }: { digest: Digest; exchange: Exchange; clock: Clock },
): Promise<KeyConfig | undefined> {
  if (!isPlausibleKey(shown)) return undefined;
  const wait = { exchange, clock, toError: () => new GatewayError("key_store_unavailable") };
  if (typeof store === "function") return await withDeadline(resolveOwnKey(store, shown), wait);
  const shownDigest = digest(shown);
  return confirm(await withDeadline(Promise.resolve(store.find(shownDigest)), wait), shownDigest, clock.now());
}

function confirm(key: GatewayKey | undefined, shownDigest: string, now: number): GatewayKey | undefined {
  const { digest: previous = NO_DIGEST, expiresAt = 0 } = key?.previous ?? {};
  // Both are always compared: an unknown key, a revoked one and an outdated one go the same way.
  const isCurrent = equalDigests(key?.digest ?? NO_DIGEST, shownDigest);
  const isPrevious = equalDigests(previous, shownDigest) && now < expiresAt;
  return isCurrent || isPrevious ? key : undefined;
}
