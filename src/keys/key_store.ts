/**
 * Stores of gateway keys, which are kept and compared as digests: no store ever holds a key itself.
 *
 * @module
 */
import type { KeyConfig } from "../config/key.ts";

/** A gateway key as a store holds it: its digest, never the key itself. */
export interface GatewayKey extends Omit<KeyConfig, "key"> {
  /** SHA-256 of the whole key, 64 hexadecimal digits in lower case. */
  readonly digest: string;
  /** The part of its record that this version does not understand, if any. */
  readonly later?: LaterPart | undefined;
}

/**
 * The part of a record that this version does not understand, which is kept: a later one may have
 * written it.
 */
export interface LaterPart {
  /** Fields as they stand in the record. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** Limits as they stand in the record. */
  readonly limits: Readonly<Record<string, unknown>>;
  /** Why the key is refused, for operators; `undefined` where nothing of this restricts it. */
  readonly refusal?: string | undefined;
}

/**
 * Port: where keys are looked up.
 *
 * @example Look keys up in a service of your own
 * ```ts
 * import { createGateway, GatewayError, type KeyStore, parseConfig } from "sallyport";
 *
 * const keys: KeyStore = {
 *   async find(digest) {
 *     const response = await fetch(`https://keys.example.com/${digest}`);
 *     if (response.status === 404) return undefined;
 *     if (!response.ok) throw new GatewayError("key_store_unavailable");
 *     const { id } = await response.json();
 *     return { id, digest };
 *   },
 * };
 * createGateway(parseConfig({ providers: { a: { upstream: "openai" } } }), { keys });
 * ```
 */
export interface KeyStore {
  /**
   * Looks one up.
   *
   * @param digest SHA-256 of the key that was presented
   * @returns The key whose secret, or secret before the last rotation, this is; `undefined` where
   * there is none
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
 * A change of one key, from what it is (`undefined` for a new one) to what it becomes. An error
 * that it throws ends the change. It may be called again if somebody else has changed the key
 * meanwhile.
 */
export type KeyChange = (id: string, current: GatewayKey | undefined) => GatewayKey;

/** Port: where keys are kept and changed. */
export interface KeyRegistry extends KeyStore {
  /**
   * True if each change is refused, since the keys stand in the configuration. Left out by stores
   * that can be changed.
   */
  readonly isReadOnly?: boolean;
  /** @returns The keys, the newest first */
  list(query: KeyQuery): Promise<readonly GatewayKey[]>;
  /** @returns The key with this id */
  get(id: string): Promise<GatewayKey | undefined>;
  /**
   * @returns When keys were last used, milliseconds since 1970, by id; as far as it was written
   * down
   */
  lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /**
   * Notes that a key was used. Written down lazily.
   *
   * @param id Its id
   * @param at Milliseconds since 1970
   */
  used(id: string, at: number): void;
  /**
   * Changes one key, or adds it. No other change of it comes between.
   *
   * @param id Its id
   * @param change From what it is (`undefined` for a new one) to what it becomes; an error ends the
   * change
   * @returns What it became
   * @throws {KeyStoreError} When it is refused
   * @throws {KeyStoreUnavailable} When it can't be written
   */
  change(id: string, change: (current: GatewayKey | undefined) => GatewayKey): Promise<GatewayKey>;
  /**
   * Changes several keys, or adds them in the order that is given. All changes are decided before
   * the first is written; a key that a change returns as it was is not written.
   *
   * @param ids Their ids, none of them twice
   * @param change From what each is to what it becomes
   * @returns What they became
   * @throws {KeyStoreError} When one of them is refused: then none is changed, unless that was
   * decided too late
   * @throws {KeyStoreUnavailable} When they can't be written. In a file it is all of them or none
   */
  changeAll(ids: readonly string[], change: KeyChange): Promise<readonly GatewayKey[]>;
  /**
   * Confirms that the keys that are there are all, where a store has lost some. Left out by stores
   * that lose none.
   *
   * @returns True if there was anything to confirm
   * @throws {KeyStoreUnavailable} When it can't be written
   */
  confirm?(): Promise<boolean>;
}

/** A change of keys is refused. Its message is for the operator and says what to do. */
export class KeyStoreError extends Error {
  override readonly name: string = "KeyStoreError";
}

/** Keys can't be read or written at all. */
export class KeyStoreUnavailable extends KeyStoreError {
  override readonly name = "KeyStoreUnavailable";
}

/** The digests that find a key; none for a damaged record. */
export function digestsOf(
  { digest, previous }: Pick<GatewayKey, "digest" | "previous">,
): readonly string[] {
  if (digest === "") return [];
  return previous === undefined ? [digest] : [digest, previous.digest];
}

/** Tells whether the id or name of a key contains a text, in any case. */
export function matchesSearch(
  { id, name = "" }: { id: string; name?: string | undefined },
  search = "",
): boolean {
  const wanted = search.toLowerCase();
  return id.toLowerCase().includes(wanted) || name.toLowerCase().includes(wanted);
}

/** Refuses a list that should begin after a key that does not exist. */
export function refuseAfter(): never {
  throw new KeyStoreError("Cannot list the keys after an unknown key: begin without it");
}
