/**
 * Runs in the memory of a process.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { countBody, isTooOften } from "./repeats.ts";
import {
  ancestorsOf,
  assertParent,
  assertRoom,
  beginCall,
  type Chain,
  createRun,
  endCall,
  isRunStopped,
  joinParent,
  keptWith,
  type KeyRuns,
  type OpenCall,
  Refused,
  type Run,
  type StoredRun,
  toStored,
} from "./run_chain.ts";
import {
  MAX_ANCESTORS,
  MIN_UNUSED_MS,
  narrower,
  type RefusedRun,
  reservedInRun,
  type RunCall,
  type RunCorrection,
  type RunLease,
  type RunRegistry,
  type RunReservation,
  type RunStatus,
  toRunError,
} from "./run_registry.ts";

/** A run that a call counts in, and the money that it has reserved there. */
export interface CountedRun {
  readonly id: string;
  readonly reserved: number;
}

/** Lease in memory. */
export interface MemoryRunLease extends RunLease {
  readonly counted: readonly CountedRun[];
  /** Counts the call as open no longer. What it has reserved stays charged. */
  abandon(): void;
}

/** Receives the changes of runs, to store them. */
export interface RunStorage {
  put(keyId: string, run: StoredRun): void;
  delete(keyId: string, id: string): void;
}

/** Number of keys that each call examines, to forget those without runs. */
const SWEPT_AT_ONCE = 2;

/** Runs in memory. */
export class MemoryRuns implements RunRegistry {
  readonly #keys = new Map<string, KeyRuns>();
  readonly #clock: Pick<Clock, "now">;
  readonly #storage: RunStorage | undefined;
  #sweep = this.#keys.entries();
  /** The idle time of the last call, which the configuration can change. Milliseconds. */
  #idleMs: number | undefined;

  /** @param storage Receives changes. If left out, runs last as long as this object */
  constructor(clock: Pick<Clock, "now">, storage?: RunStorage) {
    this.#clock = clock;
    this.#storage = storage;
  }

  /** Number of keys with runs. */
  get size(): number {
    return this.#keys.size;
  }

  /** Restores a stored run. Runs are restored in the order of their last use. */
  restore(keyId: string, run: StoredRun): void {
    this.#runsOf(keyId).set(run.id, { ...run, open: new Set() });
  }

  admit(call: RunCall, onStopped: () => void): MemoryRunLease {
    const admitted = this.decide(call, onStopped);
    if ("counted" in admitted) return admitted;
    throw toRunError(admitted, call);
  }

