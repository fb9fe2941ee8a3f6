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

/** The configuration of Redis, with the text of PEM files instead of their paths. */
export type RedisTarget = RedisConfig;

/** The longest wait for a new connection, or for the next attempt. Milliseconds. */
const MAX_RECONNECT_MS = 1000;
/** Growth of the pause between attempts. Milliseconds. */
const RECONNECT_STEP_MS = 50;
/**
 * Interval at which the nodes of a Cluster are asked for their slots. A call to a moved slot is
 * redirected at once. This interval is for nodes without calls. Milliseconds.
 */
const REFRESH_MS = 10_000;
/**
 * Pause before a call with several keys is repeated if only some keys of its slot have moved.
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
    // If the library resubscribes itself after a reconnect, a failure is an unhandled rejection,
    // which ends the process.
    autoResubscribe: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    connectTimeout: MAX_RECONNECT_MS,
    // A former primary. Its address resolves to another server by now.
    reconnectOnError: ({ message }: Error) => message.startsWith("READONLY"),
    retryStrategy: pauseOf,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(secure !== undefined && { tls: secure }),
  } satisfies RedisOptions;
}

/** Parses URLs that were checked as part of a configuration. @throws {TypeError} For others */
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
 * @returns The connection, which is opened in the background, and reopened after each end
 */
export function connectServer(target: RedisTarget): Redis {
  const { url, sentinel, tls } = target;
  if (sentinel !== undefined) {
    const options = optionsOf(target, tls !== undefined);
    return new GatheringRedis({
      ...options,
      name: sentinel.name,
      sentinels: sentinel.nodes.map(readSentinelNode),
      // Sentinels report a failover before the former primary knows of it. Its later writes are
      // lost.
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

/** A Cluster that checks before a call if the server of the call's first key can be called. */
export class GuardedCluster extends Cluster {
  /** Decides from a server's `host:port`. Not used for calls without keys. */
  guard: ((server: string) => boolean) | undefined;

  override sendCommand(...args: Parameters<Cluster["sendCommand"]>): unknown {
    const [command] = args as [Command & { getSlot(): number | null }];
    const slot = this.guard === undefined ? null : command.getSlot();
    const server = slot === null ? undefined : this.slots[slot]?.[0];
    if (server === undefined || this.guard?.(server) !== false) return super.sendCommand(...args);
    command.reject(new Error("left alone"));
    return command.promise;
  }

  /** The servers with slots, by their `host:port`. */
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
    // A repeated call could count twice, and a caller waits only for the first attempt.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: TRY_AGAIN_MS,
    slotsRefreshTimeout: MAX_RECONNECT_MS,
    slotsRefreshInterval: REFRESH_MS,
  });
}
