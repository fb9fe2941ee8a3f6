/**
 * The connection to Redis (or Valkey). Every call has a deadline. While a server is down or slow,
 * calls to it fail at once, and background probes detect its return, so that no caller waits for it
 * twice.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import type { Buffer } from "node:buffer";
import type { Redis } from "ioredis";
import type { Clock } from "../exchange/clock.ts";
import { type CommandOptions, type RedisCommand, toCommand } from "./redis_command.ts";
import type { RedisTarget } from "./redis_connect.ts";
import { firstLine, isReply, RedisFailed, within } from "./redis_deadline.ts";
import { RedisUnfit } from "./redis_fitness.ts";
import type { ServerHealth } from "./redis_health.ts";
import { ClusterServers, OneServer, type RedisServers } from "./redis_servers.ts";

export { RedisFailed, RedisUnfit };
export type { RedisTarget };

/** Default deadline of one call. Milliseconds. */
export const REDIS_DEADLINE_MS = 50;
/** Deadline of an administrator's call. Milliseconds. */
const ASK_MS = 5000;
/** The longest time that the start waits for the first connection. Milliseconds. */
const FIRST_CONNECT_MS = 2000;
/** Minimum interval between two messages about failures of Redis. Milliseconds. */
const COMPLAINT_EVERY_MS = 60_000;

/** The health of Redis, for operators. */
export interface RedisHealth {
  /** True if all servers are up. */
  readonly isUp: boolean;
  /** Calls that failed since the start. */
  readonly failures: number;
}

/** A connection to Redis, shared by keys, limits and usage. */
export class RedisClient {
  /** True for a Cluster, which requires all keys of a call in one slot. */
  readonly isCluster: boolean;
  /** The defined scripts, by name. */
  readonly #scripts = new Map<string, string>();
  readonly #servers: RedisServers;
  readonly #clock: Clock;
  readonly #report: ReportEvent;
  readonly #timeoutMs: number;
  #failures = 0;
  #isClosed = false;
  #complainedAt = -Infinity;
  #hasComplained = false;
  #warnedAt = -Infinity;
  readonly #upListeners: (() => void)[] = [];

  /**
   * @param target The configuration of Redis, or its URL, such as `redis://127.0.0.1:6379`
   * @param report Receives a one-line message when Redis fails, at most once a minute, and when it
   * is back
   */
  constructor(target: string | RedisTarget, clock: Clock, report: ReportEvent) {
    const full = typeof target === "string"
      ? { url: target, timeoutMs: REDIS_DEADLINE_MS }
      : target;
    this.#clock = clock;
    this.#report = report;
    this.#timeoutMs = full.timeoutMs;
    this.isCluster = full.cluster !== undefined;
    const Servers = this.isCluster ? ClusterServers : OneServer;
    this.#servers = new Servers(full, clock, (cause, server) => this.#changed(cause, server));
  }

