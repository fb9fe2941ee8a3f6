/** Waits for a condition instead of sleeping. */
import assert from "node:assert/strict";

/** Shortest and longest time between two checks. Milliseconds. */
const LEAST_MS = 5;
const MOST_MS = 50;

/**
 * @param condition Polled every few milliseconds, and less often over time: a check can need a call
 * @param what Description for the error after a timeout
 * @param ms The longest wait
 */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  ms = 15_000,
): Promise<void> {
  const start = performance.now();
  while (!(await condition())) {
    const waited = performance.now() - start;
    if (waited > ms) assert.fail(`waited ${ms} ms in vain: ${what}`);
    await new Promise((resolve) =>
      setTimeout(resolve, Math.min(MOST_MS, Math.max(LEAST_MS, waited / 20)))
    );
  }
}

/**
 * Measures the present duration of a number of pauses in a row, at the same time as the work that
 * they are compared with.
 *
 * @returns Milliseconds: `count` times `ms` on an idle machine, and more on a busy one
 */
export async function timeOfPauses(count: number, ms: number): Promise<number> {
  const start = performance.now();
  for (let made = 0; made < count; made++) await new Promise((resolve) => setTimeout(resolve, ms));
  return performance.now() - start;
}
