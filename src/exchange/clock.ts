/**
 * Port: time. The clock of the runtime, which runs many timers on one timer of the runtime. Nearly
 * every deadline of an exchange is cancelled long before it is due, and setting and clearing timers
 * of the runtime would cost more than all other bookkeeping of such an exchange.
 *
 * @module
 */

/**
 * Time, as a part: tests pass their own instead of patching globals.
 *
 * @example A clock that changes only when a test moves it
 * ```ts
 * import { type Clock, createGateway, parseConfig } from "sallyport";
 *
 * let now = 0;
 * const due = new Map<() => void, number>();
 * const clock: Clock = {
 *   now: () => now,
 *   monotonic: () => now,
 *   timer(ms, fire) {
 *     due.set(fire, now + ms);
 *     return () => void due.delete(fire);
 *   },
 * };
 * function pass(ms: number): void {
 *   now += ms;
 *   for (const [fire, at] of due) if (at <= now && due.delete(fire)) fire();
 * }
 * const keys = [{ id: "me", key: "a-key-of-your-own" }];
 * const gateway = createGateway(parseConfig({ providers: { a: { upstream: "openai" } }, keys }), { clock });
 * pass(1000);
 * await gateway.close();
 * ```
 */
export interface Clock {
  /** Wall clock, milliseconds since 1970: for displayed times and for the expiry of keys. */
  now(): number;
  /** Monotonic milliseconds, for durations and deadlines. */
  monotonic(): number;
  /**
   * Calls `fire` once after `ms` milliseconds.
   *
   * @param options `isBackground` lets the process exit before the timer fires if nothing else runs
   * @returns Cancels it; safe to call at any time, also again
   */
  timer(ms: number, fire: () => void, options?: { readonly isBackground?: boolean }): () => void;
}

/**
 * The longest time that timers of the runtimes accept (HTML, `setTimeout`: a signed 32-bit
 * integer). Milliseconds.
 */
const MAX_MS = 2 ** 31 - 1;
/**
 * The number of lines up to which empty lines are kept for reuse. A configuration has few different
 * deadlines.
 */
const MAX_LENGTHS = 64;

const nothing = (): void => {};

interface Waiting {
  readonly dueAt: number;
  fire: () => void;
  before: Waiting | undefined;
  after: Waiting | undefined;
  isOver: boolean;
}

/** Timers of one length: they become due in the order in which they were set. */
interface Line {
  readonly ms: number;
  first: Waiting | undefined;
  last: Waiting | undefined;
}

/** The runtime's time and timer, as {@link Timers} uses them. */
export interface TimerRuntime {
  /** Monotonic milliseconds. */
  monotonic(): number;
  /** Calls `fire` once after about `ms` milliseconds. @returns Cancels it */
  set(ms: number, fire: () => void): () => void;
}

/**
 * Timers that never fire early, and that keep the process alive exactly while one of them waits.
 */
export class Timers {
  readonly #runtime: TimerRuntime;
  readonly #lines = new Map<number, Line>();
  #waiting = 0;
  /** Time at which the runtime's timer fires; Infinity while there is none. */
  #wakeAt = Infinity;
  #clear = (): void => {};

  /** @param runtime Time, and the single timer */
  constructor(runtime: TimerRuntime) {
    this.#runtime = runtime;
  }

  /**
   * Sets a timer that calls back once.
   *
   * @param ms The shortest time until then, milliseconds
   * @param fire The function that is called
   * @returns Cancels it; safe to call at any time, also again
   */
  set(ms: number, fire: () => void): () => void {
    const now = this.#runtime.monotonic();
    const line = this.#lines.get(ms) ?? this.#addLine(ms);
    const dueAt = now + Math.max(1, ms); // like the runtimes: never in the same turn
    const waiting: Waiting = { dueAt, fire, before: line.last, after: undefined, isOver: false };
    if (line.last === undefined) line.first = waiting;
    else line.last.after = waiting;
    line.last = waiting;
    if (dueAt < this.#wakeAt) this.#sleep(dueAt, now);
    this.#waiting++;
    return () => {
      if (!waiting.isOver) this.#remove(line, waiting);
    };
  }

  #addLine(ms: number): Line {
    const line: Line = { ms, first: undefined, last: undefined };
    this.#lines.set(ms, line);
    return line;
  }

  #remove(line: Line, waiting: Waiting): void {
    waiting.isOver = true;
    const { before, after } = waiting;
    if (before === undefined) line.first = after;
    else before.after = after;
    if (after === undefined) line.last = before;
    else after.before = before;
    if (line.first === undefined && this.#lines.size > MAX_LENGTHS) this.#lines.delete(line.ms);
    // Unlinked, because a cancelled timer in V8's old generation would keep all later timers alive
    // in young collections.
    waiting.before = waiting.after = undefined;
    waiting.fire = nothing;
    if (--this.#waiting > 0) return; // it fires early, and checks
    this.#clear();
    this.#wakeAt = Infinity;
  }

  #sleep(until: number, now: number): void {
    this.#clear();
    this.#wakeAt = until;
    this.#clear = this.#runtime.set(
      Math.min(Math.max(1, Math.ceil(until - now)), MAX_MS),
      () => this.#wake(),
    );
  }

  #wake(): void {
    this.#wakeAt = Infinity;
    const now = this.#runtime.monotonic();
    try {
      for (const line of this.#lines.values()) {
        while (line.first !== undefined && line.first.dueAt <= now) {
          const { fire } = line.first;
          this.#remove(line, line.first);
          fire();
        }
      }
    } finally {
      // Runs also if one of them threw, because the others are due too.
      let next = Infinity;
      for (const { first } of this.#lines.values()) next = Math.min(next, first?.dueAt ?? Infinity);
      if (next < this.#wakeAt) this.#sleep(next, now);
    }
  }
}

/**
 * Lets the process exit while this timer waits. Timers are numbers in Deno, and objects in Node and
 * Bun.
 */
function unref(handle: unknown): void {
  const { Deno: deno } = globalThis as { Deno?: { unrefTimer(id: unknown): void } };
  if (typeof handle === "number") deno?.unrefTimer(handle);
  else (handle as { unref?(): void }).unref?.();
}

function createTimers(isBackground: boolean): Timers {
  return new Timers({
    monotonic: () => performance.now(),
    set(ms, fire) {
      const handle = setTimeout(fire, ms);
      if (isBackground) unref(handle);
      return () => clearTimeout(handle);
    },
  });
}

const timers = createTimers(false);
const backgroundTimers = createTimers(true);

/** The clock of the runtime. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  timer: (ms, fire, options) => (options?.isBackground ? backgroundTimers : timers).set(ms, fire),
};
