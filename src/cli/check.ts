/**
 * `sallyport check`.
 *
 * @module
 */
import process from "node:process";
import type { KeyConfig } from "../key_config.ts";
import { loadConfig, readTlsFiles } from "../serve/load_config.ts";
import type { CommandOptions } from "./command.ts";

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
 * Prints the effective configuration, its secrets masked.
 *
 * @param options The configuration's file
 * @throws {ConfigError} For a mistake in it
 */
export function check({ config: file }: CommandOptions): void {
  const loaded = loadConfig(file);
  readTlsFiles(loaded);
  const { keys, admin, redis, ...config } = loaded.config;
  const masked = {
    ...config,
    keys: Array.isArray(keys) ? keys.map(maskKey) : keys,
    ...(admin !== undefined && { admin: { ...admin, ...(admin.token !== undefined && { token: MASK }) } }),
    ...(redis !== undefined && { redis: redis.replace(/\/\/[^@/]*@/, `//${MASK}@`) }),
  };
  process.stdout.write(`${JSON.stringify(masked, null, 2)}\n`);
  process.stderr.write(`sallyport: the configuration is sound (${loaded.file ?? "environment"})\n`);
}
