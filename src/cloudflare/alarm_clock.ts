/**
 * The clock of a Durable Object. Its longer timers are alarms, which go off also after the object
 * left the memory: an object that is created again sets the same timers, from what it has stored.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";

/**
 * The longest time for which a timer of the runtime is used: an object with one can't leave the
 * memory. Milliseconds.
 */
const SHORT_MS = 3000;

/** The clock. */
export class AlarmClock implements Clock {
  readonly #base: Clock;
  readonly #setAlarm: (at: number) => void;
  readonly #waiting = new Set<{ readonly at: number; readonly fire: () => void }>();
  #alarmAt = Infinity;

  /**
   * @param setAlarm Sets the alarm, of which there is one. Milliseconds since 1970
   */
  constructor(base: Clock, setAlarm: (at: number) => void) {
    this.#base = base;
    this.#setAlarm = setAlarm;
  }

  now(): number {
    return this.#base.now();
  }

  /** The wall clock: it goes on where another process takes over. */
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
   * Fires the timers that are due: at the alarm, and before each message, since an alarm may be
   * late.
   *
   * @param isAlarm True at the alarm, which then is set no more, however early it came
   */
  ring(isAlarm = false): void {
    const now = this.now();
    for (const timer of Array.from(this.#waiting).sort((one, other) => one.at - other.at)) {
      if (timer.at <= now && this.#waiting.delete(timer)) timer.fire();
    }
    if (isAlarm || this.#alarmAt <= now) this.#alarmAt = Infinity;
    if (this.#waiting.size > 0) this.#ask(Math.min(...Array.from(this.#waiting, ({ at }) => at)));
  }

  /** Takes note that the alarm is not set any more: it went with all that was stored. */
  alarmDeleted(): void {
    this.#alarmAt = Infinity;
  }

  #ask(at: number): void {
    if (this.#alarmAt <= at) return;
    this.#alarmAt = at;
    this.#setAlarm(at);
  }
}
