/**
 * Composition root: selects the parts of the gateway for this runtime, and its listener.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import nodeCrypto from "node:crypto";
import type { RedisClient, RedisHealth, RedisTarget } from "../storage/redis_client.ts";
import { LaterForms } from "../storage/stored_forms.ts";
import type { Digest } from "../keys/key_format.ts";
import type { DurableExchanges } from "../durable/durable_exchanges.ts";
import type { ChangeLog } from "../keys/change_log.ts";
import type { KeyRegistry } from "../keys/key_store.ts";
import { TeamDirectory } from "../keys/team_directory.ts";
import type { Limiter } from "../limits/limiter.ts";
import { type Config, ConfigError } from "../config/config.ts";
import { TOKEN_ID_PREFIX } from "../config/key.ts";
import type { RedisConfig } from "../config/redis.ts";
import { systemClock } from "../exchange/clock.ts";
import type { ExchangeObserver } from "../exchange/observer.ts";
import { createRefusalReporter } from "../observe/held_key_refusals.ts";
import { createGateway, type Gateway, type GatewayParts } from "../gateway.ts";
import type { UsageMeter } from "../usage/meter.ts";
import type { RunRegistry } from "../runs/run_registry.ts";
import type { AwaitedCall } from "../steps/awaited_call.ts";
import type { AwaitedCalls } from "../usage/awaited_calls.ts";
import type { UsageStore } from "../usage/counts.ts";
import type { HeldKeyReader } from "../upstream/held_keys.ts";
import type { HistoryMeter } from "../usage/history/meter.ts";
import type { HistoryStore } from "../usage/history/rows.ts";
import type { Transport } from "../upstream/transport.ts";
import { runtime } from "../runtime.ts";
import { type EngineReferences, Engines } from "./engines.ts";
import { type Identity, openIdentity, type RedisPlace } from "./identity_engines.ts";
import { createHeldKeyReader, openHeldKeyReader } from "./held_key_sources.ts";
import { type OpenKeyStore, openKeyStore } from "./key_stores.ts";
import { describeBug } from "./lifecycle.ts";
import { openDurable } from "./recordings.ts";
import type { Serve } from "./listener.ts";
import { readRedisFiles } from "./redis_files.ts";
import { createTransport, createTransports, openTransports } from "./transports.ts";

// Hashing in one call: twice as fast on Bun and Node, slower on Deno (measured). Available in Node
// from 20.12 on.
const digest: Digest = runtime !== "deno" && typeof nodeCrypto.hash === "function"
  ? (text) => nodeCrypto.hash("sha256", text, "hex")
  : (text) => nodeCrypto.createHash("sha256").update(text).digest("hex");

/** Returns the transport and the digest of this runtime. */
export function runtimeParts(): Pick<GatewayParts, "transport" | "digest"> {
  return { transport: createTransport(), digest };
}

/**
 * Creates the gateway of a configuration on this runtime. `serve`, `demo` and `doctor` all use it.
 *
 * @param parts Parts to use instead of the runtime's
 * @param directory Directory that relative paths start from
 * @throws {ConfigError} For a mistake across settings, such as a host that two providers share
 */
export function composeGateway(
  config: Config,
  parts: Partial<GatewayParts> = {},
  directory = ".",
): Gateway {
  const isOneEnough = parts.transports !== undefined || parts.onlyTransport !== undefined;
  const transports = isOneEnough ? parts.transports : createTransports(config, directory);
  const readHeldKey = createHeldKeyReader(directory);
  return createGateway(config, { ...runtimeParts(), readHeldKey, ...parts, transports });
}

/** The parts that {@link assemble} has created for a configuration. */
export interface Assembly {
  /** Parts for the gateway. */
  readonly parts: Pick<
    GatewayParts,
    | "transport"
    | "transports"
    | "readHeldKey"
    | "digest"
    | "keys"
    | "teams"
    | "identity"
    | "limiter"
    | "runs"
    | "awaitedCalls"
    | "durable"
    | "observers"
  >;
  readonly keys: KeyRegistry;
  readonly teams: TeamDirectory;
  /** The log of changes of keys, teams, identity tokens and runs. */
  readonly changes: ChangeLog;
  readonly limiter: Limiter;
  /** Verifies and revokes identity tokens; `undefined` if none are accepted. */
  readonly identity: Identity | undefined;
  /** Counts the usage of keys. */
  readonly usage: UsageMeter;
  /** Counts the history of keys, teams and providers. */
  readonly history: HistoryMeter;
  /**
   * Reports the health of the engines.
   *
   * @param elsewhere Number of limit decisions that other processes of this gateway made without
   * Redis
   */
  health(elsewhere?: number): Readonly<Record<string, unknown>>;
  /**
   * True if keys can be looked up. For keys in Redis: after Redis has answered once, or with a
   * snapshot.
   */
  isReady(): boolean;
  /** Reports the health of Redis; `undefined` if not configured. */
  readonly redis: RedisReport | undefined;
  /** The connection to Redis. */
  readonly redisClient: RedisClient | undefined;
  /**
   * Activates this configuration: usage goes to its store, and models with a price in it are
   * counted by name.
   */
  begin(): Promise<void>;
  /**
   * Writes pending data and closes the engines. Engines that other configurations also use stay
   * open.
   */
  close(): Promise<void>;
}

