/**
 * Commands for Redis as values: functions that run one script, read its reply, and report the
 * outcome of a call whose reply did not arrive in time.
 *
 * @module
 */
import type { Buffer } from "node:buffer";
import type { Redis } from "ioredis";
import { RedisFailed } from "./redis_deadline.ts";
import type { RedisScript } from "./redis_script.ts";

/**
 * Outcome of a call that failed: a late reply; or certainly not carried out, because it was not
 * sent or Redis refused it; or unknown, because the connection broke.
 */
export type FailedCallOutcome<Reply> =
  | { readonly state: "replied"; readonly reply: Reply }
  | { readonly state: "unsent" }
  | { readonly state: "refused" | "unknown"; readonly cause: unknown };

/** Options of one call. */
export interface CallOptions<Reply> {
  /** Deadline, milliseconds. Default: the deadline of the command. */
  readonly deadlineMs?: number | undefined;
  /** True for an administrator's call, which has its own deadline: see `RedisClient.ask`. */
  readonly isAdministrative?: boolean;
  /** Receives the outcome of a call that has failed, once it is known. */
  readonly onOutcome?: (outcome: FailedCallOutcome<Reply>) => void;
}

/** A command: runs a script, and reads its reply. Rejects with {@link RedisFailed}. */
export type RedisCommand<Input, Reply> = (
  input: Input,
  options?: CallOptions<Reply>,
) => Promise<Reply>;

/** Description of a command. */
export interface CommandOptions<Input, Call, Reply> {
  readonly script: RedisScript<Call>;
  /** Makes the call. Runs only once it is certain that the call is sent. */
  readonly write: (input: Input) => Call;
  /** Reads the reply, and throws if it is invalid. */
  readonly read: (reply: unknown, input: Input) => Reply;
  /** Deadline, milliseconds. Default: the deadline of the client. */
  readonly deadlineMs?: number | undefined;
  /** True if it answers with bytes that are not text. */
  readonly isBinary?: boolean;
}

/** A connection that commands use. */
interface Connection {
  script(
    name: string,
    lua: string,
    options?: { readonly isBinary?: boolean },
  ): (redis: Redis, keys: string[], args: (string | number | Buffer)[]) => Promise<unknown>;
  run<T>(
    call: (redis: Redis) => Promise<unknown>,
    read: (reply: unknown) => T,
    deadlineMs?: number,
  ): Promise<T>;
  ask<T>(call: (redis: Redis) => Promise<unknown>, read: (reply: unknown) => T): Promise<T>;
}

/** Makes a command of a connection. */
export function toCommand<Input, Call, Reply>(
  connection: Connection,
  options: CommandOptions<Input, Call, Reply>,
): RedisCommand<Input, Reply> {
  const { script, write, read, isBinary = false } = options;
  const run = connection.script(script.name, script.lua, { isBinary });
  return (input, { deadlineMs = options.deadlineMs, isAdministrative, onOutcome } = {}) => {
    const readReply = (reply: unknown) => read(reply, input);
    const send = (redis: Redis) => {
      const call = write(input);
      return run(redis, script.keysOf(call), script.argumentsOf(call));
    };
    const reply = isAdministrative
      ? connection.ask(send, readReply)
      : connection.run(send, readReply, deadlineMs);
    if (onOutcome !== undefined) reply.catch((error) => awaitOutcome(error, readReply, onOutcome));
    return reply;
  };
}

/** Waits for the outcome of a call that failed. */
export function awaitOutcome<Reply>(
  error: unknown,
  read: (reply: unknown) => Reply,
  onOutcome: (outcome: FailedCallOutcome<Reply>) => void,
): void {
  const sent = error instanceof RedisFailed ? error.late : undefined;
  if (sent === undefined) return onOutcome({ state: "unsent" });
  sent.then(read).then(
    (reply) => onOutcome({ state: "replied", reply }),
    (cause) => onOutcome({ state: mayBeDone(cause) ? "unknown" : "refused", cause }),
  );
}

/** Returns whether the connection broke before the reply arrived. */
function mayBeDone(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false;
  return cause.name === "MaxRetriesPerRequestError" || cause.message === "Connection is closed.";
}
