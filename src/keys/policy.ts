/**
 * Permissions of a gateway key: providers and models, decided from the key alone.
 *
 * @module
 */
import { matchesGlob } from "../config/glob.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { KeyConfig } from "../config/key.ts";
import { keyState } from "./lifecycle.ts";

/**
 * Admits a key to a provider.
 *
 * @param key The key that was found, if one was
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
