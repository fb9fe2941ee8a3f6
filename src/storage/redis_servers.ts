/**
 * The servers of a connection to Redis, with the health of each: one server, which operators or
 * Sentinels can replace with another one, or the servers of a Cluster.
 *
 * @module
 */
import type { Redis } from "ioredis";
import type { Clock } from "../exchange/clock.ts";
import {
  connectCluster,
  connectServer,
  type GuardedCluster,
  type RedisTarget,
} from "./redis_connect.ts";
import { firstLine } from "./redis_deadline.ts";
import { RedisUnfit } from "./redis_fitness.ts";
import { jitter, ServerHealth } from "./redis_health.ts";
import { Prober } from "./redis_prober.ts";

/**
 * Interval at which a server is asked for its role, because a former primary can keep its
 * connections and still answer reads. Milliseconds.
 */
const ROLE_EVERY_MS = 1000;
/** Minimum interval between two requests for the slots of the nodes of a Cluster. Milliseconds. */
const REFRESH_EVERY_MS = 1000;
const CLOSED = "no connection";

/**
 * Called at each failed probe and each lost connection, and without a cause when a server is up
 * again.
 */
export type ServerChanged = (cause: unknown, server: ServerHealth | undefined) => void;

/** The servers of a connection. */
export interface RedisServers {
  /** Sends commands. A Cluster has the same commands as a server. */
  readonly redis: Redis;
  /** Receives messages. */
  readonly subscriber: Redis;
  /** Events of the subscriber at which the channels must be subscribed. */
  readonly subscribeOn: "ready" | "refresh";
  /** True if all servers are up. */
  readonly isUp: boolean;
  /** The last error of the connection itself. */
  readonly fault: string;
  /**
   * Changes when another server has become the primary, or the server has restarted. It can then
   * lack the latest writes. For a Cluster, it changes only with the set of primaries.
   */
  readonly generation: number;
  /** Describes the failure of the servers. */
  describe(): string;
  /** The reason why the servers cannot be used with this configuration. */
  readonly unfit: RedisUnfit | undefined;
  /** The server of the last call of {@link send}, if it is known. */
  readonly routed: ServerHealth | undefined;
  /**
   * Makes a call, unless its server is down.
   *
   * @returns The reply; `undefined` if nothing was sent
   */
  send(call: (redis: Redis) => Promise<unknown>): Promise<unknown> | undefined;
  close(): void;
}

/** Pause before reconnecting a connection that the library has given up. Milliseconds. */
const CONNECT_AGAIN_MS = 50;

/** One server: the server of a URL, or the primary that Sentinels name. */
export class OneServer implements RedisServers {
  readonly redis: Redis;
  readonly subscriber: Redis;
  readonly subscribeOn = "ready";
  readonly routed: ServerHealth;
  readonly #prober: Prober;
  readonly #clock: Clock;
  #fault = CLOSED;
  #isClosed = false;
  #cancelRole = (): void => {};

  constructor(target: RedisTarget, clock: Clock, changed: ServerChanged) {
    this.#clock = clock;
    this.#prober = new Prober(target, clock);
    const redis = this.redis = connectServer(target);
    this.subscriber = redis.duplicate();
    const health: ServerHealth = this.routed = new ServerHealth({
      clock,
      isUp: false,
      probe: () => this.#prober.probe(redis, health),
      reopen: () => this.#reopen("the connection was silent"),
      changed: (cause) => changed(cause, health),
    });
    // Every failure reaches its call. Without a listener, the connection's own errors would be
    // thrown.
    for (const connection of [redis, this.subscriber]) {
      connection.on("error", (error) => this.#fault = firstLine(error));
      // The library stops if a Sentinel reports a failover while it searches for the primary.
      connection.on("end", () => this.#connectAgain(connection));
    }
    redis.on("ready", () => {
      this.#fault = CLOSED;
      this.#prober.forget(redis);
      health.probe();
    });
    redis.on("close", () => {
      if (!health.isUp || this.#isClosed) return;
      health.leaveAlone();
      changed(new Error(CLOSED), health);
    });
    this.#watchRole();
  }

  get isUp(): boolean {
    return this.routed.isUp;
  }

  get fault(): string {
    return this.#fault;
  }

  get generation(): number {
    return this.#prober.changes;
  }

  get unfit(): RedisUnfit | undefined {
    return this.#prober.unfit;
  }

  describe(): string {
    return (this.redis.status === "ready" ? this.routed.describe() : undefined) ?? this.#fault;
  }

  send(call: (redis: Redis) => Promise<unknown>): Promise<unknown> | undefined {
    return this.routed.isUp ? call(this.redis) : undefined;
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelRole();
    this.routed.close();
    this.redis.disconnect();
    this.subscriber.disconnect();
  }

  #reopen(why: string): void {
    if (this.redis.status !== "ready" && this.redis.status !== "connect") return;
    this.#fault = why;
    this.redis.disconnect(true);
    this.subscriber.disconnect(true);
  }

  #connectAgain(connection: Redis): void {
    if (this.#isClosed) return;
    this.#clock.timer(CONNECT_AGAIN_MS, () => {
      if (!this.#isClosed) connection.connect().catch(() => {});
    });
  }

  #watchRole(): void {
    if (this.#isClosed) return;
    this.#cancelRole = this.#clock.timer(jitter(ROLE_EVERY_MS), () => {
      const role = this.isUp ? this.redis.role() : Promise.resolve([]);
      // The user can lack the permission for this command. The first write then shows the role.
      role.then(([name]) => {
        if (name === "slave") this.#reopen("the server has become a replica");
      }, () => {}).finally(() => this.#watchRole());
    });
  }
}

