/**
 * Assigns test files to runtimes. A file names its runtimes in a line `// runtimes: …` after its
 * docstring.
 *
 * - `once`: on the newest Node, where one runtime is enough
 * - `bun, node`: on Bun and the newest Node, for code that names no runtime
 * - `all`: on Deno, Bun and the newest Node, for listeners and for code that reads bytes. This is
 *   the default
 * - `old node` (a Node that cannot run TypeScript), in addition: proves that the one file runs
 *   there
 * - `deno` or `workers` (workerd), also in addition
 * - `check`: nowhere, because `npm run check` runs the file
 *
 * Files marked `// alone: <why>` measure time and run after all others. Files marked `// long:
 * <why>` are the slowest, start first and have a separate process. Other files share processes, a few
 * files each, so that their imports are loaded once. The cases of a process run one after the
 * other, so files can share a process also if they start programs.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import { findRuntimes, type RuntimeOnMachine } from "../runtimes.ts";

/** One column of the table: a runtime, or the newest Node that runs the tests with workerd. */
export interface Target extends RuntimeOnMachine {
  readonly isWorkers: boolean;
}

/**
 * The files that one process runs on a target: one test file, or several that share the process.
 */
export interface Task {
  readonly target: Target;
  readonly files: readonly string[];
  /** The module that the process runs: the file, or a module that imports all of them. */
  readonly entry: string;
  /** Name of the file, or of the files that share a process. */
  readonly name: string;
  /**
   * True if cases that one runtime proves for all are left out, because the newest Node runs them.
   */
  readonly isElsewhere: boolean;
}

/** True if a target is the newest Node, which runs the files marked `once`. */
export const isNewestNode = ({ kind, runsTypeScript, isWorkers }: Target): boolean =>
  kind === "node" && runsTypeScript && !isWorkers;

/** The words that the line accepts. */
const NAMES: Readonly<Record<string, (target: Target) => boolean>> = {
  once: isNewestNode,
  all: (target) => target.kind !== "node" || isNewestNode(target),
  deno: ({ kind }) => kind === "deno",
  bun: ({ kind }) => kind === "bun",
  node: isNewestNode,
  "old node": ({ runsTypeScript }) => !runsTypeScript,
  workers: ({ isWorkers }) => isWorkers,
  check: () => false,
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
 * @returns True if the file names that target
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

/** True if a file measures time, and must run after all others. */
export function isAlone(file: string): boolean {
  return /^\/\/ alone: /m.test(readFileSync(file, "utf8"));
}

/** True if a file is among the slowest, and must start first. */
export function isLong(file: string): boolean {
  return /^\/\/ long: /m.test(readFileSync(file, "utf8"));
}

/**
 * Returns a function that finds the test files that contain what is sought, or import a module of
 * `tests/` that does.
 */
export function findReaching(sought: RegExp): (file: string) => boolean {
  const known = new Map<string, boolean>();
  const reaches = (file: string): boolean => {
    const before = known.get(file);
    if (before !== undefined) return before;
    known.set(file, false);
    const text = readFileSync(file, "utf8");
    const imported = Array.from(
      text.matchAll(/ from "(\.[^"]+\.ts)";/g),
      ([, to = ""]) => join(dirname(file), to),
    );
    const does = sought.test(text) ||
      imported.some((each) => each.startsWith("tests/") && existsSync(each) && reaches(each));
    known.set(file, does);
    return does;
  };
  return reaches;
}

/** True if a test file, or a module of `tests/` that it imports, starts programs. */
export const startsPrograms: (file: string) => boolean = findReaching(/"node:child_process"/);
/** True if a test file opens pages in Chromium. */
const opensPages = findReaching(/"playwright-core"/);

/**
 * Reasons why a file cannot share its process: hooks around all cases there, its memory, its
 * environment.
 */
const APART = /^(?:before|after)(?:Each|All)\(|memoryUsage|delete process\.env/m;
/** The most files of one process. */
const MAX_SHARING = 8;

const canShare = (file: string): boolean =>
  !isAlone(file) && !isLong(file) && !APART.test(readFileSync(file, "utf8"));

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
 * Assigns test files to processes.
 *
 * @param target The target
 * @param files Its files
 * @param isElsewhere See {@link Task}, for each file
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
  // Files that open pages share processes with each other: each process starts one browser.
  const kindOf = (file: string) =>
    `${isElsewhere(file) ? "_in_part" : ""}${opensPages(file) ? "_pages" : ""}`;
  for (const [kind, sharing] of Map.groupBy(files.filter(canShare), kindOf)) {
    const count = Math.ceil(sharing.length / MAX_SHARING);
    for (let number = 0; number < count; number++) {
      // Neighbours need about the same time, so each is assigned to a different process.
      const own = sharing.filter((_, index) => index % count === number);
      const [only = ""] = own;
      if (own.length === 1) {
        tasks.push(byItself(only));
        continue;
      }
      const name = `${target.label.replace(" ", "_")}${kind}_${number + 1}`;
      tasks.push({
        target,
        files: own,
        entry: writeEntry(name, own),
        name,
        isElsewhere: isElsewhere(only),
      });
    }
  }
  return tasks;
}