  /** Admits a call as {@link admit} does, or returns its refusal. */
  decide(call: RunCall, onStopped: () => void): MemoryRunLease | RefusedRun {
    const { keyId, reservation, body } = call;
    const now = this.#clock.now();
    this.#idleMs = call.bounds.idleMs;
    this.#forgetOthers(now);
    const runs = this.#runsOf(keyId);
    this.#forgetIdle(keyId, runs, now);
    try {
      const chain = this.#open(runs, call, now);
      const [own] = chain;
      const repeats = body && countBody(own, body);
      if (repeats !== undefined) this.#storage?.put(keyId, toStored(own));
      assertRoom(chain, reservation);
      if (body && repeats && !reservation.isFree && isTooOften(body, repeats)) {
        throw new Refused("repeats", false, repeats);
      }
      return { ...this.#count(keyId, chain, reservation, { onStopped, openIn: [] }), repeats };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return error;
    }
  }

  correct({ keyId, id, change }: RunCorrection): void {
    this.settle(
      keyId,
      this.#chainOf(keyId, id).map((run) => ({ id: run.id, reserved: 0 })),
      change,
    );
  }

  list(keyId: string | undefined, limit: number): Promise<readonly RunStatus[]> {
    const now = this.#clock.now();
    const keys = keyId === undefined ? [...this.#keys.keys()] : [keyId];
    const all = keys.flatMap((key) => {
      const runs: KeyRuns = this.#keys.get(key) ?? new Map();
      this.#forgetIdle(key, runs, now);
      return Array.from(runs.values(), (run) => toStatus(key, runs, run)).reverse();
    });
    all.sort((one, other) => other.usedAt - one.usedAt);
    return Promise.resolve(all.slice(0, limit));
  }

  stop(keyId: string, id: string): Promise<boolean> {
    const now = this.#clock.now();
    const runs: KeyRuns = this.#keys.get(keyId) ?? new Map();
    this.#forgetIdle(keyId, runs, now);
    const run = runs.get(id);
    if (run === undefined) return Promise.resolve(false);
    run.isStopped = true;
    for (const used of [run, ...ancestorsOf(runs, run)]) this.#use(keyId, runs, used, now);
    for (const call of Array.from(run.open)) call.onStopped();
    return Promise.resolve(true);
  }

  /**
   * Replaces reserved money by used money, in runs that still exist.
   *
   * @param isUndone True if the call was not made
   */
  settle(keyId: string, counted: readonly CountedRun[], spend: number, isUndone = false): void {
    for (const { id, reserved } of counted) {
      const run = this.#keys.get(keyId)?.get(id);
      if (run === undefined) continue;
      run.reserved = Math.max(0, run.reserved - reserved);
      run.spent = Math.max(0, run.spent + spend);
      if (isUndone) run.called = Math.max(0, run.called - 1);
      this.#storage?.put(keyId, toStored(run));
    }
  }

  /**
   * Counts a call as open in its run and in the runs above it, without reserving anything.
   *
   * @returns A function that ends it
   */
  keepOpen(keyId: string, ids: readonly string[], onStopped: () => void): () => void {
    const call: OpenCall = { onStopped, openIn: [] };
    for (const run of new Set(ids.flatMap((id) => this.#chainOf(keyId, id)))) beginCall(call, run);
    return () => endCall(call);
  }

  /** Returns whether one of these runs, or a run above it, was stopped. */
  isStopped(keyId: string, ids: readonly string[]): boolean {
    return ids.some((id) => this.#chainOf(keyId, id).some((run) => run.isStopped));
  }

  /**
   * Forgets idle runs of all keys.
   *
   * @returns The latest time at which a run can be forgotten; 0 if there is none
   */
  forgetIdle(now: number): number {
    let next = 0;
    for (const [keyId, runs] of this.#keys) {
      this.#forgetIdle(keyId, runs, now);
      for (const run of runs.values()) next = Math.max(next, this.#expiryOf(run));
    }
    return next;
  }

  #runsOf(keyId: string): KeyRuns {
    let runs = this.#keys.get(keyId);
    if (runs === undefined) this.#keys.set(keyId, runs = new Map());
    return runs;
  }

  /** Opens or narrows a run. Returns it, followed by the runs above it. */
  #open(runs: KeyRuns, { keyId, run: stated, bounds, defaults }: RunCall, now: number): Chain {
    const { id, parent, limits } = stated;
    if (parent !== undefined) assertParent(runs, id, parent);
    const run = runs.get(id) ?? createRun(id, now);
    const isJoining = parent !== undefined && run.parent === undefined;
    const above = parent === undefined || runs.has(parent)
      ? ancestorsOf(runs, { parent: parent ?? run.parent })
      : [createRun(parent, now, defaults)];
    const chain: Chain = [run, ...above];
    if (above.length > MAX_ANCESTORS) throw new Refused("depth");
    this.#makeRoom(keyId, runs, chain, bounds.maxPerKey, now);
    if (isJoining) joinParent(run, parent, above);
    run.budget = narrower(run.budget, limits.budget);
    run.calls = narrower(run.calls, limits.calls);
    for (const used of chain) this.#use(keyId, runs, used, now);
    return chain;
  }

  /** Returns the time at which a run is idle. */
  #expiryOf({ usedAt, expiresAt }: Run): number {
    return this.#idleMs === undefined ? expiresAt : usedAt + this.#idleMs;
  }

  /** Renews the last use of a run. */
  #use(keyId: string, runs: KeyRuns, run: Run, now: number): void {
    run.expiresAt = now + (this.#idleMs ?? run.expiresAt - run.usedAt);
    run.usedAt = now;
    runs.delete(run.id);
    runs.set(run.id, run);
    this.#storage?.put(keyId, toStored(run));
  }

  /** Counts a call in all runs of a chain. */
  #count(
    keyId: string,
    chain: readonly Run[],
    reservation: RunReservation,
    open: OpenCall,
  ): MemoryRunLease {
    const counted = chain.map((run) => {
      const reserved = reservation.isFree ? 0 : reservedInRun(reservation, run.budget);
      run.reserved += reserved;
      if (!reservation.isFree) run.called++;
      beginCall(open, run);
      this.#storage?.put(keyId, toStored(run));
      return { id: run.id, reserved };
    });
    const abandon = () => endCall(open);
    let isOpen = true;
    return {
      counted,
      abandon,
      release: (spend, isUndone) => {
        if (!isOpen) return;
        isOpen = false;
        abandon();
        this.settle(keyId, counted, spend, isUndone && !reservation.isFree);
      },
    };
  }

  /**
   * Makes room for the new runs of a chain. Runs below a stopped run are the last to be forgotten.
   *
   * @throws {Refused} If too few others are unused
   */
  #makeRoom(
    keyId: string,
    runs: KeyRuns,
    chain: readonly Run[],
    maxPerKey: number,
    now: number,
  ): void {
    const missing = chain.filter(({ id }) => !runs.has(id)).length;
    if (missing === 0) return; // the bound can have been lowered
    const most = maxPerKey - missing;
    for (const isBelowStopped of [false, true]) {
      for (const run of runs.values()) {
        if (runs.size <= most) return;
        const isUsed = run.open.size > 0 || run.usedAt + MIN_UNUSED_MS > now;
        if (isUsed || run.isStopped || chain.includes(run)) continue;
        if (isRunStopped(runs, run) === isBelowStopped) this.#forget(keyId, runs, run.id);
      }
    }
    if (runs.size > most) throw new Refused("full");
  }

  /** Forgets runs that were not used for long, except those of {@link keptWith}. */
  #forgetIdle(keyId: string, runs: KeyRuns, now: number): void {
    const isIdle = (run: Run) => this.#expiryOf(run) <= now;
    for (const run of runs.values()) {
      if (!isIdle(run)) return;
      const kept = keptWith(runs, run, isIdle);
      if (kept.length === 0) this.#forget(keyId, runs, run.id);
      for (const used of kept) this.#use(keyId, runs, used, now);
    }
  }

  /** Forgets idle runs of a few other keys. */
  #forgetOthers(now: number): void {
    for (let looked = 0; looked < SWEPT_AT_ONCE; looked++) {
      const next = this.#sweep.next();
      if (next.done === true) return void (this.#sweep = this.#keys.entries());
      const [keyId, runs] = next.value;
      this.#forgetIdle(keyId, runs, now);
      if (runs.size === 0) this.#keys.delete(keyId);
    }
  }

  #forget(keyId: string, runs: KeyRuns, id: string): void {
    runs.delete(id);
    this.#storage?.delete(keyId, id);
  }

  #chainOf(keyId: string, id: string): readonly Run[] {
    const runs = this.#keys.get(keyId);
    const run = runs?.get(id);
    return runs === undefined || run === undefined ? [] : [run, ...ancestorsOf(runs, run)];
  }
}

function toStatus(keyId: string, runs: KeyRuns, run: Run): RunStatus {
  const { id, parent, budget, calls, spent, reserved, called, openedAt, usedAt, repeats } = run;
  const amounts = { budget, calls, spent, reserved, called, open: run.open.size };
  const isStopped = isRunStopped(runs, run);
  return { keyId, id, parent, ...amounts, openedAt, usedAt, isStopped, repeats };
}
