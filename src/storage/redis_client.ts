/**
 * The connection to Redis (or Valkey). Every call has a deadline. While Redis is down or slow, calls fail at once and
 * probes in the background find out when it is back, so that no caller waits for it twice.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import { Redis, ReplyError } from "ioredis";
import type { Clock } from "../exchange/clock.ts";

/** Deadline of one call. Milliseconds. */
export const REDIS_DEADLINE_MS = 50;
/**
 * Pause before a failing Redis is probed. It is short at first, since most failures are brief, and doubles up to
 * {@link MAX_PAUSE_MS}. Milliseconds.
 */
const FIRST_PAUSE_MS = 20;
const MAX_PAUSE_MS = 250;
/** The longest time for which the start waits for the first connection. Milliseconds. */
const FIRST_CONNECT_MS = 2000;
const MAX_RECONNECT_MS = 1000;
/**
 * The time without an answer after which connections are opened anew: the other end may be gone without closing them.
 * Milliseconds.
 */
const SILENCE_MS = 5000;
/** Minimum interval between two messages that Redis fails. Milliseconds. */
const COMPLAINT_EVERY_MS = 60_000;

const NO_CONNECTION = "no connection";

/** Error for a call that Redis answered too late, not at all, with an error, or with an invalid value. */
export class RedisFailed extends Error {
  override readonly name = "RedisFailed";
  /** The late answer; `undefined` where nothing was sent. Redis may still have carried out the call. */
  readonly late: Promise<unknown> | undefined;

  /**
   * @param message Description of the failure
   * @param details The cause, and the late answer
   */
  constructor(message: string, { cause, late }: { cause?: unknown; late?: Promise<unknown> | undefined } = {}) {
    super(message, { cause });
    this.late = late;
  }
}

/** The health of Redis, for operators. */
export interface RedisHealth {
  readonly isUp: boolean;
  /** Calls that failed since the start. */
  readonly failures: number;
}

/** Returns the first line of an error's message, or its code: errors of sockets may have no message. */
function firstLine(cause: unknown): string {
  if (!(cause instanceof Error)) return "no answer";
  return (cause.message || ("code" in cause ? String(cause.code) : cause.name)).split("\n")[0] ?? "";
}

/** Returns whether an error is an answer of Redis itself. */
function isReply(cause: unknown): boolean {
  return cause instanceof ReplyError;
}

/** A connection to Redis, shared by keys, limits and usage. */
export class RedisClient {
  readonly #redis: Redis;
  readonly #clock: Clock;
  readonly #report: (text: string) => void;
  readonly #subscriber: Redis;
  #failures = 0;
  #isUp = false;
  #isClosed = false;
  /** The number of outages so far. A failed call that began before the latest outage does not start another one. */
  #outages = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #cancelProbe = (): void => {};
  #silentSince: number;
  /** The last error of the connection itself. */
  #fault = NO_CONNECTION;
  #complainedAt = -Infinity;
  #hasComplained = false;

