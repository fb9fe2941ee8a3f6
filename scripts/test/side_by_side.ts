/**
 * Runs tasks side by side: a few always, and more of them while those that run leave the machine
 * idle.
 */
import { cpus } from "node:os";

/** How many tasks run. */
export interface Width {
  /** As many run always. */
  readonly least: number;
  /** Up to as many run while the cores are idle. */
  readonly most: number;
  /** The share of all cores that has to be idle for another one. */
  readonly idle: number;
}

/** Interval at which the cores are looked at. Milliseconds. */
const LOOK_MS = 300;

/** Returns a function that tells which share of all cores was idle since it was last called. */
function watchCores(): () => number {
  const read = () =>
    cpus().reduce((sum, { times }) => {
      const all = Object.values(times).reduce((total, each) => total + each, 0);
      return { idle: sum.idle + times.idle, all: sum.all + all };
    }, { idle: 0, all: 0 });
  let before = read();
  return () => {
    const now = read();
    const share = (now.idle - before.idle) / Math.max(1, now.all - before.all);
    before = now;
    return share;
  };
}

/**
 * Runs tasks in their order.
 *
 * @param tasks The tasks
 * @param width How many of them at once
 * @param run Runs one
 * @returns Resolves when the last one is over
 */
export async function runSideBySide<T>(
  tasks: readonly T[],
  { least, most, idle }: Width,
  run: (task: T) => Promise<void>,
): Promise<void> {
  const waiting = [...tasks];
  const running = new Set<Promise<void>>();
  const begin = (): void => {
    const task = waiting.shift();
    if (task === undefined) return;
    const one = run(task).finally(() => {
      running.delete(one);
      if (running.size < least) begin();
    });
    running.add(one);
  };
  for (let count = 0; count < least; count++) begin();
  const idleShare = watchCores();
  const timer = setInterval(() => {
    if (idleShare() > idle && running.size < most) begin();
  }, LOOK_MS);
  try {
    while (running.size > 0) await Promise.race(running);
  } finally {
    clearInterval(timer);
  }
}
