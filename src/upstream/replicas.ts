/**
 * The replicas of one provider: chooses the replica of the next call, ejects failing replicas, and
 * limits the number of retries. It is a pure state machine: times are passed in.
 *
 * Outlier ejection as Envoy does it (docs: arch_overview/upstream/outlier), with only connections
 * as evidence: an HTTP answer of any status proves that a replica can be reached. A replica to
 * which no connection is possible is ejected at once. A replica whose connections break after a
 * call was sent is ejected after five such failures in a row. A caller can cause these failures
 * (with a request that makes the provider reset), so at most half of the replicas can be ejected
 * because of them. The last replica in service is never ejected, because all callers would lose the
 * provider.
 *
 * @module
 */

/** Consecutive failures that eject; Envoy's default. */
const FAILURES_TO_EJECT = 5;
/** The n-th ejection in a row lasts n times this long, up to the limit. Milliseconds. */
const BASE_EJECTION_MS = 5_000;
const MAX_EJECTION_MS = 300_000;
/**
 * Maximum number of concurrent calls that probe a replica after its ejection. A call older than
 * {@link PROBE_MS} waits for a slow answer and does not count.
 */
const MAX_PROBES = 3;
const PROBE_MS = 5_000;
/** Envoy's default budget: retries are at most a fifth of the calls, plus a few at the start. */
const RETRIES_A_CALL = 0.2;
const MAX_SAVED_RETRIES = 10;
const FIRST_RETRIES = 3;

/** One of several equivalent upstreams. */
export interface Replica {
  /** Base URL, without a slash at its end. */
  readonly url: string;
  /** The same, parsed: once, for all calls. */
  readonly base: URL;
  /** Its path, without a slash at its end. */
  readonly path: string;
  /** Its index, counted from 0. */
  readonly index: number;
}

/** State of one replica. */
export interface ReplicaReport {
  /** Its index, counted from 0. */
  readonly replica: number;
  /** True if it is ejected, or was ejected and has not answered since. */
  readonly isEjected: boolean;
  /** Time for which it still receives no call, milliseconds; 0 also while it is probed. */
  readonly ejectedMs: number;
  /** Ejections since the start. */
  readonly ejections: number;
  /** Failures since its last success. */
  readonly failures: number;
  /** Base URL, without a slash at its end. */
  readonly url: string;
}

interface State extends Replica {
  /** Failures since the last success. */
  failures: number;
  /**
   * True if no connection to it was possible. It is then in service only if there is no other
   * replica.
   */
  isUnreachable: boolean;
  /** Ejections since the start. */
  allEjections: number;
  /** Ejections since the last success. */
  ejections: number;
  /** Monotonic time until which it receives no call; 0 while it is in service. */
  ejectedUntil: number;
  /**
   * Calls to it since its ejection, or during it if no other replica remains, with the time of
   * their start. Monotonic milliseconds.
   */
  readonly probes: Map<Replica, number>;
}

/** The replicas of one provider. */
export class Replicas {
  readonly #states: readonly State[];
  #next = 0;
  #savedRetries = FIRST_RETRIES;

