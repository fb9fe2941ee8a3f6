/**
 * The stores of keys and teams, for commands that read or change them.
 *
 * @module
 */
import { userInfo } from "node:os";
import process from "node:process";
import { type Author, Changes } from "../admin/changes.ts";
import type { Config } from "../config/config.ts";
import { describeKeyStore } from "../config/keys.ts";
import { holdsGatewayKey } from "../keys/key_format.ts";
import { KeyStoreError } from "../keys/key_store.ts";
import { assemble, type Assembly } from "../serve/compose.ts";
import { loadConfig } from "../serve/load_config.ts";
import { CommandLineError, report } from "./command.ts";
import type { CommandOptions } from "./options.ts";

/** The most characters of a reason, as for the admin API. */
const MAX_REASON = 256;

/** Returns the user of this terminal. */
function readUser(): string {
  try {
    return process.env["SUDO_USER"] ?? userInfo().username;
  } catch {
    return "unknown"; // the user has no name on this machine, or Deno does not allow to ask
  }
}

/** Returns the author of the changes that a command makes. */
export function readAuthor({ reason }: Pick<CommandOptions, "reason">): Author {
  if (reason === "") throw new CommandLineError("--reason is empty: set a value, or leave it out");
  if (reason !== undefined && holdsGatewayKey(reason)) {
    throw new CommandLineError("--reason contains a gateway key: name the key by its id");
  }
  return { who: `cli:${readUser()}`, reason: reason?.slice(0, MAX_REASON) };
}

/** Opens the list of changes for a command. */
export function openChanges({ changes: log }: Pick<Assembly, "changes">): Changes {
  return new Changes({ log, now: Date.now, report });
}

/**
 * Opens the configured stores of keys and teams, and closes them after some work.
 *
 * @throws {CommandLineError} If the work is refused by a store
 */
export async function withStores(
  options: CommandOptions,
  act: (assembly: Assembly, config: Config) => Promise<void>,
): Promise<void> {
  const { config, directory } = loadConfig(options.config);
  // A Redis that only counts limits is not needed. Errors are thrown and printed once, so `report`
  // does nothing.
  const redis = describeKeyStore(config.keys).needsRedis ? config.redis : undefined;
  const assembly = await assemble({ ...config, redis }, {
    directory,
    report: () => {},
    isServing: false,
  });
  try {
    await act(assembly, config);
  } catch (error) {
    if (error instanceof KeyStoreError) throw new CommandLineError(error.message);
    throw error;
  } finally {
    await assembly.close();
  }
}
