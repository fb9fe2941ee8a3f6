/** Runs test files on one runtime, in one process, and counts the results in its report. */
import { Buffer } from "node:buffer";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import type { Readable } from "node:stream";
import type { Task } from "./plan.ts";
import { hasReason, readTitle } from "./skipped.ts";

/** Folder of the reports, with a subfolder for each runtime. */
export const REPORTS: string = resolve(".cache", "tests");
/** Folder of files without types, for a Node that cannot remove them itself. */
export const TRANSPILED: string = join(".cache", "node");
/**
 * A process that runs longer than this for each of its files is stuck: its output so far is
 * printed, and it counts as failed. The longest file needs 90 s of CPU on a slow machine, which it
 * shares with others.
 */
const MAX_FILE_MS = 10 * 60_000;

/**
 * For bash: runs a command, then writes the CPU time of the command and its children to descriptor
 * 3.
 */
const TIMED = '"$0" "$@" 3>&-; code=$?; times >&3; exit $code';

/** The results of the cases of a file, or of many. */
export interface Counts {
  passed: number;
  failed: number;
  /** Titles. */
  skipped: string[];
}

/** The result of a task. */
export interface TaskResult extends Task {
  readonly counts: Counts;
  readonly output: string;
  readonly seconds: number;
  /** CPU seconds, including child processes; 0 if not measured. */
  readonly cpuSeconds: number;
}

/** Path of a task's file without types, for a Node that cannot remove them itself. */
export const transpiledName = ({ name }: Task): string => name.replace(/\.ts$/, "");

function toArguments(task: Task, report: string): string[] {
  const { target: { kind, runsTypeScript }, entry } = task;
  if (kind === "deno") {
    // With SALLYPORT_TEST_JSR=1 @std/testing is loaded from JSR; otherwise its stand-in is used.
    const map = process.env.SALLYPORT_TEST_JSR === "1"
      ? []
      : ["--import-map=tests/support/import_map.json"];
    return ["test", "-A", "--no-check", "--quiet", ...map, `--junit-path=${report}`, entry];
  }
  if (kind === "bun") {
    return [
      "test",
      "--timeout=60000",
      "--reporter=junit",
      `--reporter-outfile=${report}`,
      resolve(entry),
    ];
  }
  return [
    "--test-reporter=spec",
    "--test-reporter-destination=stdout",
    "--test-reporter=junit",
    `--test-reporter-destination=${report}`,
    runsTypeScript ? entry : join(TRANSPILED, `${transpiledName(task)}.mjs`),
  ];
}

/**
 * Counts the cases of a JUnit report. Deno reports a `describe` as a case of the file in addition
 * to its own cases.
 */
function count(report: string, isDeno: boolean): Counts {
  const counts: Counts = { passed: 0, failed: 0, skipped: [] };
  for (
    const [, attributes = "", content = ""] of report.matchAll(
      /<testcase\b((?:[^">]|"[^"]*")*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g,
    )
  ) {
    const hasFailed = /<(?:failure|error)\b/.test(content);
    const title = /<skipped\b/.test(content) ? readTitle(attributes) : undefined;
    if (isDeno && !attributes.includes('classname="ext:') && !hasReason(title ?? "")) continue;
    if (title !== undefined && !hasFailed) counts.skipped.push(title);
    else counts[hasFailed ? "failed" : "passed"]++;
  }
  return counts;
}

/** Adds up times as bash prints them, such as `0m1.500s 0m0.250s`. */
function addTimes(text: string): number {
  return Array.from(
    text.matchAll(/(\d+)m([\d.]+)s/g),
    ([, minutes, seconds]) => 60 * Number(minutes) + Number(seconds),
  )
    .reduce((sum, each) => sum + each, 0);
}

/** Process groups of the running programs. The children of a program belong to its group. */
const groups = new Set<number>();

/** Kills the remaining processes of a group. */
function endGroup(group: number): void {
  groups.delete(group);
  try {
    process.kill(-group, "SIGKILL");
  } catch { /* nothing is left */ }
}

// A terminal interrupts only its own process group.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.once(signal, () => process.exit(1));
}
process.on("exit", () => groups.forEach(endGroup));

/**
 * Runs a program, and kills it if it takes too long. Its remaining child processes are killed with
 * it, such as a server that a failed test did not stop: they would keep its output open.
 *
 * @param isTimed True if its CPU time is measured, by bash on Linux
 * @returns Its status, its output, and the CPU seconds
 */
export function run(
  command: string,
  args: string[],
  env = {},
  isTimed = false,
  maxMs: number = MAX_FILE_MS,
): Promise<{ code: number; output: string; cpuSeconds: number }> {
  return new Promise((resolve) => {
    const [program, all] = isTimed ? ["bash", ["-c", TIMED, command, ...args]] : [command, args];
    const child = spawn(program, all, {
      detached: true, // in a separate process group
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe", isTimed ? "pipe" : "ignore"],
    });
    const chunks: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (data: Buffer) => chunks.push(data));
    }
    let times = "";
    (child.stdio[3] as Readable | null)?.setEncoding("utf8").on(
      "data",
      (text: string) => times += text,
    );
    const { pid } = child;
    if (pid === undefined) throw new Error(`Cannot start ${command}`);
    groups.add(pid);
    const timer = setTimeout(() => endGroup(pid), maxMs);
    child.on("exit", () => {
      clearTimeout(timer);
      endGroup(pid);
    });
    child.on("close", (code) => {
      resolve({
        code: code ?? 1,
        output: Buffer.concat(chunks).toString(),
        cpuSeconds: addTimes(times),
      });
    });
  });
}

/** Runs the files of a task. @param isTimed True if its CPU time is measured */
export async function runTask(
  task: Task,
  env: Record<string, string>,
  isTimed: boolean,
): Promise<TaskResult> {
  const { target, files, name, isElsewhere } = task;
  const folder = join(REPORTS, target.label);
  mkdirSync(folder, { recursive: true });
  const report = join(folder, `${name.replaceAll("/", "-")}.xml`);
  const started = performance.now();
  const variables = {
    ...env,
    ...(target.isWorkers && { SALLYPORT_UNDER_TEST: "workers" }),
    ...(isElsewhere && { SALLYPORT_TEST_ONCE: "elsewhere" }), // see tests/support/cases.ts
  };
  const maxMs = files.length * MAX_FILE_MS;
  const { code, output, cpuSeconds } = await run(
    target.command,
    toArguments(task, report),
    variables,
    isTimed,
    maxMs,
  );
  let counts: Counts = { passed: 0, failed: 0, skipped: [] };
  try {
    counts = count(readFileSync(report, "utf8"), target.kind === "deno");
  } catch { /* it died before it could report */ }
  // A run that crashed, failed outside any case, or ran no case has failed too.
  const hasRun = code === 0 && counts.passed + counts.skipped.length > 0;
  if (!hasRun && counts.failed === 0) counts.failed = 1;
  return { ...task, counts, output, cpuSeconds, seconds: (performance.now() - started) / 1000 };
}
