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
import { printDenoFlags } from "./deno_flags.ts";
import type { CommandOptions } from "./options.ts";

/**
 * Does everything that `serve` does before it listens, and prints the effective configuration, its secrets masked; or
 * prints only the flags of Deno for it.
 *
 * @param options The configuration's file, and what is asked
 * @throws {ConfigError} For a mistake in it
 */
export async function checkCommand(options: CommandOptions): Promise<void> {
  const { config: file, "env-file": envFiles, "deno-flags": asksFlags } = options;
  if (asksFlags) return printDenoFlags(file, envFiles);
  const source = readSource(file);
  const { assembly } = await prepare(source, { engines: new Engines(), report: () => {}, isOffline: true });
  await assembly.close();
  process.stdout.write(`${JSON.stringify(maskSecrets(checkConfig(source.input)), null, 2)}\n`);
  process.stderr.write(
    `sallyport: the configuration is sound (${source.file ?? "environment"}), digest ${source.digest}\n`,
  );
}
