/**
 * `sallyport check`.
 *
 * @module
 */
import process from "node:process";
import { loadConfig, readTlsFiles } from "../serve/load_config.ts";
import type { CommandOptions } from "./command.ts";

/**
 * Prints the effective configuration, its secrets masked.
 *
 * @param options The configuration's file
 * @throws {ConfigError} For a mistake in it
 */
export function check({ config: file }: CommandOptions): void {
  const loaded = loadConfig(file);
  readTlsFiles(loaded);
  const keys = loaded.config.keys.map(({ key, digest, ...rest }) => ({
    ...rest,
    ...(key !== undefined && { key: "(masked)" }),
    ...(digest !== undefined && { digest: "(masked)" }),
  }));
  process.stdout.write(`${JSON.stringify({ ...loaded.config, keys }, null, 2)}\n`);
  process.stderr.write(`sallyport: the configuration is sound (${loaded.file ?? "environment"})\n`);
}
