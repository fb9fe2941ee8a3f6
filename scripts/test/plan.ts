/**
 * Which test file runs on which runtime: as the file itself says, in a line `// runtimes: …` after
 * its docstring.
 *
 * - `once`: on the newest Node, where one runtime is enough
 * - `bun, node`: on Bun and the newest Node, for code that names no runtime
 * - `all`: on Deno, Bun and the newest Node, for listeners and for code that reads bytes, as does a
 *   file without the line
 * - `old node` (one that can't run TypeScript), in addition: what proves that the one file runs there
 * - `deno` or `workers` (workerd), also in addition
 *
 * A file with a line `// alone: <why>` measures time: it runs when the others are done. One with a
 * line `// long: <why>` waits for most of its time: it is begun first. What starts programs has a
 * process of its own on its runtime. Other files share one, a few each, so that what they import is
 * loaded once.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import { findRuntimes, type RuntimeOnMachine } from "../runtimes.ts";

/** One column of the table: a runtime, or the newest Node with workerd behind the tests. */
export interface Target extends RuntimeOnMachine {
  readonly isWorkers: boolean;
}

/** What one process runs on a target: a test file, or several that share it. */
export interface Task {
  readonly target: Target;
  readonly files: readonly string[];
  /** The module that is run: the file, or one that imports all of them. */
  readonly entry: string;
  /** The file, or what those that share a process are called together. */
  readonly name: string;
  /**
   * Whether cases that one runtime proves for all are left out, since the newest Node runs them.
   */
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
  return newest === undefined
    ? runtimes
    : [...runtimes, { ...newest, label: "workers", isWorkers: true }];
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
    if (isNamed === undefined) {
      throw new Error(`Cannot read the runtimes of ${file}: ${name} is none of them`);
    }
    return isNamed(target);
  });
}

/** Whether a file measures time, and wants few others beside it. */
export function isAlone(file: string): boolean {
  return /^\/\/ alone: /m.test(readFileSync(file, "utf8"));
}

/** Whether a file waits for most of its time, and is to be begun first. */
export function isLong(file: string): boolean {
  return /^\/\/ long: /m.test(readFileSync(file, "utf8"));
}

const starting = new Map<string, boolean>();
/** Whether a file of tests, or what it imports of `tests/`, starts programs. */
export function startsPrograms(file: string): boolean {
  const known = starting.get(file);
  if (known !== undefined) return known;
  starting.set(file, false);
  const text = readFileSync(file, "utf8");
  const imported = Array.from(
    text.matchAll(/ from "(\.[^"]+\.ts)";/g),
    ([, to = ""]) => join(dirname(file), to),
  );
  const does = text.includes('"node:child_process"') ||
    imported.some((each) => each.startsWith("tests/") && startsPrograms(each));
  starting.set(file, does);
  return does;
}

/**
 * What keeps a file from sharing its process: hooks around all cases there, its memory, its
 * environment.
 */
const APART = /^(?:before|after)(?:Each|All)\(|memoryUsage|delete process\.env/m;
/** Most files of one process. */
const MAX_SHARING = 8;

const canShare = (file: string): boolean =>
  !isAlone(file) && !startsPrograms(file) && !APART.test(readFileSync(file, "utf8"));

let folder: string | undefined;
/**
 * Writes a module that imports test files. Deno runs no tests in folders that its configuration
 * excludes.
 */
function writeEntry(name: string, files: readonly string[]): string {
  if (folder === undefined) {
    const own = folder = mkdtempSync(join(tmpdir(), "sallyport-tests-"));
    process.on("exit", () => rmSync(own, { recursive: true, force: true }));
  }
  const entry = join(folder, `${name}_test.ts`);
  writeFileSync(entry, files.map((file) => `import ${JSON.stringify(resolve(file))};\n`).join(""));
  return entry;
}

/**
 * Plans which process runs which test files.
 *
 * @param target The target
 * @param files Its files
 * @param isElsewhere As {@link Task} has it, for each file
 * @returns Tasks; each file is in one of them
 */
export function planTasks(
  target: Target,
  files: readonly string[],
  isElsewhere: (file: string) => boolean,
): Task[] {
  const byItself = (file: string) => ({
    target,
    files: [file],
    entry: file,
    name: file,
    isElsewhere: isElsewhere(file),
  });
  const tasks: Task[] = files.filter((file) => !canShare(file)).map(byItself);
  for (const [elsewhere, sharing] of Map.groupBy(files.filter(canShare), isElsewhere)) {
    const count = Math.ceil(sharing.length / MAX_SHARING);
    for (let number = 0; number < count; number++) {
      // Neighbours take much the same time: each goes to another process.
      const own = sharing.filter((_, index) => index % count === number);
      const [only = ""] = own;
      if (own.length === 1) {
        tasks.push(byItself(only));
        continue;
      }
      const name = `${target.label.replace(" ", "_")}${elsewhere ? "_in_part" : ""}_${number + 1}`;
      tasks.push({
        target,
        files: own,
        entry: writeEntry(name, own),
        name,
        isElsewhere: elsewhere,
      });
    }
  }
  return tasks;
}
