/**
 * Port: the other processes of a gateway. While the store of keys fails, they share the keys that
 * they know.
 *
 * @module
 */
import type { GatewayKey } from "./key_store.ts";

/** A key that a process knows. */
export interface KnownKey {
  readonly key: GatewayKey;
  /** Time since the store was asked for it. Milliseconds. */
  readonly ageMs: number;
}

/** The other processes of a gateway. */
export interface KeySiblings {
  /**
   * Asks the others for the key with this digest. Never rejects. @returns `undefined` if no process
   * knows it
   */
  find(digest: string): Promise<KnownKey | undefined>;
  /** Sets the function that answers requests of the others. */
  onAsked(find: (digest: string) => KnownKey | undefined): void;
}
