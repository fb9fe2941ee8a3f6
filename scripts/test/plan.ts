/**
 * Which test file runs on which runtime: as the file itself says, in a line `// runtimes: …` after its docstring.
 *
 * - `once`: on the newest Node, which is enough for code that does the same everywhere
 * - `all`: on Deno, Bun and the newest Node, as does a file without the line
 * - `deno`, `bun`, `node` (the newest), `old node` (one that can't run TypeScript) and `workers` (workerd), in any number
 *
 * A file with a line `// alone: <why>` measures time: it runs when the others are done.
 */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { findRuntimes, type RuntimeOnMachine } from "../runtimes.ts";

/** One column of the table: a runtime, or the newest Node with workerd behind the tests. */
export interface Target extends RuntimeOnMachine {
  readonly isWorkers: boolean;
}

/** A test file on a target. */
export interface Task {
  readonly target: Target;
  readonly file: string;
  /** Whether cases that one runtime proves for all are left out, since the newest Node runs them. */
  readonly isElsewhere: boolean;
}

/** Whether a target is the newest Node, which runs what is tested once. */
export const isNewestNode = ({ kind, runsTypeScript, isWorkers }: Target): boolean =>
  kind === "node" && runsTypeScript && !isWorkers;

/** The words of the line. */
const NAMES: Readonly<Record<string, (target: Target) => boolean>> = {
  once: isNewestNode,
  all: (target) => target.kind !== "node" || isNewestNode(target),
  deno: ({ kind }) => kind === "deno",
  bun: ({ kind }) => kind === "bun",
  node: isNewestNode,
  "old node": ({ runsTypeScript }) => !runsTypeScript,
  workers: ({ isWorkers }) => isWorkers,
};

/** Every runtime of this machine, and Workers. */
export function findTargets(): Target[] {
  const runtimes = findRuntimes().map((runtime) => ({ ...runtime, isWorkers: false }));
  const newest = runtimes.find(isNewestNode);
  return newest === undefined ? runtimes : [...runtimes, { ...newest, label: "workers", isWorkers: true }];
}

/**
 * @param target A target
 * @param file A test file
 * @returns Whether the file says that it runs there
 * @throws For a word that names no runtime
 */
export function runsOn(target: Target, file: string): boolean {
  const [, line = "all"] = /^\/\/ runtimes: (.+)$/m.exec(readFileSync(file, "utf8")) ?? [];
  return line.split(", ").some((name) => {
    const isNamed = NAMES[name];
    if (isNamed === undefined) throw new Error(`Cannot read the runtimes of ${file}: ${name} is none of them`);
    return isNamed(target);
  });
}

/** Whether a file measures time, and wants few others beside it. */
export function isAlone(file: string): boolean {
  return /^\/\/ alone: /m.test(readFileSync(file, "utf8"));
}

const starting = new Map<string, boolean>();
/** Whether a file of tests, or what it imports of `tests/`, starts programs. */
export function startsPrograms(file: string): boolean {
  const known = starting.get(file);
  if (known !== undefined) return known;
  starting.set(file, false);
  const text = readFileSync(file, "utf8");
  const imported = Array.from(text.matchAll(/ from "(\.[^"]+\.ts)";/g), ([, to = ""]) => join(dirname(file), to));
  const does = text.includes('"node:child_process"') ||
    imported.some((each) => each.startsWith("tests/") && startsPrograms(each));
  starting.set(file, does);
  return does;
}
