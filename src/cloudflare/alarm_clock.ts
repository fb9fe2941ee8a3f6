/**
 * The clock of a Durable Object. Its longer timers are alarms, which fire even after the object was
 * removed from memory. When the object is created again, it sets the same timers from its stored
 * data.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";

/**
 * The longest timer of the runtime that is used. The object stays in memory while it has such a
 * timer. Milliseconds.
 */
const SHORT_MS = 3000;

/** The clock. */
export class AlarmClock implements Clock {
  readonly #base: Clock;
  readonly #setAlarm: (at: number) => void;
  readonly #waiting = new Set<{ readonly at: number; readonly fire: () => void }>();
  #alarmAt = Infinity;

  /** @param setAlarm Sets the object's only alarm. Milliseconds since 1970 */
  constructor(base: Clock, setAlarm: (at: number) => void) {
    this.#base = base;
    this.#setAlarm = setAlarm;
  }

  now(): number {
    return this.#base.now();
  }

  /** The wall clock, which continues in another process. */
  monotonic(): number {
    return this.#base.now();
  }

  timer(ms: number, fire: () => void): () => void {
    if (ms <= SHORT_MS) return this.#base.timer(ms, fire);
    const timer = { at: this.now() + ms, fire };
    this.#waiting.add(timer);
    this.#ask(timer.at);
    return () => void this.#waiting.delete(timer);
  }

  /**
   * Fires the timers that are due. Called at the alarm, and before each message, because an alarm
   * can be late.
   *
   * @param isAlarm True at the alarm, which is then no longer set, even if it was early
   */
  ring(isAlarm = false): void {
    const now = this.now();
    for (const timer of Array.from(this.#waiting).sort((one, other) => one.at - other.at)) {
      if (timer.at <= now && this.#waiting.delete(timer)) timer.fire();
    }
    if (isAlarm || this.#alarmAt <= now) this.#alarmAt = Infinity;
    if (this.#waiting.size > 0) this.#ask(Math.min(...Array.from(this.#waiting, ({ at }) => at)));
  }

  /** Records that the alarm is no longer set. It was deleted together with all stored data. */
  alarmDeleted(): void {
    this.#alarmAt = Infinity;
  }

  #ask(at: number): void {
    if (this.#alarmAt <= at) return;
    this.#alarmAt = at;
    this.#setAlarm(at);
  }
}
