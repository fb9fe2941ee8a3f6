/** Waits for a condition instead of sleeping. */
import assert from "node:assert/strict";

/** Shortest and longest time between two checks. Milliseconds. */
const LEAST_MS = 5;
const MOST_MS = 50;
/** Length of a pause that {@link untilSoon} compares with. Milliseconds. */
const PAUSE_MS = 20;
/** The longest time of the check that succeeds. Milliseconds. */
const MOST_CHECK_MS = 5000;

/**
 * @param condition Polled every few milliseconds, and less often over time: a check can need a call
 * @param what Description for the error after a timeout
 * @param ms The longest wait
 */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  ms = 30_000,
): Promise<void> {
  const start = performance.now();
  // A check can hang, such as a call that is never answered.
  let timer: ReturnType<typeof setTimeout> | undefined;
  const hung = new Promise<never>((_, reject) => {
    const fail = () => reject(new Error(`the check did not end: ${what}`));
    timer = setTimeout(fail, ms + MOST_CHECK_MS);
  });
  hung.catch(() => {});
  try {
    while (!(await Promise.race([condition(), hung]))) {
      const waited = performance.now() - start;
      if (waited > ms) assert.fail(`waited ${ms} ms without success: ${what}`);
      await new Promise((resolve) =>
        setTimeout(resolve, Math.min(MOST_MS, Math.max(LEAST_MS, waited / 20)))
      );
    }
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Waits for a condition that must be met within a time. A check counts from its beginning: it can
 * be slow. The time is as long as its pauses, which take longer on a busy machine.
 *
 * @param condition Polled every few milliseconds
 * @param title Description for errors
 * @param ms The time on an idle machine
 */
export async function untilSoon(
  condition: () => boolean | Promise<boolean>,
  title: string,
  ms: number,
): Promise<void> {
  const start = performance.now();
  let isMet = false;
  let lastMs = 0;
  let checkMs = 0;
  const time = timeOfPauses(Math.ceil(ms / PAUSE_MS), PAUSE_MS, () => !isMet || lastMs >= ms);
  await until(async () => {
    const begunMs = performance.now() - start;
    isMet = await condition();
    checkMs = performance.now() - start - begunMs;
    if (!isMet) lastMs = begunMs;
    return isMet;
  }, title);
  assert.ok(checkMs < MOST_CHECK_MS, `the check took ${Math.round(checkMs)} ms: ${title}`);
  assert.ok(lastMs < Math.max(ms, await time), `only after ${Math.round(lastMs)} ms: ${title}`);
}

/**
 * Measures the present duration of a number of pauses in a row, at the same time as the work that
 * they are compared with.
 *
 * @param isNeeded The pauses end when it returns false
 * @returns Milliseconds: `count` times `ms` on an idle machine, and more on a busy one
 */
export async function timeOfPauses(
  count: number,
  ms: number,
  isNeeded: () => boolean = () => true,
): Promise<number> {
  const start = performance.now();
  for (let made = 0; made < count && isNeeded(); made++) {
    await new Promise((resolve) => setTimeout(resolve, ms));
  }
  return performance.now() - start;
}
