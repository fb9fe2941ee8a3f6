/** Waits for a condition instead of sleeping. */
import assert from "node:assert/strict";

/**
 * @param condition Polled every few milliseconds
 * @param what Named when it does not come true in time
 * @param ms How long to wait
 */
export async function until(condition: () => boolean | Promise<boolean>, what: string, ms = 5000): Promise<void> {
  const end = performance.now() + ms;
  while (!(await condition())) {
    if (performance.now() > end) assert.fail(`waited ${ms} ms in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
