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
import { CommandLineError, report } from "./command.ts";
import { listUnpriced } from "./unpriced_usage.ts";
import { loadConfig } from "../serve/load_config.ts";
import { toPlain } from "./table.ts";
import { describeUnreadableKeys, describeUnreadableSecrets } from "../serve/held_key_sources.ts";
import { KeyStoreUnavailable } from "../keys/key_store.ts";
import {
  describeKeyLimits,
  describeMissingTeams,
  describeStoredTeams,
  listNewestKeys,
} from "../serve/stored_mistakes.ts";
import { printDenoFlags } from "./deno_flags.ts";
import type { CommandOptions } from "./options.ts";

/**
 * Does everything that `serve` does before it listens. Prints the effective configuration with
 * masked secrets, and on standard error the settings that have no effect and incomplete prices. Or prints only the Deno
 * flags for it.
 *
 * @throws {ConfigError} For a mistake in it
 * @throws {CommandLineError} If two files are named, or if calls would be refused
 */
export async function checkCommand(options: CommandOptions): Promise<void> {
  const { config, operand, "env-file": envFiles, "deno-flags": asksFlags, usage: asksUsage } =
    options;
  const { force = false } = options;
  if (config !== undefined && operand !== undefined) {
    throw new CommandLineError("check reads one file: name it alone, or with --config");
  }
  const file = operand ?? config;
  if (asksFlags) return printDenoFlags(file, envFiles);
  const source = readSource(file);
  const { assembly, config: effective } = await prepare(source, {
    engines: new Engines(),
    report: () => {},
    isOffline: true,
  });
  const { keys, teams } = assembly;
  const storedTeams = await describeStoredTeams(teams, effective).catch((error) => {
    throw error instanceof KeyStoreUnavailable ? new CommandLineError(error.message) : error;
  });
  const newest = await listNewestKeys(keys);
  const missingTeams = describeMissingTeams(newest, teams.byName);
  const unreadableKeys = await describeUnreadableKeys(effective, source.directory);
  const unreadableSecrets = await describeUnreadableSecrets(effective, source.directory);
  await assembly.close();
  const checked = checkConfig(source.input);
  process.stdout.write(`${JSON.stringify(maskSecrets(checked), null, 2)}\n`);
  for (const warning of findWarnings(checked)) report(formatWarning(warning));
  const lines = [
    ...storedTeams,
    ...missingTeams,
    ...describeKeyLimits(newest, effective),
    ...unreadableKeys,
    ...unreadableSecrets,
  ];
  for (const line of lines) report(line);
  const refused = missingTeams.length + unreadableKeys.length > 0
    ? "calls"
    : unreadableSecrets.length > 0
    ? "sign-ins"
    : undefined;
  if (refused !== undefined && !force) {
    throw new CommandLineError(`${refused} would be refused: see above; --force accepts that`);
  }
  if (asksUsage) {
    for (const line of await listUnpriced(loadConfig(file))) report(`usage: ${toPlain(line)}`);
  }
  process.stderr.write(
    `sallyport: the configuration is sound (${
      source.file ?? "environment"
    }), digest ${source.digest}\n`,
  );
}
