/**
 * Preparation of a configuration, from its file and variables to open engines. `serve`, its reload
 * and `check` all use it: every mistake in a configuration is found here, before anything is
 * changed.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { checkConfig, type Config, ConfigError } from "../config/config.ts";
import { KeyStoreUnavailable } from "../keys/key_store.ts";
import { describeKeyStore } from "../config/keys.ts";
import type { KeyConfig } from "../config/key.ts";
import { assemble, type Assembly, composeGateway } from "./compose.ts";
import { readEgress } from "./egress.ts";
import { describeUnreadableKeys, describeUnreadableSecrets } from "./held_key_sources.ts";
import {
  describeKeyLimits,
  describeMissingTeams,
  describeStoredTeams,
  listNewestKeys,
} from "./stored_mistakes.ts";
import type { Engines } from "./engines.ts";
import { type ListenerAddress, loadConfig, readTlsFiles } from "./load_config.ts";
import { digestConfig } from "./masked_config.ts";
import { readRedisFiles } from "./redis_files.ts";
import type { Json } from "../config/environment.ts";

/** A configuration as read, in a form that can be sent to another process. */
export interface Source {
  /** The settings of the file and the variables. */
  readonly input: Json;
  /** The file, if there was one. */
  readonly file?: string | undefined;
  /** Directory that relative paths start from. */
  readonly directory: string;
  /** The addresses to listen on, with the text of their certificates. */
  readonly addresses: readonly ListenerAddress[];
  /** SHA-256 of the configuration without its secrets. */
  readonly digest: string;
  /** Format of the log. */
  readonly log: Config["log"];
  /** Name of the gateway; `undefined` for its host and first port. */
  readonly instance: string | undefined;
  /** True if the time before the listeners close is configured, and not the default. */
  readonly hasDrainDelay: boolean;
}

/** A configuration that can be served. Its engines are open, its addresses are not yet. */
export interface Prepared {
  readonly source: Source;
  readonly config: Config;
  readonly assembly: Assembly;
}

/** True if callers can use identity tokens. A gateway then needs no keys. */
const acceptsTokens = ({ identity = [] }: Config): boolean =>
  identity.some(({ callers }) => callers);

const hasDrainDelay = ({ drain }: Json): boolean =>
  typeof drain === "object" && drain !== null && "delay" in drain;

/**
 * Reads and checks a configuration.
 *
 * @param named The file. Default: found as by `loadConfig`
 * @param makeKey Creates a key if none is configured. If it creates none, a missing key is a
 * mistake
 * @throws {ConfigError} With every mistake and its place
 */
export function readSource(
  named?: string,
  makeKey: () => KeyConfig | undefined = () => undefined,
): Source {
  const { config, input, file, directory } = loadConfig(named);
  const addresses = readTlsFiles({ config, directory });
  // Only to find their mistakes: each process reads these files itself.
  if (config.redis !== undefined) readRedisFiles(config.redis, directory);
  readEgress(config, directory);
  const { log, instance } = config;
  const source = {
    input,
    file,
    directory,
    addresses,
    digest: digestConfig(config),
    log,
    instance,
    hasDrainDelay: hasDrainDelay(input),
  };
  if (!Array.isArray(config.keys) || config.keys.length > 0 || acceptsTokens(config)) return source;
  const key = makeKey();
  if (key === undefined) {
    const message = "expected at least one gateway key: configure keys, or set SALLYPORT_KEYS";
    throw new ConfigError([{ path: "keys", message, source: file }]);
  }
  return { ...source, input: { ...input, keys: [key] } };
}

/**
 * Opens the configured engines.
 *
 * @param options The engines of the process, the receiver of one-line messages for the operator,
 * and whether to skip Redis
 * @throws {ConfigError} For a file of keys, budgets or usage that can't be used
 */
export async function prepare(
  source: Source,
  options: { engines: Engines; report: ReportEvent; isOffline?: boolean },
): Promise<Prepared> {
  const config = checkConfig(source.input);
  const { directory } = source;
  const { engines, report, isOffline = false } = options;
  const assembled = isOffline ? withoutRedis(config) : config;
  const assembly = await assemble(assembled, { directory, report, isServing: true, engines });
  try {
    composeGateway(config, assembly.parts); // finds mistakes across settings
  } catch (error) {
    await assembly.close();
    throw error;
  }
  const warn = (text: string) => report(text, { event: "configuration_warning" });
  // A worker does not repeat the report of its supervisor.
  if (!isOffline && engines.remote.limiter === undefined) {
    void describeStored(assembly, config).then(
      (lines) => lines.forEach(warn),
      () => {}, // keys that can't be read are reported elsewhere
    );
    void describeUnreadableKeys(config, directory).then((lines) => lines.forEach(warn));
    void describeUnreadableSecrets(config, directory).then((lines) => lines.forEach(warn));
  }
  return { source, config, assembly };
}

/** Describes the stored teams and keys with mistakes, and the keys without their team. */
async function describeStored({ keys, teams }: Assembly, config: Config): Promise<string[]> {
  let mistakes: string[];
  try {
    mistakes = await describeStoredTeams(teams, config);
  } catch (error) {
    if (error instanceof KeyStoreUnavailable) return [error.message];
    throw error;
  }
  const newest = await listNewestKeys(keys);
  return [
    ...mistakes,
    ...describeMissingTeams(newest, teams.byName),
    ...describeKeyLimits(newest, config),
  ];
}

/**
 * Removes Redis from a configuration. A gateway starts even if its Redis is not reachable, so a
 * check does not need it.
 */
function withoutRedis({ redis: _, ...config }: Config): Config {
  return describeKeyStore(config.keys).needsRedis ? { ...config, keys: [] } : config;
}
