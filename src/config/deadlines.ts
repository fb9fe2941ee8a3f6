/**
 * The deadlines of a call to a provider.
 *
 * @module
 */
import * as v from "valibot";
import { about, duration, strictObject } from "./schema.ts";
import { parseDuration } from "./units.ts";

/** Deadlines of a call. Milliseconds from when it is sent, unless stated otherwise. */
export interface DeadlinesConfig {
  /** Deadline for the connection. */
  readonly connectMs: number;
  /** Deadline for the response's header. */
  readonly firstByteMs: number;
  /** Deadline for the first event of a stream, counted from its header. */
  readonly firstEventMs: number;
  /**
   * The longest silence in an answer. After the first event of a stream, comments do not end it.
   */
  readonly idleMs: number;
  /** Deadline for the complete response. */
  readonly totalMs: number;
}

/** Deadlines of a call as written in the configuration, such as `30s`. */
export type DeadlinesInput = {
  readonly [name in "connect" | "firstByte" | "firstEvent" | "idle" | "total"]?: string | undefined;
};

/** The defaults. OpenAI's client libraries wait ten minutes for a header. */
const DEADLINES = {
  connect: "5s",
  firstByte: "10m",
  firstEvent: "10m",
  idle: "2m",
  total: "30m",
} as const;

/** Deadlines by their names. Milliseconds. */
type DeadlineSet = Readonly<Record<keyof typeof DEADLINES, number>>;

/**
 * Checks a deadline against its bound. The default is never a mistake, because a shorter bound
 * replaces it.
 */
function checkBound(name: keyof typeof DEADLINES, bound: keyof typeof DEADLINES) {
  const isBounded = (set: DeadlineSet) =>
    set[name] <= set[bound] || set[name] === parseDuration(DEADLINES[name]);
  return v.forward(v.check<DeadlineSet, string>(isBounded, `expected at most ${bound}`), [name]);
}

/** @internal The setting. */
export const DeadlinesSchema: v.GenericSchema<DeadlinesInput, DeadlinesConfig> = v.pipe(
  strictObject({
    connect: about(duration(DEADLINES.connect), "Time to connect to the provider"),
    firstByte: about(duration(DEADLINES.firstByte), "Time until the answer of the provider begins"),
    firstEvent: about(
      duration(DEADLINES.firstEvent),
      "Time from the beginning of a stream to its first event. Comments are no events",
    ),
    idle: about(
      duration(DEADLINES.idle),
      "The longest silence in an answer. Comments end a silence only before the first event of a stream",
    ),
    total: about(
      duration(DEADLINES.total),
      "Time until the answer is complete. Deadlines that are left out are never longer than this",
    ),
  }, "expected an object"),
  checkBound("connect", "firstByte"),
  checkBound("firstByte", "total"),
  checkBound("firstEvent", "total"),
  checkBound("idle", "total"),
  v.transform((set) => ({
    connectMs: Math.min(set.connect, set.firstByte, set.total),
    firstByteMs: Math.min(set.firstByte, set.total),
    firstEventMs: Math.min(set.firstEvent, set.total),
    idleMs: Math.min(set.idle, set.total),
    totalMs: set.total,
  })),
);
