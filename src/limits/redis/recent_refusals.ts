/**
 * Subjects that refused an exchange within a second. They will probably refuse the next one too, so
 * the subjects after them are asked later: a key that sends calls in spite of its limit then uses
 * nothing of its team and its provider, not even for a round trip.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import { RecentMap } from "../../exchange/recent_map.ts";
import type { LimitSubject } from "../limiter.ts";

/** Number of subjects that are certainly remembered. */
const KEPT_SUBJECTS = 5000;
/** Time for which a refusal is remembered. Milliseconds. */
const REMEMBERED_MS = 1000;

/** Memory of the subjects that refused. */
export class RecentRefusals {
  readonly #clock: Clock;
  /** The time until which a subject is remembered, by its name. */
  readonly #until = new RecentMap<number>(KEPT_SUBJECTS);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note({ name }: LimitSubject): void {
    this.#until.set(name, this.#clock.monotonic() + REMEMBERED_MS);
  }

  /**
   * Divides subjects into the groups to ask together: all up to the last remembered subject, and the
   * others. Groups without subjects are left out.
   */
  divide(subjects: readonly LimitSubject[]): readonly (readonly LimitSubject[])[] {
    const now = this.#clock.monotonic();
    const length =
      subjects.findLastIndex(({ name }) => (this.#until.get(name) ?? -Infinity) > now) + 1;
    return [subjects.slice(0, length), subjects.slice(length)].filter((group) => group.length > 0);
  }
}
