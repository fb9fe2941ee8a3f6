/**
 * `sallyport check`.
 *
 * @module
 */
import process from "node:process";
import { checkConfig } from "../config/config.ts";
import { formatWarning } from "../config/issue.ts";
import { findWarnings } from "../config/warnings.ts";
import { Engines } from "../serve/engines.ts";
import { maskSecrets } from "../serve/masked_config.ts";
import { prepare, readSource } from "../serve/prepare.ts";
import { report } from "./command.ts";
import { listUnpriced } from "./unpriced_usage.ts";
import { loadConfig } from "../serve/load_config.ts";
import { toPlain } from "./table.ts";
import { printDenoFlags } from "./deno_flags.ts";
import type { CommandOptions } from "./options.ts";

/**
 * Does everything that `serve` does before it listens. Prints the effective configuration with
 * masked secrets, and on standard error the settings that have no effect and incomplete prices. Or prints only the Deno
 * flags for it.
 *
 * @throws {ConfigError} For a mistake in it
 */
export async function checkCommand(options: CommandOptions): Promise<void> {
  const { config: file, "env-file": envFiles, usage: asksUsage } = options;
  const asksFlags = options["deno-flags"];
  if (asksFlags) return printDenoFlags(file, envFiles);
  const source = readSource(file);
  const { assembly } = await prepare(source, {
    engines: new Engines(),
    report: () => {},
    isOffline: true,
  });
  await assembly.close();
  const config = checkConfig(source.input);
  process.stdout.write(`${JSON.stringify(maskSecrets(config), null, 2)}\n`);
  for (const warning of findWarnings(config)) report(formatWarning(warning));
  if (asksUsage) {
    for (const line of await listUnpriced(loadConfig(file))) report(`usage: ${toPlain(line)}`);
  }
  process.stderr.write(
    `sallyport: the configuration is sound (${
      source.file ?? "environment"
    }), digest ${source.digest}\n`,
  );
}
