/**
 * `npm run check [-- --fix]`: format, lint, docstrings, types, house rules.
 */
import { spawnSync } from "node:child_process";
import process from "node:process";
import { findRuntimes } from "./runtimes.ts";

const isFix = process.argv.includes("--fix");
const deno = findRuntimes().find(({ kind }) => kind === "deno")?.command ?? "deno";
const tsc = [process.execPath, "node_modules/typescript/bin/tsc", "-p"];

const steps: readonly [string, readonly string[]][] = [
  ["format", [deno, "fmt", ...(isFix ? [] : ["--check"]), "--quiet"]],
  ["lint: product", [deno, "lint", "--quiet", "mod.ts", "src"]],
  ["lint: scripts and tests", [deno, "lint", "--quiet", "--rules-exclude=no-console", "scripts", "tests"]],
  ["lint: docstrings of the library", [deno, "doc", "--quiet", "--lint", "mod.ts"]],
  ["types: the core names no runtime", [...tsc, "src"]],
  ["types: everything", [...tsc, "."]],
  ["house rules", [process.execPath, "--test", "--test-reporter=dot", "tests/house_test.ts"]],
];

let failed = 0;
for (const [name, [command = "", ...args]] of steps) {
  const { status } = spawnSync(command, args, { stdio: "inherit" });
  console.log(`${status === 0 ? "ok    " : "FAILED"} ${name}`);
  if (status !== 0) failed++;
}
process.exit(failed === 0 ? 0 : 1);
