/**
 * Permissions of a gateway key: state, providers and models, decided from the key alone.
 *
 * @module
 */
import { matchesGlob } from "../config/glob.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { KeyConfig } from "../config/key.ts";

/** State of a key. Only an active one is accepted. */
export type KeyState = "active" | "disabled" | "revoked" | "expired";

/**
 * @param key The key
 * @param now Milliseconds since 1970
 * @returns Its state
 */
export function keyState({ revokedAt, disabled, expiresAt }: KeyConfig, now: number): KeyState {
  if (revokedAt !== undefined) return "revoked";
  if (expiresAt !== undefined && expiresAt <= now) return "expired";
  return disabled === true ? "disabled" : "active";
}

/**
 * Admits a key to a provider.
 *
 * @param key The key, if there is one
 * @param provider Name of the provider
 * @param now Wall clock, milliseconds since 1970
 * @returns The key
 * @throws {GatewayError} `invalid_gateway_key` for unknown, revoked and expired alike, `provider_not_allowed`
 */
export function admitKey(key: KeyConfig | undefined, provider: string, now: number): KeyConfig {
  if (key === undefined || keyState(key, now) !== "active") throw new GatewayError("invalid_gateway_key");
  if (key.providers !== undefined && !key.providers.includes(provider)) throw new GatewayError("provider_not_allowed");
  return key;
}

/**
 * Admits a key to a model.
 *
 * @param key The key
 * @param model As the caller named it
 * @throws {GatewayError} `model_not_allowed`
 */
export function admitModel(key: KeyConfig, model: string): void {
  if (!allowsModel(key, model)) throw new GatewayError("model_not_allowed");
}

/**
 * Tells whether a key may use a model.
 *
 * @param key The key
 * @param model As the caller or the provider named it
 */
export function allowsModel({ models }: KeyConfig, model: string): boolean {
  return models === undefined || models.some((pattern) => matchesGlob(model, pattern));
}