  /** The health of Redis. */
  get health(): RedisHealth {
    return { isUp: this.#servers.isUp, failures: this.#failures };
  }

  /**
   * Changes when another server has become the primary, or the server has restarted. It can then
   * lack the latest writes. For a Cluster, it changes only with the set of primaries.
   */
  get generation(): number {
    return this.#servers.generation;
  }

  /**
   * Waits for the first connection, for a limited time, because a gateway can also start without
   * Redis.
   *
   * @throws {RedisUnfit} If the server replies, but cannot be used with this configuration
   */
  async ready(): Promise<void> {
    const servers = this.#servers;
    const deadline = this.#clock.monotonic() + FIRST_CONNECT_MS;
    const isWaiting = () => !servers.isUp && servers.unfit?.isFinal !== true;
    while (isWaiting() && this.#clock.monotonic() < deadline) {
      await new Promise<void>((resolve) => this.#clock.timer(10, resolve));
    }
    if (servers.isUp) return;
    if (servers.unfit !== undefined) throw servers.unfit;
    this.#failures++;
    this.#complain(servers.describe());
  }

  /** Returns a command: a function that runs a script and reads its reply. */
  command<Input, Call, Reply>(
    options: CommandOptions<Input, Call, Reply>,
  ): RedisCommand<Input, Reply> {
    return toCommand(this, options);
  }

  /**
   * Adds a script, which is called through {@link run}.
   *
   * @param options `isBinary` if it answers with bytes that are not text. All texts of the reply
   * are then buffers
   * @returns A function that calls the script with its keys, which must be in one slot of a
   * Cluster, and its arguments
   */
  script(
    name: string,
    lua: string,
    { isBinary = false }: { readonly isBinary?: boolean } = {},
  ): (redis: Redis, keys: string[], args: (string | number | Buffer)[]) => Promise<unknown> {
    if ((this.#scripts.get(name) ?? lua) !== lua) throw new Error(`Two scripts are named ${name}`);
    this.#scripts.set(name, lua);
    this.#servers.redis.defineCommand(name, { lua });
    const command = isBinary ? `${name}Buffer` : name;
    return (redis, keys, args) =>
      (redis as unknown as Record<string, (...all: unknown[]) => Promise<unknown>>)[command]?.(
        keys.length,
        ...keys,
        ...args,
      ) ?? Promise.reject(new RedisFailed(name));
  }

  /**
   * Makes one call. During an outage of the server that has its keys, it fails at once.
   *
   * @param read Reads the reply, and throws if it is invalid
   * @param deadlineMs Deadline, milliseconds. Default: `redis.timeout` of the configuration
   * @throws {RedisFailed} After the deadline at the latest
   */
  async run<T>(
    call: (redis: Redis) => Promise<unknown>,
    read: (reply: unknown) => T,
    deadlineMs: number = this.#timeoutMs,
  ): Promise<T> {
    const sent = this.#servers.send(call);
    if (sent === undefined) throw new RedisFailed("Redis is left alone until it answers again");
    const server = this.#servers.routed;
    const { replies = 0, outages = 0 } = server ?? {};
    let isAnswered = false;
    try {
      const reply = await within(this.#clock, sent, deadlineMs);
      isAnswered = true;
      server?.answered();
      return read(reply);
    } catch (cause) {
      this.#failures++;
      // An error or an invalid reply of Redis costs no wait and can concern a single key, so other
      // calls continue.
      if (isAnswered || isReply(cause)) {
        if (!isAnswered) server?.answered();
        this.#complain(firstLine(cause));
      } else if (cause instanceof RedisFailed) {
        server?.missed(replies, outages);
        if (server !== undefined) this.#awaitLate(sent, server, deadlineMs);
        this.#complain(server?.describe());
      } else {
        if (outages === server?.outages) server.leaveAlone();
        this.#complain(this.#servers.fault);
      }
      throw new RedisFailed("Redis did not answer as it should", { cause, late: sent });
    }
  }

  /**
   * Makes an administrator's call, which has a longer deadline and is also made during an outage.
   *
   * @throws {RedisFailed} If there is no reply, an error, or an invalid reply
   */
  async ask<T>(call: (redis: Redis) => Promise<unknown>, read: (reply: unknown) => T): Promise<T> {
    try {
      return read(await within(this.#clock, call(this.#servers.redis), ASK_MS));
    } catch (cause) {
      throw new RedisFailed("Redis did not answer as it should", { cause });
    }
  }

  /** Subscribes to a channel, also after a reconnect. */
  listen(channel: string, onMessage: (message: string) => void): void {
    const { subscriber, subscribeOn } = this.#servers;
    subscriber.on("message", (from: string, message: string) => {
      if (from === channel) onMessage(message);
    });
    const subscribe = (): void => void subscriber.subscribe(channel).catch(() => {});
    for (const event of new Set(["ready", subscribeOn])) subscriber.on(event, subscribe);
    if (subscriber.status === "ready") subscribe();
  }

  /** Calls a listener after each outage, when a server is up again. */
  onUp(listener: () => void): void {
    this.#upListeners.push(listener);
  }

  /** Reports a refusal of Redis to the operator, at most once a minute. */
  warn(text: string): void {
    const now = this.#clock.monotonic();
    if (this.#isClosed || now - this.#warnedAt < COMPLAINT_EVERY_MS) return;
    this.#warnedAt = now;
    this.#report(text, { event: "redis_refused" });
  }

  /** Closes all connections. */
  close(): void {
    this.#isClosed = true;
    this.#servers.close();
  }

  /** Waits for a late reply, which distinguishes a slow server from a silent one. */
  #awaitLate(sent: Promise<unknown>, server: ServerHealth, deadlineMs: number): void {
    const deadline = this.#clock.monotonic();
    const answered = () => {
      server.answeredLate(deadlineMs + this.#clock.monotonic() - deadline);
      this.#complain(server.describe());
    };
    sent.then(answered, (cause) => {
      if (isReply(cause)) answered();
    });
  }

  #changed(cause: unknown, server: ServerHealth | undefined): void {
    if (this.#isClosed) return;
    if (cause !== undefined) {
      this.#failures++;
      if (cause instanceof RedisUnfit) return this.#complain(cause.message);
      return this.#complain(
        cause instanceof RedisFailed ? server?.describe() : this.#servers.fault,
      );
    }
    for (const listener of this.#upListeners) listener();
    if (this.#hasComplained && this.#servers.isUp) {
      this.#report("Redis answers again", { event: "redis_recovered" });
      this.#hasComplained = false;
    }
  }

  /** Reports to the operator. `why` is `undefined` while the reason is not known yet. */
  #complain(why: string | undefined): void {
    const now = this.#clock.monotonic();
    const isTooSoon = now - this.#complainedAt < COMPLAINT_EVERY_MS;
    if (this.#isClosed || why === undefined || isTooSoon) return;
    this.#complainedAt = now;
    this.#hasComplained = !this.#servers.isUp;
    const advice = why.startsWith("slow")
      ? `; redis.timeout is ${this.#timeoutMs} ms: raise it for a long way`
      : "";
    this.#report(
      `Redis fails (${why}${advice}): known keys stay valid for a while, ` +
        "limits are counted here alone",
      { event: "redis_failed", reason: why },
    );
  }
}