/** Options of {@link assemble}. */
export interface AssembleOptions {
  /** Directory that relative paths start from. */
  readonly directory: string;
  /** Receives one-line messages for the operator. */
  readonly report: ReportEvent;
  /** True for a gateway, which watches files and renews leases; false for a command. */
  readonly isServing: boolean;
  /** Engines that outlive this configuration. Default: new ones, which close with it. */
  readonly engines?: Engines | undefined;
}

/** Options for opening engines. */
interface EngineOptions extends AssembleOptions {
  readonly engines: Engines;
  /** The references of this configuration to the engines that it uses. */
  readonly references: EngineReferences;
}

/** Reports the health of Redis. */
export type RedisReport = () => RedisHealth & { readonly localDecisions: number };

/** The keys, the limits and the usage of a configuration. */
interface Stores {
  readonly keyStore: OpenKeyStore;
  readonly limiter: Limiter;
  readonly redis?: RedisReport;
  readonly place?: RedisPlace;
  readonly usage: UsageStore;
  readonly history: HistoryStore;
  readonly awaitedCalls?: AwaitedCalls<AwaitedCall>;
  readonly runs?: RunRegistry;
  /** Called when the configuration becomes active. */
  readonly begin: () => void;
}

/** Refuses a Redis whose stored data has a later form. @throws {ConfigError} */
async function checkForms(
  client: RedisClient,
  isServing: boolean,
  report: ReportEvent,
): Promise<void> {
  const { checkRedisForms } = await import("../storage/redis_forms.ts");
  try {
    await checkRedisForms(client, isServing);
  } catch (error) {
    throw error instanceof LaterForms
      ? new ConfigError([{ path: "redis", message: error.message }])
      : error;
  }
  if (!isServing) return;
  // Redis can have been unavailable at the start, or have lost its data since.
  client.onUp(() =>
    void checkRedisForms(client, true).catch(({ message }: Error) =>
      report(message, { event: "redis_refused" })
    )
  );
}

/** Opens limits and usage in Redis. The modules for Redis are loaded only when it is configured. */
async function openRedis(target: RedisTarget, { report, isServing, engines }: EngineOptions) {
  const { RedisClient, RedisUnfit } = await import("../storage/redis_client.ts");
  const { RedisLimiter } = await import("../limits/redis/limiter.ts");
  const { RedisUsage } = await import("../usage/redis/usage_store.ts");
  const { RedisHistory } = await import("../usage/redis/history_store.ts");
  const { RedisRuns } = await import("../runs/redis/runs.ts");
  const { RedisAwaitedCalls } = await import("../usage/redis/awaited_calls.ts");
  const client: RedisClient = new RedisClient(target, systemClock, report);
  await client.ready().catch((error) => {
    client.close();
    throw error instanceof RedisUnfit
      ? new ConfigError([{ path: "redis", message: error.message }])
      : error;
  });
  await checkForms(client, isServing, report).catch((error) => {
    client.close();
    throw error;
  });
  const limiter = new RedisLimiter(client, systemClock);
  if (isServing) await limiter.start();
  const usage = new RedisUsage(client, engines.listed, engines.retention);
  const history = new RedisHistory(client);
  const awaitedCalls = new RedisAwaitedCalls<AwaitedCall>(client);
  const runs = new RedisRuns(client, systemClock, engines.runBounds);
  return { client, limiter, usage, history, awaitedCalls, runs };
}

/** Limits, usage and runs in Redis, and the connection to it. */
type SharedStores =
  & Pick<
    Stores,
    "limiter" | "redis" | "place" | "usage" | "history" | "awaitedCalls" | "runs"
  >
  & {
    readonly place: RedisPlace;
    /** Called when the configuration becomes active, with its keys. */
    readonly begin: (keys: OpenKeyStore) => void;
  };

async function openSharedStores(
  config: RedisConfig,
  options: EngineOptions,
): Promise<SharedStores> {
  const target = readRedisFiles(config, options.directory);
  // The name includes the content of its files, so that changed files take effect.
  const name = `redis ${digest(JSON.stringify(target))}`;
  const { client, limiter, ...others } = await options.references.use(
    name,
    () => openRedis(target, options),
    ({ client, limiter, runs }) => {
      runs.close();
      return limiter.close().finally(() => client.close());
    },
  );
  return {
    ...others,
    limiter,
    redis: () => ({ ...client.health, localDecisions: limiter.localDecisions }),
    place: { name, client },
    begin: ({ fleetMemory }) => limiter.remember(fleetMemory, config.gateways),
  };
}

/**
 * Opens the stores of a configuration. Usage and its history are in Redis if it is configured, else
 * at the supervisor of this process, next to the keys, or in memory.
 */
