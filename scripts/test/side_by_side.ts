/** Runs tasks in parallel: a few always, and more while the running ones leave the machine idle. */
import { cpus } from "node:os";

/** The number of parallel tasks. */
export interface Width {
  /** This many tasks always run. */
  readonly least: number;
  /** Up to this many tasks run while the cores are idle. */
  readonly most: number;
  /** The share of all cores that must be idle before another task starts. */
  readonly idle: number;
}

/** Interval at which the cores are measured. Milliseconds. */
const LOOK_MS = 300;

/** Returns a function that reports the idle share of all cores since its last call. */
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
 * @param width The number of parallel tasks
 * @param run Runs one task
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
