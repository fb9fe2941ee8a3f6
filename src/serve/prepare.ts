/**
 * The one way from a file and variables to what can be served, for `serve`, its reload and `check` alike: everything
 * that can be wrong with a configuration is found here, before anything is changed.
 *
 * @module
 */
import { type Config, ConfigError, parseConfig } from "../config/config.ts";
import { createGateway } from "../gateway.ts";
import type { KeyConfig } from "../config/key.ts";
import { assemble, type Assembly } from "./compose.ts";
import type { Engines } from "./engines.ts";
import { type Address, loadConfig, readTlsFiles } from "./load_config.ts";
import { digestConfig } from "./masked_config.ts";
import type { Json } from "../config/environment.ts";

/** A configuration as it was read, in a form that another process can be sent. */
export interface Source {
  /** The settings of the file and the variables. */
  readonly input: Json;
  /** The file, if there was one. */
  readonly file?: string | undefined;
  /** Relative paths start here. */
  readonly directory: string;
  /** Where to listen, with the certificates' texts. */
  readonly addresses: readonly Address[];
  /** SHA-256 of the configuration without its secrets. */
  readonly digest: string;
}

/** A configuration that can be served: its engines are open, its addresses are not yet. */
export interface Prepared extends Source {
  readonly config: Config;
  readonly assembly: Assembly;
}

/**
 * Reads and checks a configuration.
 *
 * @param named The file; found as `loadConfig` does if left out
 * @param makeKey Gives a key where none is configured; without one that is a mistake
 * @returns All of it
 * @throws {ConfigError} With every mistake and where it was made
 */
export function readSource(named?: string, makeKey: () => KeyConfig | undefined = () => undefined): Source {
  const { config, input, file, directory } = loadConfig(named);
  const addresses = readTlsFiles({ config, directory });
  if (!Array.isArray(config.keys) || config.keys.length > 0) {
    return { input, file, directory, addresses, digest: digestConfig(config) };
  }
  const key = makeKey();
  if (key === undefined) {
    const message = "expected at least one gateway key: configure keys, or set SALLYPORT_KEYS";
    throw new ConfigError([{ path: "keys", message, source: file }]);
  }
  return { input: { ...input, keys: [key] }, file, directory, addresses, digest: digestConfig(config) };
}

/**
 * Opens the engines that a configuration asks for.
 *
 * @param source The configuration
 * @param options What the process keeps, who is told in one line what an operator should know, and whether Redis is to
 *   be reached
 * @returns What can be served
 * @throws {ConfigError} For a file of keys, budgets or usage that can't be used
 */
export async function prepare(
  source: Source,
  options: { engines: Engines; report: (text: string) => void; isOffline?: boolean },
): Promise<Prepared> {
  const config = parseConfig(source.input);
  const { directory } = source;
  const { engines, report, isOffline = false } = options;
  const assembled = isOffline ? withoutRedis(config) : config;
  const assembly = await assemble(assembled, { directory, report, isServing: true, engines });
  try {
    createGateway(config, assembly.parts); // what only the whole shows, such as a host of two providers
  } catch (error) {
    await assembly.close();
    throw error;
  }
  return { ...source, config, assembly };
}

/** A gateway starts while its Redis is away: whether that can be reached says nothing about a configuration. */
function withoutRedis({ redis: _, ...config }: Config): Config {
  return config.keys === "redis" ? { ...config, keys: [] } : config;
}
