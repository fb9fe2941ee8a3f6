/**
 * A run in memory and the runs above it, and the checks of a call of it.
 *
 * @module
 */
import type { LastBody } from "./repeats.ts";
import {
  MAX_ANCESTORS,
  type RefusedRun,
  reservedInRun,
  type RunLimits,
  type RunRefusal,
  type RunReservation,
} from "./run_registry.ts";

/** An open call. */
export interface OpenCall {
  readonly onStopped: () => void;
  /** The runs in which it is open. A run that gets a parent meanwhile adds the runs above it. */
  readonly openIn: Run[];
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
export interface Run extends StoredRun {
  readonly open: Set<OpenCall>;
}

/** A run, followed by the runs above it. */
export type Chain = readonly [Run, ...Run[]];

/**
 * The runs of a key by id, in the order of their last use. A call uses its run first and then the
 * runs above it, so that a run is never forgotten before the runs below it.
 */
export type KeyRuns = Map<string, Run>;

/** Refusal of a call. */
export class Refused extends Error implements RefusedRun {
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

/** Counts a call as open in a run. */
export function beginCall(call: OpenCall, run: Run): void {
  run.open.add(call);
  call.openIn.push(run);
}

/** Counts a call as open no longer. */
export function endCall(call: OpenCall): void {
  for (const run of call.openIn) run.open.delete(call);
}

/** Returns the state of a run that is stored. */
export const toStored = ({ open: _, ...stored }: Run): StoredRun => stored;

/** Creates a run without calls. */
export function createRun(id: string, now: number, { budget, calls }: RunLimits = {}): Run {
  return {
    id,
    budget,
    calls,
    spent: 0,
    reserved: 0,
    called: 0,
    openedAt: now,
    usedAt: now,
    expiresAt: now,
    isStopped: false,
    open: new Set(),
  };
}

/** Lists the runs above a run, the nearest first: at most one more than are allowed. */
export function ancestorsOf<Each extends Pick<StoredRun, "parent">>(
  runs: ReadonlyMap<string, Each>,
  { parent }: Pick<StoredRun, "parent">,
): Each[] {
  const ancestors: Each[] = [];
  for (let id = parent; id !== undefined && ancestors.length <= MAX_ANCESTORS;) {
    const above = runs.get(id);
    if (above !== undefined) ancestors.push(above);
    id = above?.parent;
  }
  return ancestors;
}

/** Returns whether a run, or a run above it, was stopped. */
export const isRunStopped = (runs: KeyRuns, run: Run): boolean =>
  run.isStopped || ancestorsOf(runs, run).some(({ isStopped }) => isStopped);

/**
 * Lists the runs that count as used if the given run is idle, itself first: all of its chain if it
 * has open calls, else those below a stopped run that is not idle. A stop is therefore remembered
 * for the runs below as long as one of them calls. Empty if the run can be forgotten.
 */
export function keptWith(
  runs: KeyRuns,
  run: Run,
  isIdle: (above: Run) => boolean,
): readonly Run[] {
  const chain = [run, ...ancestorsOf(runs, run)];
  if (run.open.size > 0) return chain;
  const stopped = chain.findIndex((above) => above.isStopped && !isIdle(above));
  return chain.slice(0, Math.max(0, stopped));
}

/**
 * Puts a run below another one. What it has used counts there too. The end of a call that is open
 * now corrects it only in the run itself, so all that the call has reserved counts there. A stop
 * there ends the call.
 */
export function joinParent(run: Run, parent: string, above: readonly Run[]): void {
  run.parent = parent;
  for (const each of above) {
    each.spent += run.spent + run.reserved;
    each.called += run.called;
    for (const call of [...run.open]) {
      beginCall(call, each);
      if (each.isStopped) call.onStopped();
    }
  }
}

/** Checks the stated parent of a run. @throws {Refused} */
export function assertParent(runs: KeyRuns, id: string, parent: string): void {
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
export function assertRoom(chain: readonly Run[], reservation: RunReservation): void {
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
