/**
 * A clock whose timers cost next to nothing when they are called off, as almost every deadline of an exchange is: five
 * timers of the runtime's own are a tenth of what a plain call costs on Deno (measured).
 *
 * Timers of one duration end in the order in which they began, so one of the runtime's serves them all.
 *
 * @module
 */
import { clearTimeout, setTimeout } from "node:timers";
import { type Clock, systemClock } from "../exchange.ts";

/** Durations for which a timer of the runtime is kept although nothing waits for it. */
const MAX_KEPT = 64;
/** The longest that a runtime's timer takes; a longer one would end at once. Milliseconds. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** One deadline, between those of its duration that began before it and after it. */
interface Deadline {
  /** Monotonic time, milliseconds. */
  readonly at: number;
  readonly fire: () => void;
  before: Deadline | undefined;
  after: Deadline | undefined;
  isOver: boolean;
}

/** The deadlines of one duration. */
interface Queue {
  readonly ms: number;
  first: Deadline | undefined;
  last: Deadline | undefined;
  handle: ReturnType<typeof setTimeout> | undefined;
}

/**
 * A clock with shared timers. Like those of the runtime they never end early; they keep no process alive.
 *
 * @param clock Tells the time
 * @returns The clock
 */
export function createDeadlineClock(clock: Pick<Clock, "now" | "monotonic"> = systemClock): Clock {
  const queues = new Map<number, Queue>();

  function arm(queue: Queue, ms: number): void {
    queue.handle = setTimeout(look, Math.min(Math.max(Math.ceil(ms), 1), MAX_TIMER_MS), queue);
    queue.handle.unref();
  }

  function drop(queue: Queue): void {
    clearTimeout(queue.handle);
    if (queues.get(queue.ms) === queue) queues.delete(queue.ms);
  }

  /** Ends what is due, and waits for the next. */
  function look(queue: Queue): void {
    const now = clock.monotonic();
    try {
      for (let { first } = queue; first !== undefined && first.at <= now; first = queue.first) {
        remove(queue, first);
        first.fire();
      }
    } finally {
      if (queue.first === undefined) drop(queue);
      else arm(queue, queue.first.at - clock.monotonic());
    }
  }

  function remove(queue: Queue, deadline: Deadline): void {
    const { before, after } = deadline;
    if (before === undefined) queue.first = after;
    else before.after = after;
    if (after === undefined) queue.last = before;
    else after.before = before;
    deadline.before = deadline.after = undefined; // a dead one that points at a younger keeps it from dying young
    deadline.isOver = true;
  }

  return {
    now: clock.now,
    monotonic: clock.monotonic,
    timer(ms, fire) {
      let queue = queues.get(ms);
      if (queue === undefined) {
        queues.set(ms, queue = { ms, first: undefined, last: undefined, handle: undefined });
        arm(queue, ms);
      }
      const { last } = queue;
      const deadline: Deadline = { at: clock.monotonic() + ms, fire, before: last, after: undefined, isOver: false };
      if (last === undefined) queue.first = deadline;
      else last.after = deadline;
      queue.last = deadline;
      const own = queue;
      return () => {
        if (deadline.isOver) return;
        remove(own, deadline);
        if (own.first === undefined && queues.size > MAX_KEPT) drop(own);
      };
    },
  };
}
