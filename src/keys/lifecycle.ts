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

/** Maximum time for which the old secret stays valid after a rotation: a year. Milliseconds. */
const MAX_OVERLAP_MS = 365 * 86_400_000;
/** Default time for which the old secret stays valid after a rotation. */
export const DEFAULT_OVERLAP = "24h";

/** A key that was just made. The key itself is known only now. */
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
 * Makes a new secret for a key. The former secret stays valid for a while.
 *
 * @param overlapMs Time for which the old secret stays valid, milliseconds; 0 ends it at once
 * @throws {KeyStoreError} For a revoked key, for too long an overlap, and if two secrets are valid
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
    throw new KeyStoreError("Cannot keep the old secret for longer than 365d");
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
      `Cannot rotate a key twice: the previous secret is valid until ${until}. ` +
        "Wait, or end both at once: keys rotate --now, or an overlap of 0s",
    );
  }
  // An operator's own key can have an id of any form. Its successor has the gateway's form.
  const key = generateGatewayKey(record.id);
  const { previous: _, ...rest } = record;
  const old = overlapMs > 0
    ? { previous: { digest: record.digest, expiresAt: now + overlapMs } }
    : {};
  return { key, record: { ...rest, ...old, digest: digest(key) } };
}

/**
 * Ends a key permanently, with both its secrets.
 *
 * @param now Milliseconds since 1970
 */
export function revokeKey(record: GatewayKey, now: number): GatewayKey {
  return { ...record, revokedAt: record.revokedAt ?? now };
}

/**
 * Suspends a key, or ends its suspension.
 *
 * @throws {KeyStoreError} For a revoked key, whose end cannot be undone
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
