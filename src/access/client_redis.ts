/**
 * The connection to Redis (or Valkey): every call has a deadline, and a Redis that is down or slow is asked again by
 * one call at a time, so that nobody waits for it in a row.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import { Redis } from "ioredis";
import type { Clock } from "../exchange.ts";

/** How long one call may take. Milliseconds. */
export const REDIS_DEADLINE_MS = 50;
/** How long a failing Redis is left alone between two tries: at first, for it may have stumbled, and at most. Milliseconds. */
const FIRST_PAUSE_MS = 20;
const MAX_PAUSE_MS = 250;
/** How long the start waits for the first connection. Milliseconds. */
const FIRST_CONNECT_MS = 2000;
const MAX_RECONNECT_MS = 1000;
/** A connection on which nothing at all is answered for so long is made anew: its other end may be gone. Milliseconds. */
const SILENCE_MS = 10_000;
/** One line at most in so many milliseconds says that Redis fails. */
const COMPLAINT_EVERY_MS = 60_000;

/** Redis did not answer, not in time, or nonsense. */
export class RedisFailed extends Error {
  override readonly name = "RedisFailed";
  /** What it answers after all; `undefined` where nothing was sent. Late is not never: it may have been done. */
  readonly late: Promise<unknown> | undefined;

  /**
   * @param message What happened
   * @param details What is behind it
   */
  constructor(message: string, { cause, late }: { cause?: unknown; late?: Promise<unknown> | undefined } = {}) {
    super(message, { cause });
    this.late = late;
  }
}

/** How Redis does, for operators. */
export interface RedisHealth {
  readonly isUp: boolean;
  /** Calls that failed since the start. */
  readonly failures: number;
}

/** A connection that is shared by keys and limits. */
export class RedisClient {
  readonly #redis: Redis;
  readonly #clock: Clock;
  readonly #report: (text: string) => void;
  readonly #subscriber: Redis;
  #failures = 0;
  #isUp = false;
  #isProbing = false;
  #pausedUntil = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #complainedAt = -Infinity;
  #hasComplained = false;

  /**
   * @param url Such as `redis://127.0.0.1:6379`
   * @param clock Where its times come from
   * @param report Is told in one line when Redis fails, at most once a minute, and when it is back
   */
  constructor(url: string, clock: Clock, report: (text: string) => void) {
    this.#clock = clock;
    this.#report = report;
    this.#redis = new Redis(url, {
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      connectTimeout: MAX_RECONNECT_MS,
      socketTimeout: SILENCE_MS,
      // A former primary that another has taken over from: its address leads elsewhere by now.
      reconnectOnError: ({ message }) => message.startsWith("READONLY"),
      retryStrategy: (tries) => Math.min(50 * tries, MAX_RECONNECT_MS),
    });
    this.#subscriber = this.#redis.duplicate({ enableOfflineQueue: true, maxRetriesPerRequest: null });
    // Every failure reaches the call that meets it; without a listener the connection's own errors would be thrown.
    for (const connection of [this.#redis, this.#subscriber]) connection.on("error", () => {});
  }

  /** How it does. */
  get health(): RedisHealth {
    return { isUp: this.#isUp, failures: this.#failures };
  }

  /** Waits for the first connection, but not for long: a gateway starts without Redis too. */
  async ready(): Promise<void> {
    const deadline = this.#clock.monotonic() + FIRST_CONNECT_MS;
    while (this.#redis.status !== "ready" && this.#clock.monotonic() < deadline) {
      await new Promise<void>((resolve) => this.#clock.timer(10, resolve));
    }
    await this.run((redis) => redis.ping(), String).catch(() => {});
  }

  /**
   * Adds a script, to be called by its name through {@link run}.
   *
   * @param name A name for the command
   * @param lua The script
   * @returns Calls it with its keys and arguments
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
   * Makes one call.
   *
   * @param call What to ask
   * @param read Reads the answer; what it throws counts as nonsense
   * @param deadlineMs How long it may take, milliseconds
   * @returns What was read
   * @throws {RedisFailed} After the deadline at the latest
   */
  async run<T>(
    call: (redis: Redis) => Promise<unknown>,
    read: (answer: unknown) => T,
    deadlineMs: number = REDIS_DEADLINE_MS,
  ): Promise<T> {
    const isPaused = this.#clock.monotonic() < this.#pausedUntil || this.#isProbing;
    if (!this.#isUp && isPaused) throw new RedisFailed("Redis is left alone for a moment");
    const isProbe = this.#isProbing = !this.#isUp;
    let late: Promise<unknown> | undefined;
    let isAnswered = false;
    try {
      late = call(this.#redis);
      const answer = await this.#within(late, deadlineMs);
      isAnswered = true;
      const result = read(answer);
      this.#succeeded();
      return result;
    } catch (cause) {
      // An error or nonsense that Redis answers costs no wait and may concern one key only: the others go on.
      isAnswered ||= cause instanceof Error && cause.name === "ReplyError";
      if (!isAnswered && (this.#isUp || isProbe)) this.#leaveAlone();
      this.#complain(cause);
      throw new RedisFailed("Redis did not answer as it should", { cause, late });
    } finally {
      if (isProbe) this.#isProbing = false;
    }
  }

  /**
   * Makes an administrator's call, which may take longer and is tried whatever happened before.
   *
   * @throws {RedisFailed} When there is no answer, an error, or nonsense
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
   * @param channel Its name
   * @param heard Is given each message
   */
  listen(channel: string, heard: (message: string) => void): void {
    this.#subscriber.on("message", (from: string, message: string) => {
      if (from === channel) heard(message);
    });
    this.#subscriber.subscribe(channel).catch(() => {});
  }

  /** Closes both connections. */
  close(): void {
    this.#redis.disconnect();
    this.#subscriber.disconnect();
  }

  /**
   * The answer within the deadline. A busy process is not a slow Redis: for as long as this one stood still it waits on,
   * up to a second deadline. (After a standstill Bun and Deno fire all that is due before they read what has arrived.)
   */
  #within<T>(answer: Promise<T>, ms: number): Promise<T> {
    const started = this.#clock.monotonic();
    return new Promise((resolve, reject) => {
      const fail = () => reject(new RedisFailed(`no answer in ${ms} ms`));
      const cancel = this.#clock.timer(ms, () => {
        const stoodStillMs = this.#clock.monotonic() - started - ms;
        this.#clock.timer(Math.min(Math.max(1, stoodStillMs), ms), () => setImmediate(fail));
      });
      answer.then(resolve, reject).finally(cancel);
    });
  }

  #succeeded(): void {
    if (this.#isUp) return;
    this.#pauseMs = FIRST_PAUSE_MS;
    this.#isUp = true;
    if (this.#hasComplained) this.#report("Redis answers again");
    this.#hasComplained = false;
  }

  #leaveAlone(): void {
    this.#isUp = false;
    this.#pausedUntil = this.#clock.monotonic() + this.#pauseMs;
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
  }

  #complain(cause: unknown): void {
    this.#failures++;
    const now = this.#clock.monotonic();
    if (now - this.#complainedAt < COMPLAINT_EVERY_MS) return;
    this.#complainedAt = now;
    this.#hasComplained = true;
    const why = cause instanceof Error ? cause.message.split("\n")[0] : "no answer";
    this.#report(`Redis fails (${why}): known keys stay good for a while, limits are counted here alone`);
  }
}
