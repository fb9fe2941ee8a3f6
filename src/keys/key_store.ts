/**
 * Stores of gateway keys. Keys are stored and compared as digests. No store ever contains a key
 * itself.
 *
 * @module
 */
import type { KeyConfig } from "../config/key.ts";

/** A stored gateway key: its digest, never the key itself. */
export interface GatewayKey extends Omit<KeyConfig, "key"> {
  /** SHA-256 of the whole key, 64 hexadecimal digits in lower case. */
  readonly digest: string;
  /** The part of its record that this version does not understand, if any. */
  readonly later?: LaterPart | undefined;
}

/**
 * The part of a record that this version does not understand. It is kept, because a later version
 * can have written it.
 */
export interface LaterPart {
  /** Fields as in the record. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** Limits as in the record. */
  readonly limits: Readonly<Record<string, unknown>>;
  /**
   * Reason why the key is refused, for operators; `undefined` if this part does not restrict it.
   */
  readonly refusal?: string | undefined;
}

/**
 * Port: look-up of keys.
 *
 * @example Look keys up in your own service
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
   * Looks a key up.
   *
   * @param digest SHA-256 of the key that was presented
   * @returns The key with this current secret, or with this secret before its last rotation;
   * `undefined` if there is none
   * @throws {GatewayError} `key_store_unavailable` if the store cannot be reached
   */
  find(digest: string): GatewayKey | undefined | Promise<GatewayKey | undefined>;
}

/** A query for keys to list. */
export interface KeyQuery {
  /** Maximum number of keys. */
  readonly limit: number;
  /** Id of the key after which the list begins. */
  readonly after?: string | undefined;
  /** Text in the id or name of the keys, in any case. */
  readonly search?: string | undefined;
  /** Name of the keys' team. */
  readonly team?: string | undefined;
}

/**
 * A change of one key, from its current record (`undefined` for a new key) to its new record. An
 * error that it throws ends the change. It can be called again if another process has changed the
 * key in the meantime.
 */
export type KeyChange = (id: string, current: GatewayKey | undefined) => GatewayKey;

/** Port: storage of keys, with changes. */
export interface KeyRegistry extends KeyStore {
  /**
   * True if all changes are refused, because the keys are in the configuration. Left out by stores
   * that can be changed.
   */
  readonly isReadOnly?: boolean;
  /** @returns The keys, the newest first */
  list(query: KeyQuery): Promise<readonly GatewayKey[]>;
  /** @returns The key with this id */
  get(id: string): Promise<GatewayKey | undefined>;
  /** @returns Last uses of keys, milliseconds since 1970, by id, if they are stored */
  lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /**
   * Notes that a key was used. It is stored later.
   *
   * @param id Its id
   * @param at Milliseconds since 1970
   */
  used(id: string, at: number): void;
  /**
   * Changes one key, or adds it, atomically.
   *
   * @param id Its id
   * @param change From its current record (`undefined` for a new key) to its new record. An error
   * ends the change
   * @returns Its new record
   * @throws {KeyStoreError} If the change is refused
   * @throws {KeyStoreUnavailable} If it cannot be written
   */
  change(id: string, change: (current: GatewayKey | undefined) => GatewayKey): Promise<GatewayKey>;
  /**
   * Changes several keys, or adds them in the given order. All changes are decided before the first
   * is written. A key that a change returns unchanged is not written.
   *
   * @param ids Their ids, none of them twice
   * @param change From the current record of each to its new record
   * @returns Their new records
   * @throws {KeyStoreError} If one of them is refused. None is changed then, unless that was
   * decided too late
   * @throws {KeyStoreUnavailable} If they cannot be written. In a file, either all of them are
   * written or none
   */
  changeAll(ids: readonly string[], change: KeyChange): Promise<readonly GatewayKey[]>;
  /**
   * Confirms that the store has all keys, after data loss. Left out by stores that lose none.
   *
   * @returns True if there was anything to confirm
   * @throws {KeyStoreUnavailable} If it cannot be written
   */
  confirm?(): Promise<boolean>;
}

/** A change of keys is refused. Its message is for the operator and contains the fix. */
export class KeyStoreError extends Error {
  override readonly name: string = "KeyStoreError";
  /** Path of the setting that is refused, such as `limits.budget`, if it is one. */
  readonly param: string | null;

  constructor(message: string, { param, ...options }: ErrorOptions & { param?: string } = {}) {
    super(message, options);
    this.param = param ?? null;
  }
}

/** Keys cannot be read or written at all. */
export class KeyStoreUnavailable extends KeyStoreError {
  override readonly name = "KeyStoreUnavailable";
}

/** The digests that identify a key; none for a damaged record. */
export function digestsOf(
  { digest, previous }: Pick<GatewayKey, "digest" | "previous">,
): readonly string[] {
  if (digest === "") return [];
  return previous === undefined ? [digest] : [digest, previous.digest];
}

/** Returns whether a key is in the team of a query, and its id or name contains the text. */
export function matchesQuery(
  { id, name = "", team }: Pick<GatewayKey, "id" | "name" | "team">,
  query: Pick<KeyQuery, "search" | "team">,
): boolean {
  if (query.team !== undefined && query.team !== team) return false;
  const wanted = (query.search ?? "").toLowerCase();
  return id.toLowerCase().includes(wanted) || name.toLowerCase().includes(wanted);
}

/** Refuses a list after a key that does not exist. */
export function refuseAfter(): never {
  throw new KeyStoreError("Cannot list the keys after an unknown key: begin without it");
}
