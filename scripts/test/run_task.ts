/** Runs test files on one runtime, in one process, and counts what its report says. */
import { Buffer } from "node:buffer";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import type { Readable } from "node:stream";
import type { Task } from "./plan.ts";
import { hasReason, readTitle } from "./skipped.ts";

/** Where the reports are, in a folder for each runtime. */
export const REPORTS: string = resolve(".cache", "tests");
/** Files without their types, for a Node that can't take them off itself. */
export const TRANSPILED: string = join(".cache", "node");
/**
 * Beyond this, for each of its files, a process is stuck: its output so far is shown and it counts
 * as failed.
 */
const MAX_FILE_MS = 5 * 60_000;

/**
 * For bash: runs a command, then says on descriptor 3 how much CPU it and all that it started have
 * used.
 */
const TIMED = '"$0" "$@" 3>&-; code=$?; times >&3; exit $code';

/** What became of the cases of a file, or of many. */
export interface Counts {
  passed: number;
  failed: number;
  /** Titles. */
  skipped: string[];
}

/** What became of a task. */
export interface TaskResult extends Task {
  readonly counts: Counts;
  readonly output: string;
  readonly seconds: number;
  /** Seconds of the CPU, of all that it has started too; 0 where it is not measured. */
  readonly cpuSeconds: number;
}

/** Where a task stands without its types, for a Node that can't take them off itself. */
export const transpiledName = ({ name }: Task): string => name.replace(/\.ts$/, "");

function toArguments(task: Task, report: string): string[] {
  const { target: { kind, runsTypeScript }, entry } = task;
  if (kind === "deno") {
    // With SALLYPORT_TEST_JSR=1 @std/testing comes from JSR; else its stand-in is used.
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
 * Counts the cases of a JUnit report. Deno reports a `describe` as a case of the file beside its
 * own cases.
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

/** Adds up what bash says of times, such as `0m1.500s 0m0.250s`. */
function addTimes(text: string): number {
  return Array.from(
    text.matchAll(/(\d+)m([\d.]+)s/g),
    ([, minutes, seconds]) => 60 * Number(minutes) + Number(seconds),
  )
    .reduce((sum, each) => sum + each, 0);
}

/** Groups of the processes that run; what a program has started belongs to its group. */
const groups = new Set<number>();

/** Ends all that is left of a group. */
function endGroup(group: number): void {
  groups.delete(group);
  try {
    process.kill(-group, "SIGKILL");
  } catch { /* nothing is left */ }
}

// A terminal interrupts its own group only.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.once(signal, () => process.exit(1));
}
process.on("exit", () => groups.forEach(endGroup));

/**
 * Runs a program to its end, which is forced when it takes too long. What it leaves behind, such as
 * a server that a failed test did not stop, is ended with it: that would keep its output open.
 *
 * @param isTimed Whether its CPU is measured, by bash on Linux
 * @returns Its status, everything that it said, and the seconds of CPU
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
      detached: true, // in a group of its own
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

/** Runs the files of a task. @param isTimed Whether its CPU is measured */
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
  // A run that died, or failed outside of any case, or that ran nothing, has failed too.
  const hasRun = code === 0 && counts.passed + counts.skipped.length > 0;
  if (!hasRun && counts.failed === 0) counts.failed = 1;
  return { ...task, counts, output, cpuSeconds, seconds: (performance.now() - started) / 1000 };
}
