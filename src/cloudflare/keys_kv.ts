/**
 * Gateway keys in Workers KV: an entry for each digest, its value the key as JSON, the same as in a file of keys.
 *
 * KV keeps what was read near to where it was read: a change holds everywhere after a minute as a rule, and nobody
 * promises when. An answer "there is no such key" is kept in the same way.
 *
 * @module
 */
import * as v from "valibot";
import type { GatewayKey, KeyStore } from "../keys/key_store.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { KeySchema } from "../config/key.ts";

/** What of a namespace of Workers KV is used. */
export interface KvNamespace {
  /** @returns The value, or `null` where there is none */
  get(name: string): Promise<string | null>;
}

function parseKey(text: string): GatewayKey {
  const { digest, ...key } = v.parse(KeySchema, JSON.parse(text));
  if (digest === undefined) throw new Error("expected a digest");
  return { ...key, digest };
}

/** Keys in KV. */
export class KvKeyStore implements KeyStore {
  readonly #namespace: KvNamespace;

  /** @param namespace Where they are */
  constructor(namespace: KvNamespace) {
    this.#namespace = namespace;
  }

  async find(digest: string): Promise<GatewayKey | undefined> {
    try {
      const text = await this.#namespace.get(digest);
      return text === null ? undefined : parseKey(text);
    } catch (cause) {
      throw new GatewayError("key_store_unavailable", { cause });
    }
  }
}
