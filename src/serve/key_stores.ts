/**
 * The stores of gateway keys, and of the teams and changes next to them. Each store is opened by
 * one function here.
 *
 * @module
 */
import { resolve } from "node:path";
import type { ReportEvent } from "../exchange/reported_event.ts";
import type { Config } from "../config/config.ts";
import { type FileKeysConfig, type RedisKeysConfig, refuseKeyStore } from "../config/keys.ts";
import type { ChangeLog } from "../keys/change_log.ts";
import { FileChangeLog } from "../keys/change_log_file.ts";
import type { Digest } from "../keys/key_format.ts";
import type { KeyRegistry } from "../keys/key_store.ts";
import { createInlineKeyStore } from "../keys/key_store_memory.ts";
import type { RedisKeyHealth } from "../keys/redis/key_lookups.ts";
import type { TeamStore } from "../keys/team_store.ts";
import { FileTeamStore } from "../keys/team_store_file.ts";
import type { FleetMemory } from "../limits/redis/membership.ts";
import type { UsageStore } from "../usage/counts.ts";
import type { HistoryStore } from "../usage/history/rows.ts";
import type { EngineReferences, Engines } from "./engines.ts";
import type { RedisPlace } from "./identity_engines.ts";
import { historyNextTo, listKeyFiles, openKeyFile, usageNextTo } from "./key_files.ts";

/** Options for opening a store of keys. */
export interface KeyStoreOptions {
  /** Directory that relative paths start from. */
  readonly directory: string;
  /** Receives one-line messages for the operator. */
  readonly report: ReportEvent;
  /** True for a gateway, which watches files; false for a command. */
  readonly isServing: boolean;
  readonly engines: Engines;
  /** The references of the configuration to the engines that it uses. */
  readonly references: EngineReferences;
  readonly digest: Digest;
  /** Redis, if configured. */
  readonly redis: RedisPlace | undefined;
}

/** The keys of a configuration, and the stores next to them. */
export interface OpenKeyStore {
  readonly keys: KeyRegistry;
  /** Storage of teams; `undefined` for keys of the configuration, which have none. */
  readonly teams?: TeamStore;
  readonly changes: ChangeLog;
  /** Reports the health of keys that are looked up over a network. */
  readonly health?: () => RedisKeyHealth;
  /** Remembers the gateways of a fleet while Redis is away. */
  readonly fleetMemory?: FleetMemory | undefined;
  /** Opens the usage next to the keys, for a gateway that stores it nowhere else. */
  readonly openUsage?: () => Promise<UsageStore>;
  /** Opens the history next to the keys, for a gateway that stores it nowhere else. */
  readonly openHistory?: () => Promise<HistoryStore>;
}

/**
 * Opens the configured store of keys.
 *
 * @throws {ConfigError} If a file of keys can't be used, or the store is unknown
 */
export async function openKeyStore(
  keys: Config["keys"],
  options: KeyStoreOptions,
): Promise<OpenKeyStore> {
  const { digest, engines } = options;
  if (Array.isArray(keys)) {
    return { keys: createInlineKeyStore(keys, digest), changes: engines.changes };
  }
  switch (keys.store) {
    case "file":
      return await openFile(keys, options);
    case "redis":
      return await openRedis(keys, options);
    default:
      return refuseKeyStore(keys);
  }
}

async function openFile(
  { file }: FileKeysConfig,
  options: KeyStoreOptions,
): Promise<OpenKeyStore> {
  const { directory, isServing, references } = options;
  const files = listKeyFiles(resolve(directory, file));
  const { store, state } = await references.use(
    `keys ${files.keys.path}`,
    () => openKeyFile(files, options),
    async ({ store, state }) => {
      store.close();
      await state.close();
    },
  );
  // An already open file keeps its last valid content. As part of a new configuration, the file
  // must be valid now.
  if (isServing) await store.check();
  return {
    keys: store,
    teams: new FileTeamStore(files.teams),
    changes: new FileChangeLog(files.changes),
    fleetMemory: state,
    openUsage: () => usageNextTo(files.usage, options),
    openHistory: () => historyNextTo(files.history, options),
  };
}

/** Opens keys in Redis. The modules for Redis are loaded only when it is configured. */
async function openRedis(
  { snapshot }: RedisKeysConfig,
  options: KeyStoreOptions,
): Promise<OpenKeyStore> {
  const { redis } = options;
  if (redis === undefined) throw new Error("the check of the configuration requires Redis");
  const { name, client } = redis;
  const { openRedisKeys } = await import("./redis_keys.ts");
  const { RedisTeamStore } = await import("../keys/redis/team_store.ts");
  const { RedisChangeLog } = await import("../keys/redis/change_log.ts");
  const keys = await openRedisKeys({ name, client, snapshot }, options);
  return {
    keys,
    teams: new RedisTeamStore(client, {
      generation: () => keys.generation,
      snapshot: keys.snapshot,
    }),
    changes: new RedisChangeLog(client),
    health: () => keys.health,
    fleetMemory: keys.snapshot,
  };
}
