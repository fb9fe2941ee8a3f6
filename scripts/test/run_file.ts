/** Runs one test file on one runtime, as a process of its own, and counts what its report says. */
import { Buffer } from "node:buffer";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import type { Target, Task } from "./plan.ts";
import { hasReason, readTitle } from "./skipped.ts";

/** Where the reports are, in a folder for each runtime. */
export const REPORTS: string = join(".cache", "tests");
/** Files without their types, for a Node that can't take them off itself. */
export const TRANSPILED: string = join(".cache", "node");
/** Beyond this a file is stuck: its output so far is shown and it counts as failed. */
const MAX_FILE_MS = 5 * 60_000;

/** What became of the cases of a file, or of many. */
export interface Counts {
  passed: number;
  failed: number;
  /** Titles. */
  skipped: string[];
}

/** What became of one file. */
export interface FileResult extends Task {
  readonly counts: Counts;
  readonly output: string;
  readonly seconds: number;
}

function toArguments({ kind, runsTypeScript }: Target, file: string, report: string): string[] {
  if (kind === "deno") {
    // With SALLYPORT_TEST_JSR=1 @std/testing comes from JSR; else its stand-in is used.
    const map = process.env.SALLYPORT_TEST_JSR === "1" ? [] : ["--import-map=tests/support/import_map.json"];
    return ["test", "-A", "--no-check", "--quiet", ...map, `--junit-path=${report}`, file];
  }
  if (kind === "bun") {
    return ["test", "--timeout=60000", "--reporter=junit", `--reporter-outfile=${report}`, `./${file}`];
  }
  return [
    "--test-reporter=spec",
    "--test-reporter-destination=stdout",
    "--test-reporter=junit",
    `--test-reporter-destination=${report}`,
    runsTypeScript ? file : join(TRANSPILED, file.replace(/\.ts$/, ".mjs")),
  ];
}

/** Counts the cases of a JUnit report. Deno reports a `describe` as a case of the file beside its own cases. */
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

/**
 * Runs a program to its end, which is forced when it takes too long.
 *
 * @returns Its status, and everything that it said
 */
export function run(command: string, args: string[], env = {}): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    const chunks: Buffer[] = [];
    child.stdout.on("data", (data: Buffer) => chunks.push(data));
    child.stderr.on("data", (data: Buffer) => chunks.push(data));
    const timer = setTimeout(() => child.kill("SIGKILL"), MAX_FILE_MS);
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve({ code: code ?? 1, output: Buffer.concat(chunks).toString() });
    });
  });
}

/** Runs a file. */
export async function runFile({ target, file }: Task, env: Record<string, string>): Promise<FileResult> {
  const folder = join(REPORTS, target.label);
  mkdirSync(folder, { recursive: true });
  const report = join(folder, `${file.replaceAll("/", "-")}.xml`);
  const started = performance.now();
  const { code, output } = await run(target.command, toArguments(target, file, report), {
    ...env,
    ...(target.isWorkers && { SALLYPORT_UNDER_TEST: "workers" }),
  });
  let counts: Counts = { passed: 0, failed: 0, skipped: [] };
  try {
    counts = count(readFileSync(report, "utf8"), target.kind === "deno");
  } catch { /* it died before it could report */ }
  // A run that died, or failed outside of any case, or that ran nothing, has failed too.
  const hasRun = code === 0 && counts.passed + counts.skipped.length > 0;
  if (!hasRun && counts.failed === 0) counts.failed = 1;
  return { target, file, counts, output, seconds: (performance.now() - started) / 1000 };
}
