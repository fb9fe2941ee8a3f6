/**
 * Bodies that a run sends again and again.
 *
 * @module
 */
import type { RunBody } from "./run_registry.ts";

/** The last body of a run. */
export interface LastBody {
  /** Its digest. */
  lastBody?: string | undefined;
  /** Number of times in a row that the run has sent it. */
  repeats?: number | undefined;
}

/**
 * Counts a body of a run. A retry changes nothing.
 *
 * @returns Number of times in a row that the run has sent it; 0 for the retry of an earlier body
 */
export function countBody(run: LastBody, { digest, isRetry }: RunBody): number {
  const repeats = run.lastBody === digest ? run.repeats ?? 0 : 0;
  if (isRetry) return repeats;
  run.lastBody = digest;
  run.repeats = repeats + 1;
  return run.repeats;
}

/** Returns whether a run has sent a body more often in a row than it can. */
export const isTooOften = ({ most = Infinity }: RunBody, repeats: number): boolean =>
  repeats > most;
