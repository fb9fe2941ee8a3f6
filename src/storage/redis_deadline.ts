/**
 * Deadlines of calls to Redis, and the errors of calls that fail.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import { ReplyError } from "ioredis";
import type { Clock } from "../exchange/clock.ts";

/**
 * Error for a call that Redis answered too late, not at all, with an error, or with an invalid
 * value.
 */
export class RedisFailed extends Error {
  override readonly name = "RedisFailed";
  /**
   * The late reply; `undefined` if nothing was sent. Redis can have executed the call
   * nevertheless.
   */
  readonly late: Promise<unknown> | undefined;

  constructor(
    message: string,
    { cause, late }: { cause?: unknown; late?: Promise<unknown> | undefined } = {},
  ) {
    super(message, { cause });
    this.late = late;
  }
}

/**
 * Returns the first line of an error's message, or its code, because errors of sockets can lack a
 * message.
 */
export function firstLine(cause: unknown): string {
  if (!(cause instanceof Error)) return "no answer";
  return (cause.message || ("code" in cause ? String(cause.code) : cause.name)).split("\n")[0] ??
    "";
}

/** Returns whether an error is a reply of Redis. */
export function isReply(cause: unknown): boolean {
  return cause instanceof ReplyError;
}

/**
 * Waits for a reply until a deadline. A blocked process must not look like a slow Redis, so the
 * deadline is extended by the time for which this process was blocked, at most by its own length.
 * (After such a time, Bun and Deno fire all due timers before they read arrived bytes.)
 *
 * @throws {RedisFailed} Without a reply in time
 */
export function within<T>(clock: Clock, reply: Promise<T>, ms: number): Promise<T> {
  const started = clock.monotonic();
  return new Promise((resolve, reject) => {
    const fail = () => reject(new RedisFailed(`no answer in ${ms} ms`));
    let cancel = clock.timer(ms, () => {
      const stoodStillMs = clock.monotonic() - started - ms;
      cancel = clock.timer(Math.min(Math.max(1, stoodStillMs), ms), () => setImmediate(fail));
    });
    reply.then(resolve, reject).finally(() => cancel());
  });
}
