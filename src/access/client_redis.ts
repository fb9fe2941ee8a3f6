/**
 * The connection to Redis (or Valkey): every call has a deadline, and a Redis that is down or slow is left alone and
 * asked again beside, so that nobody waits for it twice.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import { Redis, ReplyError } from "ioredis";
import type { Clock } from "../exchange.ts";

/** How long one call may take. Milliseconds. */
export const REDIS_DEADLINE_MS = 50;
/** How long a failing Redis is left alone between two tries. Milliseconds. */
const PAUSE_MS = 250;
/** A connection that was silent for so long is replaced: its other end may be gone without a word. Milliseconds. */
const SILENT_MS = 5000;
/** How long the start waits for the first connection. Milliseconds. */
const FIRST_CONNECT_MS = 2000;
const MAX_RECONNECT_MS = 1000;
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

/** What an error says in one line; errors of sockets may have no more than a code. */
function firstLine(cause: unknown): string {
  if (!(cause instanceof Error)) return "no answer";
  return (cause.message || ("code" in cause ? String(cause.code) : cause.name)).split("\n")[0] ?? "";
}

/** Whether Redis itself answered this error. Not by its name: in the minified file that is another one. */
function isReply(cause: unknown): boolean {
  return cause instanceof ReplyError;
}

/** A connection that is shared by keys and limits. */
export class RedisClient {
  readonly #redis: Redis;
  readonly #clock: Clock;
  readonly #report: (text: string) => void;
  readonly #subscriber: Redis;
  #failures = 0;
  #isUp = false;
  #isClosed = false;
  #cancelProbe = (): void => {};
  #silentSince: number;
  /** What the connection itself said last. */
  #fault = "no connection";
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
    this.#subscriber = this.#redis.duplicate({ enableOfflineQueue: true, maxRetriesPerRequest: null });
    // Every failure reaches the call that meets it; without a listener the connection's own errors would be thrown.
    for (const connection of [this.#redis, this.#subscriber]) {
      connection.on("error", (error) => this.#fault = firstLine(error));
    }
    this.#redis.on("ready", () => this.#probe());
  }

  /** How it does. */
  get health(): RedisHealth {
    return { isUp: this.#isUp, failures: this.#failures };
  }

  /** Waits for the first connection, but not for long: a gateway starts without Redis too. */
  async ready(): Promise<void> {
    const deadline = this.#clock.monotonic() + FIRST_CONNECT_MS;
    while (!this.#isUp && this.#clock.monotonic() < deadline) {
      await new Promise<void>((resolve) => this.#clock.timer(10, resolve));
    }
    if (!this.#isUp) this.#failed(undefined, false);
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
   * Makes one call. While Redis is left alone it fails at once.
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
    if (!this.#isUp) throw new RedisFailed("Redis is left alone until it answers again");
    let late: Promise<unknown> | undefined;
    let hasAnswered = false;
    try {
      late = call(this.#redis);
      const answer = await this.#within(late, deadlineMs);
      hasAnswered = true;
      return read(answer);
    } catch (cause) {
      this.#failed(cause, hasAnswered || isReply(cause));
      throw new RedisFailed("Redis did not answer as it should", { cause, late });
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
    this.#isClosed = true;
    this.#cancelProbe();
    this.#redis.disconnect();
    this.#subscriber.disconnect();
  }

  /** The answer within the deadline. What has arrived meanwhile is read first: a busy process is not a slow Redis. */
  #within<T>(answer: Promise<T>, ms: number): Promise<T> {
    return new Promise((resolve, reject) => {
      const cancel = this.#clock.timer(ms, () => setImmediate(() => reject(new RedisFailed(`no answer in ${ms} ms`))));
      answer.then(resolve, reject).finally(cancel);
    });
  }

  /** Asks whether Redis answers. No caller waits for this. */
  #probe(): void {
    this.#cancelProbe();
    if (this.#isClosed) return;
    this.#within(this.#redis.ping(), REDIS_DEADLINE_MS).then(
      () => this.#succeeded(),
      (cause) => isReply(cause) ? this.#succeeded() : this.#failed(cause, false),
    );
  }

  #succeeded(): void {
    this.#cancelProbe();
    if (this.#isUp) return;
    this.#isUp = true;
    if (this.#hasComplained) this.#report("Redis answers again");
    this.#hasComplained = false;
  }

  /** An error that Redis answers costs no wait and may concern one key only: then the others go on. */
  #failed(cause: unknown, isAnswer: boolean): void {
    if (this.#isClosed) return;
    this.#failures++;
    const now = this.#clock.monotonic();
    if (!isAnswer) {
      if (this.#isUp) this.#silentSince = now;
      this.#isUp = false;
      this.#reconnectIfSilent(now);
      this.#cancelProbe();
      this.#cancelProbe = this.#clock.timer(PAUSE_MS, () => this.#probe());
    }
    if (now - this.#complainedAt < COMPLAINT_EVERY_MS) return;
    this.#complainedAt = now;
    this.#hasComplained = !this.#isUp;
    const why = this.#redis.status === "ready" ? firstLine(cause) : this.#fault;
    this.#report(`Redis fails (${why}): known keys stay good for a while, limits are counted here alone`);
  }

  #reconnectIfSilent(now: number): void {
    const isOpen = this.#redis.status === "ready" || this.#redis.status === "connect";
    if (!isOpen || now - this.#silentSince < SILENT_MS) return;
    this.#silentSince = now;
    this.#fault = "the connection was silent";
    this.#redis.disconnect(true);
    this.#subscriber.disconnect(true);
  }
}
