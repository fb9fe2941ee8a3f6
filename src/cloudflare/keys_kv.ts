/**
 * Gateway keys in Workers KV: one entry for each digest, whose value is the key as JSON, as in a
 * file of keys.
 *
 * KV caches each read near its reader: a change usually takes effect everywhere within a minute,
 * without a guarantee. The answer that a key does not exist is cached in the same way.
 *
 * @module
 */
import { readRecord } from "../keys/key_record.ts";
import type { GatewayKey, KeyStore } from "../keys/key_store.ts";
import { GatewayError } from "../errors/gateway_error.ts";

/** The part of a namespace of Workers KV that is used. */
export interface KvNamespace {
  /** Reads a value; `null` where there is none. */
  get(name: string): Promise<string | null>;
}

/** Key store in Workers KV. */
export class KvKeyStore implements KeyStore {
  readonly #namespace: KvNamespace;
  readonly #onFound: (key: GatewayKey) => void;

  /** @param onFound Called with each key that is found */
  constructor(namespace: KvNamespace, onFound: (key: GatewayKey) => void = () => {}) {
    this.#namespace = namespace;
    this.#onFound = onFound;
  }

  async find(digest: string): Promise<GatewayKey | undefined> {
    try {
      const text = await this.#namespace.get(digest);
      if (text === null) return undefined;
      const key = readRecord(JSON.parse(text));
      this.#onFound(key);
      return key;
    } catch (cause) {
      throw new GatewayError("key_store_unavailable", { cause });
    }
  }
}