  /**
   * @param url URL of Redis, such as `redis://127.0.0.1:6379`
   * @param clock Source of time
   * @param report Receives a one-line message when Redis fails, at most once a minute, and when it is back
   */
  constructor(url: string, clock: Clock, report: (text: string) => void) {
    this.#clock = clock;
    this.#report = report;
    this.#silentSince = clock.monotonic();
    this.#redis = new Redis(url, {
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      connectTimeout: MAX_RECONNECT_MS,
      // A former primary that another has taken over from: its address leads elsewhere by now.
      reconnectOnError: ({ message }) => message.startsWith("READONLY"),
      retryStrategy: (tries) => Math.min(50 * tries, MAX_RECONNECT_MS),
    });
    // What the library subscribes to by itself after a reconnect fails as an unhandled rejection: that ends a process.
    this.#subscriber = this.#redis.duplicate({ autoResubscribe: false });
    // Every failure reaches the call that meets it; without a listener the connection's own errors would be thrown.
    for (const connection of [this.#redis, this.#subscriber]) {
      connection.on("error", (error) => this.#fault = firstLine(error));
    }
    this.#redis.on("ready", () => {
      this.#fault = NO_CONNECTION;
      this.#probe();
    });
  }

  /** The health of Redis. */
  get health(): RedisHealth {
    return { isUp: this.#isUp, failures: this.#failures };
  }

  /** Waits for the first connection, for a limited time: a gateway starts without Redis too. */
  async ready(): Promise<void> {
    const deadline = this.#clock.monotonic() + FIRST_CONNECT_MS;
    while (!this.#isUp && this.#clock.monotonic() < deadline) {
      await new Promise<void>((resolve) => this.#clock.timer(10, resolve));
    }
    if (!this.#isUp) this.#complain(undefined, false);
  }

  /**
   * Adds a script, to be called through {@link run}.
   *
   * @param name A name for the command
   * @param lua The script
   * @returns A function that calls the script with its keys and arguments
   */
  script(name: string, lua: string): (redis: Redis, keys: string[], args: (string | number)[]) => Promise<unknown> {
    this.#redis.defineCommand(name, { lua });
    return (redis, keys, args) =>
      (redis as unknown as Record<string, (...all: unknown[]) => Promise<unknown>>)[name]?.(
        keys.length,
        ...keys,
        ...args,
      ) ?? Promise.reject(new RedisFailed(name));
  }

  /**
   * Makes one call. During an outage it fails at once.
   *
   * @param call Sends the call
   * @param read Reads the answer; it throws for an invalid one
   * @param deadlineMs Deadline, milliseconds
   * @returns The result of `read`
   * @throws {RedisFailed} After the deadline at the latest
   */
  async run<T>(
    call: (redis: Redis) => Promise<unknown>,
    read: (answer: unknown) => T,
    deadlineMs: number = REDIS_DEADLINE_MS,
  ): Promise<T> {
    if (!this.#isUp) throw new RedisFailed("Redis is left alone until it answers again");
    const outages = this.#outages;
    let late: Promise<unknown> | undefined;
    let isAnswered = false;
    try {
      late = call(this.#redis);
      const answer = await this.#within(late, deadlineMs);
      isAnswered = true;
      return read(answer);
    } catch (cause) {
      // An error or nonsense that Redis answers costs no wait and may concern one key only: the others go on.
      isAnswered ||= isReply(cause);
      if (!isAnswered && outages === this.#outages) this.#leaveAlone();
      this.#complain(cause, isAnswered);
      throw new RedisFailed("Redis did not answer as it should", { cause, late });
    }
  }

  /**
   * Makes an administrator's call, which may take longer and is made during an outage too.
   *
   * @throws {RedisFailed} When there is no answer, an error, or an invalid answer
   */
  async ask<T>(call: (redis: Redis) => Promise<unknown>, read: (answer: unknown) => T): Promise<T> {
    try {
      return read(await this.#within(call(this.#redis), 100 * REDIS_DEADLINE_MS));
    } catch (cause) {
      throw new RedisFailed("Redis did not answer as it should", { cause });
    }
  }

  /**
   * Listens to a channel, also after a reconnect.
   *
   * @param channel Name of the channel
   * @param heard Receives each message
   */
  listen(channel: string, heard: (message: string) => void): void {
    this.#subscriber.on("message", (from: string, message: string) => {
      if (from === channel) heard(message);
    });
    const subscribe = (): void => void this.#subscriber.subscribe(channel).catch(() => {});
    this.#subscriber.on("ready", subscribe);
    if (this.#subscriber.status === "ready") subscribe();
  }

  /** Closes both connections. */
  close(): void {
    this.#isClosed = true;
    this.#cancelProbe();
    this.#redis.disconnect();
    this.#subscriber.disconnect();
  }

  /**
   * Waits for an answer until a deadline. A blocked process must not look like a slow Redis: the deadline is extended
   * by the time for which this process was blocked, at most by its own length. (After such a time, Bun and Deno fire
   * all due timers before they read what has arrived.)
   */
  #within<T>(answer: Promise<T>, ms: number): Promise<T> {
    const started = this.#clock.monotonic();
    return new Promise((resolve, reject) => {
      const fail = () => reject(new RedisFailed(`no answer in ${ms} ms`));
      let cancel = this.#clock.timer(ms, () => {
        const stoodStillMs = this.#clock.monotonic() - started - ms;
        cancel = this.#clock.timer(Math.min(Math.max(1, stoodStillMs), ms), () => setImmediate(fail));
      });
      answer.then(resolve, reject).finally(() => cancel());
    });
  }

  /** Checks whether Redis answers. No caller waits for this. */
  #probe(): void {
    this.#cancelProbe();
    if (this.#isClosed) return;
    this.#within(this.#redis.ping(), REDIS_DEADLINE_MS).then(
      () => this.#succeeded(),
      (cause) => {
        if (isReply(cause)) return this.#succeeded();
        this.#leaveAlone();
        this.#complain(cause, false);
      },
    );
  }

  #succeeded(): void {
    this.#cancelProbe();
    if (this.#isUp) return;
    this.#pauseMs = FIRST_PAUSE_MS;
    this.#isUp = true;
    if (this.#hasComplained) this.#report("Redis answers again");
    this.#hasComplained = false;
  }

  /** Begins an outage: from now on calls fail at once, and probes check whether Redis is back. */
  #leaveAlone(): void {
    if (this.#isClosed) return;
    const now = this.#clock.monotonic();
    if (this.#isUp) this.#silentSince = now;
    this.#isUp = false;
    this.#outages++;
    this.#reconnectIfSilent(now);
    this.#cancelProbe();
    this.#cancelProbe = this.#clock.timer(this.#pauseMs, () => this.#probe());
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
  }

  #reconnectIfSilent(now: number): void {
    const isOpen = this.#redis.status === "ready" || this.#redis.status === "connect";
    if (!isOpen || now - this.#silentSince < SILENCE_MS) return;
    this.#silentSince = now;
    this.#fault = "the connection was silent";
    this.#redis.disconnect(true);
    this.#subscriber.disconnect(true);
  }

  #complain(cause: unknown, isAnswered: boolean): void {
    if (this.#isClosed) return;
    this.#failures++;
    const now = this.#clock.monotonic();
    if (now - this.#complainedAt < COMPLAINT_EVERY_MS) return;
    this.#complainedAt = now;
    this.#hasComplained = !this.#isUp;
    // What the library says of a lost connection is about its settings; the connection itself knows better.
    const isOwn = isAnswered || (cause instanceof RedisFailed && this.#redis.status === "ready");
    this.#report(
      `Redis fails (${isOwn ? firstLine(cause) : this.#fault}): known keys stay good for a while, ` +
        "limits are counted here alone",
    );
  }
}
