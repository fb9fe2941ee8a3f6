/**
 * Who the gateway keys belong to. Stored and compared as digests: no store ever holds a key.
 *
 * @module
 */
import { type Digest, isPlausibleKey } from "./gateway_key.ts";

/** What is known of one gateway key. */
export interface GatewayKey {
  /** Names the key in logs and metrics. */
  readonly id: string;
  /** SHA-256 of the whole key, 64 hexadecimal digits in lower case. */
  readonly digest: string;
  /** Names of the providers it may use; left out, all. */
  readonly providers?: readonly string[] | undefined;
  /** Models it may use, each a name with `*` for any characters; left out, all. */
  readonly models?: readonly string[] | undefined;
  /** Milliseconds since 1970 from which on it is refused. */
  readonly expiresAt?: number | undefined;
}

/** Port: where keys are looked up. */
export interface KeyStore {
  /**
   * @param digest SHA-256 of the key that was shown
   * @returns The key, or `undefined` where there is none
   */
  find(digest: string): GatewayKey | undefined | Promise<GatewayKey | undefined>;
}

/** Whether two digests are equal, in a time that does not tell where they differ. */
function equalDigests(a: string, b: string): boolean {
  let difference = a.length ^ b.length;
  for (let index = 0; index < a.length; index++) difference |= a.charCodeAt(index) ^ b.charCodeAt(index);
  return difference === 0;
}

/** Keys in memory. */
export class MemoryKeyStore implements KeyStore {
  readonly #keys: ReadonlyMap<string, GatewayKey>;

  /** @param keys The keys, each with its digest */
  constructor(keys: Iterable<GatewayKey>) {
    this.#keys = new Map(Array.from(keys, (key) => [key.digest, key]));
  }

  find(digest: string): GatewayKey | undefined {
    return this.#keys.get(digest);
  }
}

/**
 * Finds the key that a caller showed.
 *
 * @param shown The credential
 * @param store Where to look
 * @param digest SHA-256
 * @returns The key, or `undefined`: for a malformed one without hashing or a look-up
 */
export async function findGatewayKey(
  shown: string,
  store: KeyStore,
  digest: Digest,
): Promise<GatewayKey | undefined> {
  if (!isPlausibleKey(shown)) return undefined;
  const shownDigest = digest(shown);
  const key = await store.find(shownDigest);
  return key !== undefined && equalDigests(key.digest, shownDigest) ? key : undefined;
}
