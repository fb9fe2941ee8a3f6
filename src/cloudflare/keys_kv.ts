/**
 * Gateway keys in Workers KV: one entry per digest. Its value is the key as JSON, as in a file of
 * keys.
 *
 * KV caches reads in each location. A change is usually effective everywhere within a minute, but
 * this is not guaranteed. The answer that a key does not exist is cached in the same way.
 *
 * @module
 */
import { readKeyRecord } from "../keys/key_record.ts";
import type { GatewayKey, KeyStore } from "../keys/key_store.ts";
import { GatewayError } from "../errors/gateway_error.ts";

/** The used part of a namespace of Workers KV. */
export interface KvNamespace {
  /** Reads a value; `null` if there is none. */
  get(name: string): Promise<string | null>;
}

/** Key store in Workers KV. */
export class KvKeyStore implements KeyStore {
  readonly #namespace: KvNamespace;
  readonly #onFound: (key: GatewayKey) => void;

  /** @param onFound Called with each found key */
  constructor(namespace: KvNamespace, onFound: (key: GatewayKey) => void = () => {}) {
    this.#namespace = namespace;
    this.#onFound = onFound;
  }

  async find(digest: string): Promise<GatewayKey | undefined> {
    try {
      const text = await this.#namespace.get(digest);
      if (text === null) return undefined;
      const key = readKeyRecord(JSON.parse(text));
      this.#onFound(key);
      return key;
    } catch (cause) {
      throw new GatewayError("key_store_unavailable", { cause });
    }
  }
}
