/**
 * `npm test [-- --runtime deno,bun,"node 26",workers] [FILE...]`: every test file on every runtime, and a table of the counts.
 */
import { Buffer } from "node:buffer";
import { spawn } from "node:child_process";
import { globSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { createSelfSignedCertificate } from "../src/cli/demo/certificate.ts";
import { WORKERS_CASES } from "../tests/support/workers_cases.ts";
import { findRuntimes, type RuntimeOnMachine } from "./runtimes.ts";
import { describeSkipped, hasReason, readTitle } from "./skipped.ts";

const CACHE = ".cache";
/** It is good for a week; a run that goes on beside this one keeps its own. */
const MAX_CERTIFICATE_AGE_MS = 5 * 24 * 3_600_000;
/** Beyond this a run is stuck: its output so far is shown and it counts as failed. */
const MAX_RUN_MS = 12 * 60_000;
/** Runtimes that are tested side by side: tests wait more than they work. */
const AT_ONCE = 2;

interface Counts {
  passed: number;
  failed: number;
  /** Titles. */
  skipped: string[];
}

/** A certificate that all runtimes trust in one and the same way, so that tests use https without a word of code. */
function prepareTls(): Record<string, string> {
  const directory = join(process.cwd(), CACHE, "tls");
  mkdirSync(directory, { recursive: true });
  const made = statSync(join(directory, "cert.pem"), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if (Date.now() - made > MAX_CERTIFICATE_AGE_MS) {
    const { cert, key } = createSelfSignedCertificate(["localhost", "127.0.0.1", "a.localhost", "b.localhost"]);
    writeFileSync(join(directory, "key.pem"), key, { mode: 0o600 });
    writeFileSync(join(directory, "cert.pem"), cert);
  }
  return { SALLYPORT_TEST_TLS: directory, NODE_EXTRA_CA_CERTS: join(directory, "cert.pem") };
}

/** Tests of the Worker alone. */
const WORKERS_TESTS = "tests/workers/";

/** One column of the table: a runtime, or the newest Node with workerd behind the tests. */
interface Target extends RuntimeOnMachine {
  readonly isWorkers: boolean;
}

function findTargets(): Target[] {
  const runtimes = findRuntimes();
  const newest = runtimes.find(({ kind, runsTypeScript }) => kind === "node" && runsTypeScript);
  return [
    ...runtimes.map((runtime) => ({ ...runtime, isWorkers: false })),
    ...(newest === undefined ? [] : [{ ...newest, label: "workers", isWorkers: true }]),
  ];
}

/**
 * What a Node that can't run the sources is tested for: calls and connections, faults, files that are written, and the
 * package. The rest is the same code on the same engine as on the newest Node.
 */
const OLD_NODE_TESTS = /^tests\/(?:exchange|upstream|faults|storage|serve|clients|packaging)\/|^tests\/cli\/serve_test/;

/** The rules of the house read the sources by TypeScript's own parser, which starts on Node alone. */
const HOUSE_TEST = "tests/house_test.ts";

/** What of these files a target runs; those that are named by the user, wherever that is possible. */
function filesOf({ kind, isWorkers, runsTypeScript }: Target, all: readonly string[]): string[] {
  if (isWorkers) return all.filter((file) => file.startsWith(WORKERS_TESTS) || file in WORKERS_CASES);
  const own = all.filter((file) => !file.startsWith(WORKERS_TESTS) && (kind === "node" || file !== HOUSE_TEST));
  return runsTypeScript || isPart ? own : own.filter((file) => OLD_NODE_TESTS.test(file));
}

/** Takes cases out that make no sense on Workers. A name may hold `${…}`, as it does in the source. */
function toSkipPatterns(files: readonly string[]): string[] {
  const names = files.flatMap((file) => Object.keys(WORKERS_CASES[file] ?? {}));
  return names.map((name) => {
    const pattern = name.replace(/[.*+?^()|[\]\\]/g, "\\$&").replace(/\$\{\w+\}/g, ".*");
    return `--test-skip-pattern=/${pattern}$/`;
  });
}

/** The same files, their types taken off, for a Node that can't do so itself. */
async function transpile(files: string[]): Promise<string[]> {
  const outdir = join(CACHE, "node");
  rmSync(outdir, { recursive: true, force: true });
  await build({
    entryPoints: files,
    outdir,
    outbase: ".",
    bundle: true,
    packages: "external",
    format: "esm",
    platform: "node",
    target: "node20",
    outExtension: { ".js": ".mjs" },
    define: { "import.meta.main": "false" },
    logLevel: "warning",
  });
  return files.map((file) => join(outdir, file.replace(/\.ts$/, ".mjs")));
}

/** Whether the real `@std/testing` can be had; else its stand-in is used. */
function hasJsr(): boolean {
  return process.env.SALLYPORT_TEST_JSR === "1";
}

async function toCommand(
  { kind, runsTypeScript, isWorkers }: Target,
  files: string[],
  junit: string,
): Promise<string[]> {
  if (kind === "deno") {
    const map = hasJsr() ? [] : ["--import-map=tests/support/import_map.json"];
    return ["test", "-A", "--no-check", "--quiet", ...map, `--junit-path=${junit}`, ...files];
  }
  if (kind === "bun") {
    const paths = files.map((file) => `./${file}`);
    return ["test", "--timeout=60000", "--reporter=junit", `--reporter-outfile=${junit}`, ...paths];
  }
  const reporters = [
    "--test-reporter=spec",
    "--test-reporter-destination=stdout",
    "--test-reporter=junit",
    `--test-reporter-destination=${junit}`,
  ];
  const paths = runsTypeScript ? files : await transpile(files);
  const skipped = isWorkers ? toSkipPatterns(files) : [];
  return ["--test", "--test-concurrency=1", "--test-timeout=120000", ...skipped, ...reporters, ...paths];
}

/** Counts the cases of a JUnit report. Deno reports a `describe` as a case of the file beside its own cases. */
function count(junit: string, isDeno: boolean): Counts | undefined {
  let report: string;
  try {
    report = readFileSync(junit, "utf8");
  } catch {
    return undefined;
  }
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

function run(command: string, args: string[], env: Record<string, string>): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    const chunks: Buffer[] = [];
    child.stdout.on("data", (data: Buffer) => chunks.push(data));
    child.stderr.on("data", (data: Buffer) => chunks.push(data));
    const timer = setTimeout(() => child.kill("SIGKILL"), MAX_RUN_MS);
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve({ code: code ?? 1, output: Buffer.concat(chunks).toString() });
    });
  });
}

