/**
 * A configuration without its secrets, to be shown, and the digest by which two gateways can be compared.
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { Config } from "../config/config.ts";
import type { KeyConfig } from "../config/key.ts";

const MASK = "(masked)";

function maskKey({ key, digest, previous, ...rest }: KeyConfig): Record<string, unknown> {
  return {
    ...rest,
    ...(key !== undefined && { key: MASK }),
    ...(digest !== undefined && { digest: MASK }),
    ...(previous !== undefined && { previous: { ...previous, digest: MASK } }),
  };
}

/**
 * Masks the secrets of a configuration.
 *
 * @param config The configuration
 * @returns What of it may be shown
 */
export function maskSecrets({ keys, admin, redis, ...config }: Config): Record<string, unknown> {
  return {
    ...config,
    keys: Array.isArray(keys) ? keys.map(maskKey) : keys,
    ...(admin !== undefined && { admin: { ...admin, ...(admin.token !== undefined && { token: MASK }) } }),
    ...(redis !== undefined && { redis: redis.replace(/\/\/[^@/]*@/, `//${MASK}@`) }),
  };
}

/** Objects with their members in the order of their names, for the order in a file decides nothing. */
function sortMembers(_name: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => one < other ? -1 : 1));
}

/**
 * The digest of a configuration. Equal configurations have equal ones, on every machine and runtime. It is made of what
 * {@link maskSecrets} leaves: no secret could be guessed by it, and none that changed is seen in it.
 *
 * @param config The configuration
 * @returns SHA-256 in hexadecimal
 */
export function digestConfig(config: Config): string {
  return createHash("sha256").update(JSON.stringify(maskSecrets(config), sortMembers)).digest("hex");
}
