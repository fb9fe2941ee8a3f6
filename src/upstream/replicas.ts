/**
 * The replicas of one provider: which one takes the next call, which one is given a pause, and how many calls may be
 * made twice. A pure state machine: times are passed in.
 *
 * Outlier ejection as Envoy does it (docs: arch_overview/upstream/outlier): consecutive failures eject, each further
 * ejection lasts longer, and afterwards one call at a time probes. A replica that can't even be connected to goes at
 * once, as long as there is another.
 *
 * @module
 */

/** Consecutive failures that eject; Envoy's default. */
const FAILURES_TO_EJECT = 5;
/** The n-th ejection in a row lasts n times this, up to the limit. Milliseconds. */
const BASE_EJECTION_MS = 5_000;
const MAX_EJECTION_MS = 300_000;
/** Envoy's default budget: retries are at most a fifth of the calls, with a few to begin with. */
const RETRIES_A_CALL = 0.2;
const MAX_SAVED_RETRIES = 10;
const FIRST_RETRIES = 3;

/** One upstream of several equal ones. */
export interface Replica {
  /** Base URL, without a slash at its end. */
  readonly url: string;
  /** Its place among the others, counted from 0. */
  readonly index: number;
}

/** How one replica does. */
export interface ReplicaReport {
  /** Its place among the others, counted from 0. */
  readonly replica: number;
  /** Whether it is given a pause, or was and has not answered since. */
  readonly isEjected: boolean;
  /** How long it still gets no call, milliseconds; 0 also when one call at a time probes it. */
  readonly ejectedMs: number;
  /** Pauses since the start. */
  readonly ejections: number;
  /** Failures since its last success. */
  readonly failures: number;
  /** Base URL, without a slash at its end. */
  readonly url: string;
}

interface State extends Replica {
  failures: number;
  /** Ejections since the start. */
  allEjections: number;
  /** Ejections since the last success. */
  ejections: number;
  /** Monotonic time until which it gets no call; 0 when it is in service. */
  ejectedUntil: number;
  /** Whether the one call that probes it after an ejection is under way. */
  isProbing: boolean;
}

/** The replicas of one provider. */
export class Replicas {
  readonly #states: readonly State[];
  #next = 0;
  #savedRetries = FIRST_RETRIES;

  /** @param urls Base URLs, at least one */
  constructor(urls: readonly string[]) {
    this.#states = urls.map((url, index) => ({
      url,
      index,
      failures: 0,
      allEjections: 0,
      ejections: 0,
      ejectedUntil: 0,
      isProbing: false,
    }));
  }

  /**
   * Chooses the replica for a call, in turn among those in service; one whose ejection is over comes first, for one
   * call at a time. Report the outcome with {@link succeeded}, {@link failed} or {@link forgotten}.
   *
   * @param now Monotonic milliseconds
   * @returns The replica, or `undefined` when all are ejected
   */
  pick(now: number): Replica | undefined {
    this.#savedRetries = Math.min(this.#savedRetries + RETRIES_A_CALL, MAX_SAVED_RETRIES);
    return this.#choose(now);
  }

  /**
   * Chooses another replica for the one retry of a call, if the budget has room for it.
   *
   * @param now Monotonic milliseconds
   * @param failed The one that has just failed this call
   * @returns The replica, or `undefined`
   */
  pickAgain(now: number, failed: Replica): Replica | undefined {
    if (this.#savedRetries < 1) return undefined;
    const chosen = this.#choose(now, failed);
    if (chosen !== undefined) this.#savedRetries--;
    return chosen;
  }

  #choose(now: number, except?: Replica): Replica | undefined {
    const count = this.#states.length;
    let chosen: State | undefined;
    for (let step = 0; step < count; step++) {
      const state = this.#states[(this.#next + step) % count];
      if (state === undefined || state === except || state.isProbing) continue;
      if (state.ejectedUntil === 0) chosen ??= state;
      else if (state.ejectedUntil <= now) {
        state.isProbing = true;
        return state;
      }
    }
    if (chosen !== undefined) this.#next = (this.#states.indexOf(chosen) + 1) % count;
    return chosen;
  }

  /** @param replica It answered */
  succeeded(replica: Replica): void {
    const state = this.#stateOf(replica);
    if (state.ejectedUntil > 0 && !state.isProbing) return; // a call from before the ejection
    state.failures = state.ejections = state.ejectedUntil = 0;
    state.isProbing = false;
  }

  /**
   * @param replica It gave no answer, or one that says that nobody stands behind it
   * @param now Monotonic milliseconds
   * @param wasConnected Whether there was a connection. Without one, the first failure ejects where another replica is
   *   in service: it takes the calls over without anybody noticing
   */
  failed(replica: Replica, now: number, wasConnected = true): void {
    const state = this.#stateOf(replica);
    state.failures++;
    const hasOther = this.#states.some((each) => each !== state && each.ejectedUntil === 0);
    const limit = !wasConnected && hasOther ? 1 : FAILURES_TO_EJECT;
    if (!state.isProbing && (state.ejectedUntil > 0 || state.failures < limit)) return;
    state.isProbing = false;
    state.ejections++;
    state.allEjections++;
    state.ejectedUntil = now + Math.min(BASE_EJECTION_MS * state.ejections, MAX_EJECTION_MS);
  }

  /** @param replica The call ended for a reason that says nothing about it, such as a caller that left */
  forgotten(replica: Replica): void {
    this.#stateOf(replica).isProbing = false;
  }

  /**
   * How all of them do.
   *
   * @param now Monotonic milliseconds
   */
  report(now: number): ReplicaReport[] {
    return this.#states.map(({ index, url, failures, ejectedUntil, allEjections }) => ({
      replica: index,
      url,
      isEjected: ejectedUntil > 0,
      ejectedMs: ejectedUntil > 0 ? Math.max(0, ejectedUntil - now) : 0,
      ejections: allEjections,
      failures,
    }));
  }

  #stateOf(replica: Replica): State {
    const state = this.#states.find((each) => each === replica);
    if (state === undefined) throw new TypeError("Cannot report on a replica of another provider");
    return state;
  }
}
