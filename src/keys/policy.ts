/**
 * Permissions of a gateway key: state, providers and models, derived only from the key.
 *
 * @module
 */
import { matchesGlob } from "../config/glob.ts";
import { GROUPS, type OperationGroup, type WrittenGroup } from "../config/operation_groups.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { KeyConfig } from "../config/key.ts";
import type { ProviderConfig } from "../config/provider.ts";
import type { GatewayKey } from "./key_store.ts";

/** State of a key. Only an active one is accepted. */
export type KeyState = "active" | "disabled" | "revoked" | "expired";

/**
 * Returns the state of a key.
 *
 * @param now Milliseconds since 1970
 */
export function findKeyState({ revokedAt, disabled, expiresAt }: KeyConfig, now: number): KeyState {
  if (revokedAt !== undefined) return "revoked";
  if (expiresAt !== undefined && expiresAt <= now) return "expired";
  return disabled === true ? "disabled" : "active";
}

/**
 * Checks that a key is usable, and allowed at a provider.
 *
 * @param now Wall clock, milliseconds since 1970
 * @throws {GatewayError} `invalid_gateway_key` for unknown, revoked and expired alike,
 * `key_not_understood`, `provider_not_allowed`
 */
export function requireUsableKey(
  key: KeyConfig | GatewayKey | undefined,
  provider: string,
  now: number,
): KeyConfig {
  if (key === undefined || findKeyState(key, now) !== "active") {
    throw new GatewayError("invalid_gateway_key");
  }
  if ("later" in key && key.later?.refusal !== undefined) {
    throw new GatewayError("key_not_understood", { cause: new Error(key.later.refusal) });
  }
  if (key.providers !== undefined && !key.providers.includes(provider)) {
    throw new GatewayError("provider_not_allowed");
  }
  return key;
}

/** Returns whether a group is allowed. `undefined` is the group of paths without an operation. */
function allowsGroup(group: OperationGroup | undefined, allowed: readonly WrittenGroup[]): boolean {
  if (group === undefined || allowed.includes("all")) return allowed.includes("all");
  return (GROUPS[group] && allowed.includes("default")) || allowed.includes(group);
}

/**
 * Checks that a key is allowed to use an operation.
 *
 * @param operation Its group, and whether its model can be known
 * @param provider Name of the provider, and the operations that it allows
 * @throws {GatewayError} `operation_not_allowed`, `model_not_allowed` for a key with restricted
 * models if the model cannot be known
 */
export function assertOperationAllowed(
  key: KeyConfig,
  operation: OperationAccess,
  provider: ProviderAccess,
): void {
  const { group, model } = operation;
  const isAllowed = allowsGroup(group, provider.operations) &&
    (!key.operations || allowsGroup(group, key.operations));
  const isUnknowable = model === "none" && key.models !== undefined;
  if (!isAllowed || isUnknowable) throw toOperationError(operation, provider, isAllowed);
}

/** The part of an operation that decides which keys can use it. */
interface OperationAccess {
  readonly group: OperationGroup | undefined;
  /** Location of its model in the request. */
  readonly model: string;
}

/** The part of a provider that decides about operations. */
type ProviderAccess = Pick<ProviderConfig, "operations"> & { readonly name: string };

function toOperationError(
  { group = "all" as const }: { readonly group?: OperationGroup | "all" | undefined },
  { name, operations }: ProviderAccess,
  isAllowed: boolean,
): GatewayError {
  if (isAllowed) {
    const detail = "the key is limited to models, and the model of this operation can't be known";
    return new GatewayError("model_not_allowed", { detail });
  }
  const isOfProvider = group === "all" || !allowsGroup(group, operations);
  const setting = isOfProvider ? `providers.${name}.operations` : "the key's operations";
  return new GatewayError("operation_not_allowed", {
    detail: `"${group}" is not among ${setting}`,
  });
}

/**
 * Checks that a key is allowed to use a model.
 *
 * @param model As the caller named it; `undefined` if it named none
 * @throws {GatewayError} `model_not_allowed`
 */
export function assertModelAllowed(key: KeyConfig, model: string | undefined): void {
  if (model === undefined ? key.models !== undefined : !allowsModel(key, model)) {
    throw new GatewayError("model_not_allowed");
  }
}

/**
 * Checks that a key is allowed to use the models that a body names in addition to its own.
 *
 * @param others Their names, and a field that can select a model without naming it
 * @throws {GatewayError} `model_not_allowed`
 */
export function assertOtherModelsAllowed(
  key: KeyConfig,
  others: { readonly names: readonly string[]; readonly unnamedIn: string | undefined },
): void {
  if (key.models === undefined) return;
  if (others.unnamedIn !== undefined) {
    const detail = "the key is limited to models, and this field can mean any model";
    throw new GatewayError("model_not_allowed", { param: others.unnamedIn, detail });
  }
  for (const name of others.names) assertModelAllowed(key, name);
}

/** Returns whether a key is allowed to use a model. */
export function allowsModel({ models }: KeyConfig, model: string): boolean {
  return models === undefined || models.some((pattern) => matchesGlob(model, pattern));
}