/**
 * The servers of a Cluster. Each has its own health, so that the others continue while one of them
 * fails.
 */
export class ClusterServers implements RedisServers {
  readonly redis: Redis;
  readonly subscriber: Redis;
  readonly subscribeOn = "refresh";
  readonly #cluster: GuardedCluster;
  readonly #prober: Prober;
  readonly #clock: Clock;
  readonly #changed: ServerChanged;
  readonly #servers = new Map<string, ServerHealth>();
  #routed: ServerHealth | undefined;
  #isLeftAlone = false;
  #fault = CLOSED;
  #refreshedAt = -Infinity;
  #primaries = "";
  generation = 0;

  constructor(target: RedisTarget, clock: Clock, changed: ServerChanged) {
    this.#clock = clock;
    this.#changed = changed;
    this.#prober = new Prober(target, clock);
    const cluster = this.#cluster = connectCluster(target);
    this.redis = this.subscriber = cluster as unknown as Redis; // the same commands, other types
    cluster.on("error", (error) => this.#note(error));
    cluster.on("node error", (error) => this.#note(error));
    cluster.on("ready", () => {
      this.#fault = CLOSED;
      for (const name of cluster.primaries().keys()) this.#serverOf(name, false).probe();
    });
    cluster.on("-node", ({ options }: Redis) => {
      const server = this.#servers.get(`${options.host}:${options.port}`);
      if (server?.isUp === true) server.leaveAlone();
    });
    cluster.on("close", () => changed(new Error(CLOSED), undefined));
    cluster.on("refresh", () => this.#forgetFormer());
  }

  get isUp(): boolean {
    return this.#cluster.status === "ready" && this.#servers.size > 0 &&
      Array.from(this.#servers.values()).every(({ isUp }) => isUp);
  }

  get fault(): string {
    return this.#fault;
  }

  get unfit(): RedisUnfit | undefined {
    return this.#prober.unfit;
  }

  get routed(): ServerHealth | undefined {
    return this.#routed;
  }

  describe(): string {
    const descriptions = Array.from(this.#servers.values(), (server) => server.describe());
    return descriptions.find((description) => description !== undefined) ?? this.#fault;
  }

  send(call: (redis: Redis) => Promise<unknown>): Promise<unknown> | undefined {
    if (this.#cluster.status !== "ready") return undefined;
    this.#routed = undefined;
    this.#isLeftAlone = false;
    this.#cluster.guard = this.#guard;
    let reply: Promise<unknown>;
    try {
      reply = call(this.redis);
    } finally {
      this.#cluster.guard = undefined;
    }
    if (!this.#isLeftAlone) return reply;
    reply.catch(() => {});
    return undefined;
  }

  close(): void {
    for (const server of this.#servers.values()) server.close();
    this.#cluster.disconnect();
  }

  readonly #guard = (name: string): boolean => {
    this.#routed = this.#serverOf(name, true);
    this.#isLeftAlone ||= !this.#routed.isUp;
    return this.#routed.isUp;
  };

  #note(error: unknown): void {
    // If all nodes fail, the library's own message contains no cause.
    const cause = error instanceof Error && "lastNodeError" in error
      ? error.lastNodeError ?? error
      : error;
    this.#fault = firstLine(cause);
    if (/cluster support disabled/i.test(this.#fault)) {
      this.#prober.unfit = new RedisUnfit(
        "this server is no node of a Cluster: configure redis.url",
      );
    }
  }

  #serverOf(name: string, isUp: boolean): ServerHealth {
    let server = this.#servers.get(name);
    if (server !== undefined) return server;
    server = new ServerHealth({
      clock: this.#clock,
      isUp,
      probe: () => this.#probe(name),
      reopen: () => this.#cluster.primaries().get(name)?.disconnect(),
      changed: (cause) => {
        if (cause !== undefined) this.#refresh();
        this.#changed(cause, this.#servers.get(name));
      },
    });
    this.#servers.set(name, server);
    return server;
  }

  async #probe(name: string): Promise<void> {
    const node = this.#cluster.primaries().get(name);
    const server = this.#servers.get(name);
    if (node === undefined || server === undefined) throw new Error(`no connection to ${name}`);
    await this.#prober.probe(node, server);
  }

  /** Requests the slots of the nodes, because another node can have become a primary. */
  #refresh(): void {
    const now = this.#clock.monotonic();
    if (this.#cluster.status !== "ready" || now - this.#refreshedAt < REFRESH_EVERY_MS) return;
    this.#refreshedAt = now;
    this.#cluster.refreshSlotsCache(() => {});
  }

  /** Forgets servers that have no more slots. */
  #forgetFormer(): void {
    const named = new Set(this.#cluster.slots.map((nodes) => nodes[0]));
    const primaries = Array.from(named).sort().join();
    if (primaries !== this.#primaries) this.generation++;
    this.#primaries = primaries;
    for (const [name, server] of this.#servers) {
      if (named.has(name)) continue;
      server.close();
      this.#servers.delete(name);
    }
    if (this.isUp) this.#changed(undefined, undefined);
  }
}
