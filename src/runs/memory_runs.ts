/**
 * Runs in the memory of a process.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { countBody, isTooOften, type LastBody } from "./repeats.ts";
import {
  MAX_ANCESTORS,
  MIN_UNUSED_MS,
  narrower,
  type RefusedRun,
  reservedInRun,
  type RunBounds,
  type RunCall,
  type RunCorrection,
  type RunLease,
  type RunRefusal,
  type RunRegistry,
  type RunReservation,
  type RunStatus,
  type StatedRun,
  toRunError,
} from "./run_registry.ts";

/** An open call. */
interface OpenCall {
  readonly onStopped: () => void;
}

/** The state of a run that outlives its process. Plain data. */
export interface StoredRun extends LastBody {
  readonly id: string;
  parent?: string | undefined;
  budget?: number | undefined;
  calls?: number | undefined;
  spent: number;
  reserved: number;
  called: number;
  readonly openedAt: number;
  usedAt: number;
  expiresAt: number;
  isStopped: boolean;
}

/** A run. */
interface Run extends StoredRun {
  readonly open: Set<OpenCall>;
}

/** A run, followed by the runs above it. */
type Chain = readonly [Run, ...Run[]];

/**
 * The runs of a key by id, in the order of their last use. A call uses its run first and then the
 * runs above it, so that a run is never forgotten before the runs below it.
 */
type KeyRuns = Map<string, Run>;

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

/** Refusal inside of this module. */
class Refused extends Error implements RefusedRun {
  readonly refusal: RunRefusal;
  readonly isAbove: boolean;
  readonly repeats: number | undefined;
  constructor(refusal: RunRefusal, isAbove = false, repeats?: number) {
    super(refusal);
    this.refusal = refusal;
    this.isAbove = isAbove;
    this.repeats = repeats;
  }
}

/** Number of keys that each call examines, to forget those without runs. */
const SWEPT_AT_ONCE = 2;

