/**
 * Connections to Redis, as ioredis makes them: to one server, to the primary that Sentinels name,
 * or to a Cluster.
 *
 * @module
 */
import type { ConnectionOptions } from "node:tls";
import { Cluster, type Command, type Redis, type RedisOptions } from "ioredis";
import {
  readRedisUrl,
  readSentinelNode,
  type RedisAddress,
  type RedisConfig,
} from "../config/redis.ts";
import { GatheringRedis } from "./redis_gather.ts";
import { jitter } from "./redis_health.ts";

/** Redis as it is configured, with the text of PEM files in place of their paths. */
export type RedisTarget = RedisConfig;

/**
 * The longest time for which a new connection, or the next attempt at one, is waited for.
 * Milliseconds.
 */
const MAX_RECONNECT_MS = 1000;
/** Growth of the pause between attempts. Milliseconds. */
const RECONNECT_STEP_MS = 50;
/**
 * Interval at which the nodes of a Cluster are asked which of them has which slots. A call that
 * meets a moved slot finds its new place at once; this is for nodes that no call meets.
 * Milliseconds.
 */
const REFRESH_MS = 10_000;
/**
 * Pause before a call is repeated that needs several keys of a slot of which a part has moved.
 * Milliseconds.
 */
const TRY_AGAIN_MS = 10;

function pauseOf(tries: number): number {
  return jitter(Math.min(RECONNECT_STEP_MS * tries, MAX_RECONNECT_MS));
}

/** Options of every connection. */
function optionsOf({ tls, username, password }: RedisTarget, isTls: boolean) {
  const secure: ConnectionOptions | undefined = isTls ? { ...tls } : undefined;
  return {
    enableOfflineQueue: false,
    // What the library subscribes to by itself after a reconnect fails as an unhandled rejection:
    // that ends a process.
    autoResubscribe: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    connectTimeout: MAX_RECONNECT_MS,
    // A former primary that another has taken over from: its address leads elsewhere by now.
    reconnectOnError: ({ message }: Error) => message.startsWith("READONLY"),
    retryStrategy: pauseOf,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(secure !== undefined && { tls: secure }),
  } satisfies RedisOptions;
}

/** Takes URLs apart that were checked as part of a configuration. @throws {TypeError} For others */
function addressOf(url: string): RedisAddress {
  const address = readRedisUrl(url);
  if (typeof address === "string") throw new TypeError(`Cannot use the URL of Redis: ${address}`);
  return address;
}

/** Drops members that are `undefined`. */
function given<T extends object>(members: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== undefined),
  ) as never;
}

/**
 * Connects to one server, or to the primary that Sentinels name.
 *
 * @returns The connection, which is made in the background and again whenever it ends
 */
export function connectServer(target: RedisTarget): Redis {
  const { url, sentinel, tls } = target;
  if (sentinel !== undefined) {
    const options = optionsOf(target, tls !== undefined);
    return new GatheringRedis({
      ...options,
      name: sentinel.name,
      sentinels: sentinel.nodes.map(readSentinelNode),
      // Sentinels report a failover before the former primary knows of it: what it counts from
      // then on is lost.
      failoverDetector: true,
      sentinelRetryStrategy: pauseOf,
      sentinelCommandTimeout: MAX_RECONNECT_MS,
      ...given({ sentinelUsername: sentinel.username, sentinelPassword: sentinel.password }),
      ...(tls !== undefined && { enableTLSForSentinelMode: true, sentinelTLS: { ...tls } }),
    });
  }
  const { isTls, database, ...address } = addressOf(url ?? "");
  return new GatheringRedis({
    ...optionsOf(target, isTls),
    ...given(address),
    ...given({ db: database }),
  });
}

/**
 * A Cluster that asks before a call whether the server may be called that has the call's first key.
 */
export class GuardedCluster extends Cluster {
  /** Decides by a server's `host:port`. Not asked for calls without keys. */
  guard: ((server: string) => boolean) | undefined;

  override sendCommand(...args: Parameters<Cluster["sendCommand"]>): unknown {
    const [command] = args as [Command & { getSlot(): number | null }];
    const slot = this.guard === undefined ? null : command.getSlot();
    const server = slot === null ? undefined : this.slots[slot]?.[0];
    if (server === undefined || this.guard?.(server) !== false) return super.sendCommand(...args);
    command.reject(new Error("left alone"));
    return command.promise;
  }

  /** The servers that have slots, by their `host:port`. */
  primaries(): Map<string, Redis> {
    return new Map(
      this.nodes("master").map((node) => [`${node.options.host}:${node.options.port}`, node]),
    );
  }
}

/**
 * Connects to a Cluster.
 *
 * @returns The Cluster, whose connections are made when they are needed
 */
export function connectCluster(target: RedisTarget): GuardedCluster {
  const nodes = (target.cluster ?? []).map(addressOf);
  const { retryStrategy, enableOfflineQueue, ...redisOptions } = optionsOf(
    target,
    nodes[0]?.isTls === true,
  );
  return new GuardedCluster(nodes.map(({ host, port }) => given({ host, port })), {
    redisOptions,
    enableOfflineQueue,
    clusterRetryStrategy: retryStrategy,
    // A call that is sent again could count twice; and a caller waits no longer than for the
    // first try.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: TRY_AGAIN_MS,
    slotsRefreshTimeout: MAX_RECONNECT_MS,
    slotsRefreshInterval: REFRESH_MS,
  });
}