async function openStores(config: Config, options: EngineOptions): Promise<Stores> {
  const { engines } = options;
  const shared = config.redis && await openSharedStores(config.redis, options);
  const keyStore = await openKeyStore(config.keys, { ...options, digest, redis: shared?.place });
  const given = shared ?? engines.remote;
  const usage = given.usage ?? await keyStore.openUsage?.() ?? engines.memoryUsage;
  const history = given.history ?? await keyStore.openHistory?.() ?? engines.memoryHistory;
  return {
    limiter: engines.remote.limiter ?? engines.limiter,
    ...shared,
    keyStore,
    usage,
    history,
    begin: () => shared?.begin(keyStore),
  };
}

/** The open engines of a configuration. */
interface Opened {
  readonly stores: Stores;
  readonly identity: Identity | undefined;
  readonly durable: DurableExchanges | undefined;
  readonly transports: Record<string, Transport>;
  readonly readHeldKey: HeldKeyReader;
}

/** Opens all engines of a configuration, or none. @throws {ConfigError} */
async function openAll(config: Config, options: EngineOptions): Promise<Opened> {
  const { references, directory, isServing } = options;
  try {
    const transports = isServing ? await openTransports(config, directory, references) : {};
    const stores = await openStores(config, options);
    const redis = stores.place;
    const identity = await openIdentity(config, { ...options, digest, redis });
    const durable = await openDurable(config, { ...options, redis });
    const readHeldKey = await openHeldKeyReader(config, options);
    return { stores, identity, durable, transports, readHeldKey };
  } catch (error) {
    await references.release();
    throw error;
  }
}

/** Records the last use of each key. */
function createLastUse(keys: KeyRegistry): ExchangeObserver {
  return {
    settled({ keyId, startedAt }) {
      if (keyId !== undefined && !keyId.startsWith(TOKEN_ID_PREFIX)) keys.used(keyId, startedAt);
    },
  };
}

/** Reports exchanges that failed because of a bug. */
function createBugReporter(report: ReportEvent): ExchangeObserver {
  return {
    settled({ id, outcome, error }) {
      if (outcome !== "failed") return;
      const text = `internal_error in request ${id}: ${describeBug(error)}`;
      report(text, { event: "internal_error", request: id });
    },
  };
}

function toHealth({ stores, identity }: Opened, elsewhere: number): ReturnType<Assembly["health"]> {
  const { redis, keyStore } = stores;
  const own = redis?.();
  return {
    ...(own && { redis: { ...own, localDecisions: own.localDecisions + elsewhere } }),
    ...(keyStore.health && { keys: keyStore.health() }),
    ...(identity && { identity: identity.verifier.health }),
  };
}

/**
 * Creates the configured parts on this runtime.
 *
 * @throws {ConfigError} If a file of keys can't be used
 */
export async function assemble(config: Config, options: AssembleOptions): Promise<Assembly> {
  const engines = options.engines ?? new Engines();
  if (options.engines === undefined) engines.list(config);
  const references = engines.createReferences();
  const opened = await openAll(config, { ...options, engines, references });
  const { stores, identity, durable, transports, readHeldKey } = opened;
  const { keyStore, limiter, redis } = stores;
  const { keys, changes } = keyStore;
  const teams = new TeamDirectory(config.teams, keyStore.teams);
  const usage = engines.meter(stores.usage);
  const history = engines.history(stores.history);
  const parts = {
    transport: engines.transport ??= createTransport(),
    transports,
    readHeldKey,
    digest,
    keys,
    teams,
    identity: identity?.verifier,
    limiter,
    runs: stores.runs ?? engines.remote.runs ?? engines.runs,
    awaitedCalls: stores.awaitedCalls ?? engines.remote.awaitedCalls ?? engines.awaitedCalls,
    durable,
    observers: [
      createLastUse(keys),
      createBugReporter(options.report),
      createRefusalReporter(config, options.report),
      usage,
    ],
  };
  return {
    parts,
    keys,
    teams,
    changes,
    identity,
    limiter,
    usage,
    history,
    health: (elsewhere = 0) => toHealth(opened, elsewhere),
    isReady: () => keyStore.health?.().isReady ?? true,
    redis,
    redisClient: stores.place?.client,
    async begin() {
      engines.list(config);
      stores.begin();
      await usage.moveTo(stores.usage);
      await history.moveTo(stores.history);
    },
    async close() {
      if (options.engines === undefined) await engines.close();
      await references.release();
    },
  };
}

/** Name of a server: the runtime's own, or `node:http`, which Deno also has. */
export type ServerName = "native" | "node";

/**
 * Loads the listener of this runtime. On Deno the default is `node:http`: `Deno.serve` can't close
 * the connection of a caller that does not read, and closes the connection of each request with a
 * body of more than 400 bytes (2.9.5).
 */
export async function resolveServe(
  server: ServerName = runtime === "deno" ? "node" : "native",
): Promise<Serve> {
  if (server === "native" && runtime === "bun") return (await import("./bun.ts")).serve;
  if (server === "native" && runtime === "deno") return (await import("./deno.ts")).serve;
  return (await import("./node.ts")).serve;
}