/** Runs in memory. */
export class MemoryRuns implements RunRegistry {
  readonly #keys = new Map<string, KeyRuns>();
  readonly #clock: Pick<Clock, "now">;
  readonly #storage: RunStorage | undefined;
  #sweep = this.#keys.entries();

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
    const { keyId, run, reservation, bounds, body } = call;
    const now = this.#clock.now();
    this.#forgetOthers(now);
    const runs = this.#runsOf(keyId);
    this.#forgetIdle(keyId, runs, now);
    try {
      const chain = this.#open(keyId, runs, run, bounds, now);
      const [own] = chain;
      const repeats = body && countBody(own, body);
      if (repeats !== undefined) this.#storage?.put(keyId, toStored(own));
      assertRoom(chain, reservation);
      if (body && repeats && !reservation.isFree && isTooOften(body, repeats)) {
        throw new Refused("repeats", false, repeats);
      }
      return { ...this.#count(keyId, chain, reservation, { onStopped }), repeats };
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
    const all = keys.flatMap((key) =>
      Array.from(this.#keys.get(key)?.values() ?? []).reverse()
        .filter((run) => !isForgotten(run, now))
        .map((run) => this.#toStatus(key, run))
    );
    all.sort((one, other) => other.usedAt - one.usedAt);
    return Promise.resolve(all.slice(0, limit));
  }

  stop(keyId: string, id: string): Promise<boolean> {
    const run = this.#keys.get(keyId)?.get(id);
    if (run === undefined || isForgotten(run, this.#clock.now())) return Promise.resolve(false);
    run.isStopped = true;
    this.#storage?.put(keyId, toStored(run));
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
    const call = { onStopped };
    const runs = ids.map((id) => this.#keys.get(keyId)?.get(id)).filter((run) => run !== undefined);
    for (const run of runs) run.open.add(call);
    return () => {
      for (const run of runs) run.open.delete(call);
    };
  }

  /** Returns whether one of these runs was stopped. */
  isStopped(keyId: string, ids: readonly string[]): boolean {
    return ids.some((id) => this.#keys.get(keyId)?.get(id)?.isStopped === true);
  }

  #runsOf(keyId: string): KeyRuns {
    let runs = this.#keys.get(keyId);
    if (runs === undefined) this.#keys.set(keyId, runs = new Map());
    return runs;
  }

  /** Opens or narrows a run. Returns it, followed by the runs above it. */
  #open(keyId: string, runs: KeyRuns, stated: StatedRun, bounds: RunBounds, now: number): Chain {
    const { id, parent, limits } = stated;
    if (parent !== undefined) assertParent(runs, id, parent);
    const run = runs.get(id) ?? createRun(id, now);
    const isJoining = parent !== undefined && run.parent === undefined;
    const above = parent === undefined || runs.has(parent)
      ? ancestorsOf(runs, { parent: parent ?? run.parent })
      : [createRun(parent, now)];
    const chain: Chain = [run, ...above];
    this.#makeRoom(keyId, runs, chain, bounds.maxPerKey, now);
    if (isJoining) join(run, parent, above);
    run.budget = narrower(run.budget, limits.budget);
    run.calls = narrower(run.calls, limits.calls);
    for (const used of chain) {
      used.usedAt = now;
      used.expiresAt = now + bounds.idleMs;
      runs.delete(used.id);
      runs.set(used.id, used);
      this.#storage?.put(keyId, toStored(used));
    }
    return chain;
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
      run.open.add(open);
      this.#storage?.put(keyId, toStored(run));
      return { id: run.id, reserved };
    });
    const abandon = () => {
      for (const run of chain) run.open.delete(open);
    };
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

  /** Makes room for the new runs of a chain. @throws {Refused} If too few others are unused */
  #makeRoom(
    keyId: string,
    runs: KeyRuns,
    chain: readonly Run[],
    maxPerKey: number,
    now: number,
  ): void {
    const most = maxPerKey - chain.filter(({ id }) => !runs.has(id)).length;
    if (runs.size <= most) return;
    for (const run of runs.values()) {
      const isUnused = run.open.size === 0 && run.usedAt + MIN_UNUSED_MS <= now;
      if (isUnused && !run.isStopped && !chain.includes(run)) this.#forget(keyId, runs, run.id);
      if (runs.size <= most) return;
    }
    throw new Refused("full");
  }

  /** Forgets runs that were not used for long. Open ones count as used. */
  #forgetIdle(keyId: string, runs: KeyRuns, now: number): void {
    for (const run of runs.values()) {
      if (run.expiresAt > now) return;
      if (run.open.size === 0) this.#forget(keyId, runs, run.id);
      else {
        run.expiresAt = now + (run.expiresAt - run.usedAt);
        run.usedAt = now;
        runs.delete(run.id);
        runs.set(run.id, run);
      }
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

  #toStatus(keyId: string, run: Run): RunStatus {
    const { id, parent, budget, calls, spent, reserved, called, openedAt, usedAt, repeats } = run;
    const isStopped = this.#chainOf(keyId, id).some((each) => each.isStopped);
    const amounts = { budget, calls, spent, reserved, called, open: run.open.size };
    return { keyId, id, parent, ...amounts, openedAt, usedAt, isStopped, repeats };
  }
}

const isForgotten = ({ expiresAt, open }: Run, now: number): boolean =>
  expiresAt <= now && open.size === 0;

const toStored = ({ open: _, ...stored }: Run): StoredRun => stored;

function createRun(id: string, now: number): Run {
  const counts = { spent: 0, reserved: 0, called: 0 };
  return {
    id,
    ...counts,
    openedAt: now,
    usedAt: now,
    expiresAt: now,
    isStopped: false,
    open: new Set(),
  };
}

/** Lists the runs above a run, the nearest first: at most one more than are allowed. */
function ancestorsOf(runs: KeyRuns, { parent }: Pick<Run, "parent">): Run[] {
  const ancestors: Run[] = [];
  let above = parent === undefined ? undefined : runs.get(parent);
  while (above !== undefined && ancestors.length <= MAX_ANCESTORS) {
    ancestors.push(above);
    above = above.parent === undefined ? undefined : runs.get(above.parent);
  }
  return ancestors;
}

/**
 * Puts a run below another one. What it has used counts there too. The end of a call that is open
 * now corrects it only in the run itself, so all that the call has reserved counts there.
 */
function join(run: Run, parent: string, above: readonly Run[]): void {
  run.parent = parent;
  for (const each of above) {
    each.spent += run.spent + run.reserved;
    each.called += run.called;
  }
}

/** Checks the stated parent of a run. @throws {Refused} */
function assertParent(runs: KeyRuns, id: string, parent: string): void {
  if (id === parent) throw new Refused("cycle");
  const known = runs.get(id)?.parent;
  if (known !== undefined && known !== parent) throw new Refused("parent");
  const above = runs.get(parent);
  if (above === undefined) return;
  const ancestors = ancestorsOf(runs, above);
  if (ancestors.some((run) => run.id === id)) throw new Refused("cycle");
  if (ancestors.length >= MAX_ANCESTORS) throw new Refused("depth");
}

/** Checks that each run of a chain has room for a call. @throws {Refused} */
function assertRoom(chain: readonly Run[], reservation: RunReservation): void {
  if (chain.length > MAX_ANCESTORS + 1) throw new Refused("depth");
  for (const [index, { isStopped }] of chain.entries()) {
    if (isStopped) throw new Refused("stopped", index > 0);
  }
  if (reservation.isFree) return;
  for (const [index, run] of chain.entries()) {
    const isAbove = index > 0;
    if (run.calls !== undefined && run.called >= run.calls) throw new Refused("calls", isAbove);
    if (run.budget === undefined) continue;
    if (reservation.unpriced !== undefined) throw new Refused("unpriced", isAbove);
    // A budget that is used up has no room even for a call that reserves nothing.
    const room = Math.max(1, reservedInRun(reservation, run.budget));
    if (run.spent + run.reserved + room > run.budget) throw new Refused("budget", isAbove);
  }
}
