/**
 * `npm run check [-- --fix]`: format, lint, docstrings, types, house rules, words.
 */
import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import process from "node:process";
import { ONE_CHECKER } from "./compiler.ts";
import { formatPages } from "./docs/page_format.ts";
import { findRuntimes } from "./runtimes.ts";

const isFix = process.argv.includes("--fix");
const deno = findRuntimes().find(({ kind }) => kind === "deno")?.command ?? "deno";
const tsc = [process.execPath, "node_modules/typescript/bin/tsc", ...ONE_CHECKER, "-p"];

/** The slowest steps first, after the format. */
const steps: readonly (readonly [name: string, command: readonly string[]])[] = [
  ["format", [deno, "fmt", ...(isFix ? [] : ["--check"]), "--quiet"]],
  ["house rules", [process.execPath, "--test", "--test-reporter=dot", "tests/house_test.ts"]],
  ["types: everything", [...tsc, "."]],
  ["words", [process.execPath, "scripts/words.ts"]],
  ["types: the core names no runtime", [...tsc, "src"]],
  ["lint: docstrings of the library", [deno, "doc", "--quiet", "--lint", "mod.ts"]],
  ["lint: product", [deno, "lint", "--quiet", "mod.ts", "src"]],
  ["lint: scripts and tests", [
    deno,
    "lint",
    "--quiet",
    "--rules-exclude=no-console",
    "scripts",
    "tests",
  ]],
];

/** Runs a step and prints its output. @returns True if it succeeded */
function runStep([name, [command = "", ...args]]: typeof steps[number]): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => said += text);
    }
    child.on("close", (status) => {
      process.stdout.write(status === 0 ? "" : said);
      console.log(`${status === 0 ? "ok    " : "FAILED"} ${name}`);
      resolve(status === 0);
    });
  });
}

/** Checks the format of the pages. @returns True if all pages are formatted */
function checkPages(): boolean {
  const pages = formatPages(deno, isFix);
  const isGood = isFix || pages.length === 0;
  if (!isGood) console.log(`not formatted: ${pages.join(", ")} (npm run check -- --fix)`);
  console.log(`${isGood ? "ok    " : "FAILED"} format of pages`);
  return isGood;
}

/** Runs the waiting steps, one after the other. */
async function runSteps(waiting: (typeof steps[number])[]): Promise<boolean> {
  let isGood = true;
  for (let step = waiting.shift(); step !== undefined; step = waiting.shift()) {
    isGood = await runStep(step) && isGood;
  }
  return isGood;
}

// The formatter runs first; then as many steps run in parallel as there are cores.
const [format, ...others] = steps;
const hasFormat = (format === undefined || await runStep(format)) && checkPages();
const waiting = [...others];
const good = await Promise.all(
  Array.from({ length: availableParallelism() }, () => runSteps(waiting)),
);
process.exit(hasFormat && good.every(Boolean) ? 0 : 1);
