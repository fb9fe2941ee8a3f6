/**
 * Commands for Redis as values: functions that run one script, read its answer, and report the
 * outcome of a call whose answer did not arrive in time.
 *
 * @module
 */
import type { Buffer } from "node:buffer";
import type { Redis } from "ioredis";
import { RedisFailed } from "./redis_deadline.ts";
import type { RedisScript } from "./redis_script.ts";

/**
 * Outcome of a call that failed: a late answer; or certainly not carried out, because it was not
 * sent or Redis refused it; or unknown, because the connection broke.
 */
export type Late<Answer> =
  | { readonly state: "answered"; readonly answer: Answer }
  | { readonly state: "unsent" }
  | { readonly state: "refused" | "unknown"; readonly cause: unknown };

/** Options of one call. */
export interface CallOptions<Answer> {
  /** Deadline, milliseconds. Default: the deadline of the command. */
  readonly deadlineMs?: number | undefined;
  /** True for an administrator's call, which has its own deadline: see `RedisClient.ask`. */
  readonly isAdministrative?: boolean;
  /** Receives the outcome of a call that has failed, once it is known. */
  readonly late?: (late: Late<Answer>) => void;
}

/** A command: runs a script, and reads its answer. Rejects with {@link RedisFailed}. */
export type RedisCommand<Input, Answer> = (
  input: Input,
  options?: CallOptions<Answer>,
) => Promise<Answer>;

/** Description of a command. */
export interface CommandOptions<Input, Call, Answer> {
  readonly script: RedisScript<Call>;
  /** Makes the call. Runs only once it is certain that the call is sent. */
  readonly write: (input: Input) => Call;
  /** Reads the answer, and throws if it is invalid. */
  readonly read: (answer: unknown, input: Input) => Answer;
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
    read: (answer: unknown) => T,
    deadlineMs?: number,
  ): Promise<T>;
  ask<T>(call: (redis: Redis) => Promise<unknown>, read: (answer: unknown) => T): Promise<T>;
}

/** Makes a command of a connection. */
export function toCommand<Input, Call, Answer>(
  connection: Connection,
  options: CommandOptions<Input, Call, Answer>,
): RedisCommand<Input, Answer> {
  const { script, write, read, isBinary = false } = options;
  const run = connection.script(script.name, script.lua, { isBinary });
  return (input, { deadlineMs = options.deadlineMs, isAdministrative, late } = {}) => {
    const readAnswer = (answer: unknown) => read(answer, input);
    const send = (redis: Redis) => {
      const call = write(input);
      return run(redis, script.keysOf(call), script.argumentsOf(call));
    };
    const answer = isAdministrative
      ? connection.ask(send, readAnswer)
      : connection.run(send, readAnswer, deadlineMs);
    if (late !== undefined) answer.catch((error) => awaitLate(error, readAnswer, late));
    return answer;
  };
}

/** Waits for the outcome of a call that failed. */
export function awaitLate<Answer>(
  error: unknown,
  read: (answer: unknown) => Answer,
  late: (late: Late<Answer>) => void,
): void {
  const sent = error instanceof RedisFailed ? error.late : undefined;
  if (sent === undefined) return late({ state: "unsent" });
  sent.then(read).then(
    (answer) => late({ state: "answered", answer }),
    (cause) => late({ state: mayBeDone(cause) ? "unknown" : "refused", cause }),
  );
}

/** Returns whether the connection broke before the answer arrived. */
function mayBeDone(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false;
  return cause.name === "MaxRetriesPerRequestError" || cause.message === "Connection is closed.";
}
