/**
 * `sallyport check`.
 *
 * @module
 */
import process from "node:process";
import { checkConfig } from "../config/config.ts";
import { Engines } from "../serve/engines.ts";
import { maskSecrets } from "../serve/masked_config.ts";
import { prepare, readSource } from "../serve/prepare.ts";
import type { CommandOptions } from "./command.ts";

/**
 * Does everything that `serve` does before it listens, and prints the effective configuration, its secrets masked.
 *
 * @param options The configuration's file
 * @throws {ConfigError} For a mistake in it
 */
export async function check({ config: file }: CommandOptions): Promise<void> {
  const source = readSource(file);
  const { assembly } = await prepare(source, { engines: new Engines(), report: () => {}, isOffline: true });
  await assembly.close();
  process.stdout.write(`${JSON.stringify(maskSecrets(checkConfig(source.input)), null, 2)}\n`);
  process.stderr.write(
    `sallyport: the configuration is sound (${source.file ?? "environment"}), digest ${source.digest}\n`,
  );
}