const { values, positionals } = parseArgs({
  options: { runtime: { type: "string" }, verbose: { type: "boolean", default: false } },
  allowPositionals: true,
});
const wanted = values.runtime?.split(",").map((name) => name.trim());
const isPart = positionals.length > 0;
const files = isPart ? positionals : globSync("tests/**/*_test.ts").sort();
const runtimes = findTargets().filter((target) =>
  (wanted?.some((name) => name === target.label || (name === target.kind && !target.isWorkers)) ?? true) &&
  (files.length === 0 || filesOf(target, files).length > 0)
);
if (files.length === 0 || runtimes.length === 0) {
  console.error('test: nothing to run; --runtime takes deno, bun, node, workers, or a label such as "node 20"');
  process.exit(2);
}
const env = prepareTls();
const builder = await run(process.execPath, ["scripts/build.ts", "--quiet", "--no-types"], {});
if (builder.code !== 0) {
  console.error(builder.output);
  process.exit(1);
}

const rows = new Map<string, [Counts, number]>();
// The one with the most to do goes first: the others share what is left of the time.
const isLongest = ({ kind, runsTypeScript, isWorkers }: Target) => kind === "node" && runsTypeScript && !isWorkers;
const waiting = [...runtimes.filter(isLongest), ...runtimes.filter((target) => !isLongest(target))];

async function runOne(runtime: Target): Promise<void> {
  const junit = join(CACHE, `${runtime.label.replace(" ", "-")}.xml`);
  rmSync(junit, { force: true });
  const started = performance.now();
  const command = await toCommand(runtime, filesOf(runtime, files), junit);
  const own = runtime.isWorkers ? { ...env, SALLYPORT_UNDER_TEST: "workers" } : env;
  const { code, output } = await run(runtime.command, command, own);
  const counts = count(junit, runtime.kind === "deno") ?? { passed: 0, failed: 0, skipped: [] };
  // A run that died, or failed outside of any case, or that ran nothing, has failed too.
  if (counts.failed === 0 && (code !== 0 || counts.passed === 0)) counts.failed = 1;
  if (counts.failed > 0 || values.verbose) console.log(`---- ${runtime.label}\n${output}`);
  rows.set(runtime.label, [counts, (performance.now() - started) / 1000]);
  console.log(`${runtime.label}: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped.length} skipped`);
}

async function runNext(): Promise<void> {
  for (let runtime = waiting.shift(); runtime !== undefined; runtime = waiting.shift()) await runOne(runtime);
}
await Promise.all(Array.from({ length: Math.min(AT_ONCE, availableParallelism()) }, runNext));

const total = (of: (counts: Counts) => number) => [...rows.values()].reduce((sum, [counts]) => sum + of(counts), 0);
const [passed, failed] = [total((counts) => counts.passed), total((counts) => counts.failed)];
console.log("\nruntime    passed  failed  skipped  seconds");
for (const { label } of runtimes) {
  const [counts, seconds] = rows.get(label) ?? [{ passed: 0, failed: 1, skipped: [] }, 0];
  const cells = [counts.passed, counts.failed, counts.skipped.length].map((number) => String(number).padStart(8)).join(
    "",
  );
  console.log(`${label.padEnd(9)}${cells}${seconds.toFixed(1).padStart(9)}`);
}
console.log(describeSkipped(new Map(runtimes.map(({ label }) => [label, rows.get(label)?.[0].skipped ?? []]))));
console.log(`${passed} passed, ${failed} failed, ${total(({ skipped }) => skipped.length)} skipped`);
process.exit(failed > 0 || passed === 0 ? 1 : 0);