  /** @param urls Base URLs, at least one */
  constructor(urls: readonly string[]) {
    this.#states = urls.map((url, index) => ({
      ...toReplica(url, index),
      failures: 0,
      isUnreachable: false,
      allEjections: 0,
      ejections: 0,
      ejectedUntil: 0,
      probes: new Map(),
    }));
  }

  /**
   * Chooses the replica for a call, in turn among the replicas in service. A replica whose ejection
   * has ended is preferred, for a few calls at a time. If no replica in service can be reached,
   * ejections are ignored (Envoy's panic mode). Report the outcome with {@link succeeded},
   * {@link failed} or {@link undecided}.
   *
   * @param now Monotonic milliseconds
   */
  pick(now: number): Replica {
    this.#savedRetries = Math.min(this.#savedRetries + RETRIES_A_CALL, MAX_SAVED_RETRIES);
    const chosen = this.#choose(now);
    if (chosen === undefined) throw new TypeError("Cannot choose a replica: there is none");
    return chosen;
  }

  /**
   * Chooses another replica for the one retry of a call, if the budget has room for it.
   *
   * @param now Monotonic milliseconds
   */
  pickAgain(now: number, failed: Replica): Replica | undefined {
    if (this.#savedRetries < 1) return undefined;
    const chosen = this.#choose(now, failed);
    if (chosen !== undefined) this.#savedRetries--;
    return chosen;
  }

  #choose(now: number, except?: Replica): Replica | undefined {
    const count = this.#states.length;
    let next: State | undefined;
    let inService: State | undefined;
    let isPanic = true;
    for (let step = 0; step < count; step++) {
      const state = this.#states[(this.#next + step) % count];
      if (state === undefined || state.index === except?.index) continue;
      next ??= state;
      if (state.ejectedUntil === 0) {
        inService ??= state;
        if (!state.isUnreachable) isPanic = false;
      } else if (state.ejectedUntil <= now && mayProbe(state, now)) return probe(state, now);
    }
    const chosen = isPanic ? next : inService;
    if (chosen === undefined) return undefined;
    this.#next = (chosen.index + 1) % count;
    return chosen.ejectedUntil === 0 ? chosen : probe(chosen, now);
  }

  /** Records that a replica answered. */
  succeeded(replica: Replica): void {
    const state = this.#stateOf(replica);
    // The call was sent before the ejection.
    if (state.ejectedUntil > 0 && !state.probes.has(replica)) return;
    state.failures = state.ejections = state.ejectedUntil = 0;
    state.isUnreachable = false;
    state.probes.clear();
  }

  /**
   * Records a failed connection.
   *
   * @param now Monotonic milliseconds
   * @param wasConnected Whether there was a connection. Without one, the first failure ejects the
   * replica, because another replica can run the call
   */
  failed(replica: Replica, now: number, wasConnected = true): void {
    const state = this.#stateOf(replica);
    state.failures++;
    if (state.ejectedUntil > 0) {
      // Only a probe shows its current state. If several probes fail together, only the first
      // extends the ejection.
      if (!state.probes.delete(replica) || state.ejectedUntil > now) return;
    } else {
      state.isUnreachable = !wasConnected;
      if (wasConnected && state.failures < FAILURES_TO_EJECT) return;
      if (this.#countInService() - 1 < (wasConnected ? this.#states.length / 2 : 1)) return;
    }
    state.probes.clear();
    state.ejections++;
    state.allEjections++;
    state.ejectedUntil = now + Math.min(BASE_EJECTION_MS * state.ejections, MAX_EJECTION_MS);
  }

  /**
   * Records a call that says nothing about its replica, such as one whose caller left.
   */
  undecided(replica: Replica): void {
    this.#stateOf(replica).probes.delete(replica);
  }

  #countInService(): number {
    return this.#states.filter(({ ejectedUntil }) => ejectedUntil === 0).length;
  }

  /**
   * Reports the state of all replicas.
   *
   * @param now Monotonic milliseconds
   */
  report(now: number): ReplicaReport[] {
    return this.#states.map((state) => ({
      replica: state.index,
      url: state.url,
      isEjected: state.ejectedUntil > 0,
      ejectedMs: state.ejectedUntil > 0 ? Math.max(0, state.ejectedUntil - now) : 0,
      ejections: state.allEjections,
      failures: state.failures,
    }));
  }

  #stateOf({ index, url }: Replica): State {
    const state = this.#states[index];
    if (state?.url !== url) throw new TypeError("Cannot report on a replica of another provider");
    return state;
  }
}

function toReplica(url: string, index: number): Replica {
  const base = new URL(url);
  return { url, base, path: base.pathname.replace(/\/$/, ""), index };
}

/**
 * Returns whether another call can probe a replica after its ejection: a few at a time, not
 * counting slow ones.
 */
function mayProbe({ probes }: State, now: number): boolean {
  let young = 0;
  for (const startedAt of probes.values()) if (now - startedAt < PROBE_MS) young++;
  return young < MAX_PROBES;
}

/**
 * Returns an ejected replica as a new object, which distinguishes this probe from earlier calls.
 */
function probe(state: State, now: number): Replica {
  const call: Replica = { url: state.url, base: state.base, path: state.path, index: state.index };
  state.probes.set(call, now);
  return call;
}
