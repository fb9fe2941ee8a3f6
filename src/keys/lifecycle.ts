/**
 * The life cycle of a gateway key, from its creation to its end: pure functions from one record to
 * the next.
 *
 * @module
 */
import type { KeyPolicy } from "../config/key.ts";
import { type Digest, gatewayKeyId, generateGatewayKey } from "./key_format.ts";
import { type GatewayKey, KeyStoreError } from "./key_store.ts";

/** Inputs of the steps: SHA-256, and the current time in milliseconds since 1970. */
export interface LifecycleParts {
  readonly digest: Digest;
  readonly now: number;
}

/** Maximum time for which the old secret stays good after a rotation: a year. Milliseconds. */
const MAX_OVERLAP_MS = 365 * 86_400_000;
/** Time for which the old secret stays good after a rotation, by default. */
export const DEFAULT_OVERLAP = "24h";

/** A key that was just made. Only now is the key itself known. */
export interface NewKey {
  /** The key itself, to be shown once. */
  readonly key: string;
  /** The record of the key, for the store. */
  readonly record: GatewayKey;
}

/** Makes a key. */
export function createKey(policy: KeyPolicy, { digest, now }: LifecycleParts): NewKey {
  const key = generateGatewayKey();
  const id = gatewayKeyId(key);
  if (id === undefined) throw new Error("a key of the gateway's own form has an id");
  return { key, record: { id, ...policy, digest: digest(key), createdAt: now } };
}

/**
 * Gives a key a new secret; the one before stays good for a while.
 *
 * @param overlapMs For how long the old secret stays good, milliseconds; 0 ends it at once
 * @throws {KeyStoreError} For a revoked key, for too long an overlap, and when two secrets are good
 * already
 */
export function rotateKey(
  record: GatewayKey,
  overlapMs: number,
  { digest, now }: LifecycleParts,
): NewKey {
  if (record.revokedAt !== undefined) {
    throw new KeyStoreError("Cannot rotate a revoked key: create a new one");
  }
  if (overlapMs > MAX_OVERLAP_MS) {
    throw new KeyStoreError("Cannot keep the old secret for so long: at most 365d");
  }
  if (record.later?.fields["previous"] !== undefined) {
    throw new KeyStoreError(
      "Cannot rotate this key: a later version wrote its secret before. Rotate it by that version",
    );
  }
  const { previous } = record;
  const hasPrevious = previous !== undefined && previous.expiresAt > now;
  if (overlapMs > 0 && hasPrevious) {
    const until = new Date(previous.expiresAt).toISOString();
    throw new KeyStoreError(
      `Cannot rotate a key twice: the secret before is good until ${until}. ` +
        "Wait, or end both at once: keys rotate --now, or an overlap of 0s",
    );
  }
  // An operator's own key has an id of any form: its successor has the gateway's.
  const key = generateGatewayKey(record.id);
  const { previous: _, ...rest } = record;
  const old = overlapMs > 0
    ? { previous: { digest: record.digest, expiresAt: now + overlapMs } }
    : {};
  return { key, record: { ...rest, ...old, digest: digest(key) } };
}

/**
 * Ends a key irrevocably, with both its secrets.
 *
 * @param now Milliseconds since 1970
 */
export function revokeKey(record: GatewayKey, now: number): GatewayKey {
  return { ...record, revokedAt: record.revokedAt ?? now };
}

/**
 * Suspends a key, or ends its suspension.
 *
 * @throws {KeyStoreError} For a revoked key, whose end can't be taken back
 */
export function suspendKey(record: GatewayKey, isDisabled: boolean): GatewayKey {
  if (record.revokedAt !== undefined) {
    throw new KeyStoreError(
      `Cannot ${isDisabled ? "disable" : "enable"} a revoked key: this state is final`,
    );
  }
  const { disabled: _, ...rest } = record;
  return isDisabled ? { ...rest, disabled: true } : rest;
}
