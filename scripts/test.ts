/**
 * `npm test [-- --quick] [--runtime deno,bun,"node 26",workers] [--times] [FILE...]`: runs every
 * test file on the runtimes that it names ({@link ./test/plan.ts}), and prints a table of the
 * counts and of the CPU time. `--quick` runs on the newest Node and Bun only, without files that
 * start programs, measure time or need seconds. `--times` also prints the CPU time of each file on
 * each runtime.
 */
import { globSync, mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { createSelfSignedCertificate } from "../src/cli/demo/certificate.ts";
import {
  findTargets,
  isAlone,
  isLong,
  isNewestNode,
  planTasks,
  runsOn,
  startsPrograms,
  type Target,
  type Task,
} from "./test/plan.ts";
import {
  REPORTS,
  run,
  runTask,
  type TaskResult,
  TRANSPILED,
  transpiledName,
} from "./test/run_task.ts";
import { runSideBySide } from "./test/side_by_side.ts";
import { describeSkipped } from "./test/skipped.ts";
import { describeTimes } from "./test/times.ts";

const CACHE = ".cache";
/** Folder of Node's compile cache: test files import mostly the same modules. */
const COMPILED = join(process.cwd(), CACHE, "compiled");
/** A certificate is valid for a week. A run in parallel with this one can still use it. */
const MAX_CERTIFICATE_AGE_MS = 5 * 24 * 3_600_000;
/** Number of files that `--times` lists. */
const SLOWEST = Number(process.env.SLOWEST ?? 20);

/**
 * Makes a certificate that all runtimes trust in the same way, so that tests can use https without
 * extra code.
 */
function prepareTls(): Record<string, string> {
  const directory = join(process.cwd(), CACHE, "tls");
  mkdirSync(directory, { recursive: true });
  const made = statSync(join(directory, "cert.pem"), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if (Date.now() - made > MAX_CERTIFICATE_AGE_MS) {
    const { cert, key } = createSelfSignedCertificate([
      "localhost",
      "127.0.0.1",
      "a.localhost",
      "b.localhost",
    ]);
    writeFileSync(join(directory, "key.pem"), key, { mode: 0o600 });
    writeFileSync(join(directory, "cert.pem"), cert);
  }
  return { SALLYPORT_TEST_TLS: directory, NODE_EXTRA_CA_CERTS: join(directory, "cert.pem") };
}

/** Removes the types, for a Node that cannot do so itself. */
async function transpile(tasks: readonly Task[]): Promise<void> {
  rmSync(TRANSPILED, { recursive: true, force: true });
  await build({
    entryPoints: tasks.map((task) => ({ in: task.entry, out: transpiledName(task) })),
    outdir: TRANSPILED,
    bundle: true,
    packages: "external",
    format: "esm",
    platform: "node",
    target: "node20",
    outExtension: { ".js": ".mjs" },
    define: { "import.meta.main": "false" },
    logLevel: "warning",
  });
}

const { values, positionals } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    runtime: { type: "string" },
    times: { type: "boolean", default: false },
    verbose: { type: "boolean", default: false },
  },
  allowPositionals: true,
});
const wanted = values.runtime?.split(",").map((name) => name.trim());

function isWanted({ label, kind, isWorkers, runsTypeScript }: Target): boolean {
  if (values.quick) return !isWorkers && kind !== "deno" && runsTypeScript;
  return wanted?.some((name) => name === label || (name === kind && !isWorkers)) ?? true;
}

/** All test files of the folders and the files that the user named. */
const folders = positionals.length > 0 ? positionals : ["tests"];
const all = folders.flatMap((path) =>
  statSync(path).isDirectory() ? globSync(join(path, "**/*_test.ts")).sort() : [path]
);

/**
 * The files of a target. A file that is named together with a runtime runs there, regardless of its
 * line `// runtimes: …`.
 */
function filesOf(target: Target): string[] {
  const isOwn = (file: string) =>
    runsOn(target, file) || (isNamed && !target.isWorkers && positionals.includes(file));
  return all.filter((file) =>
    isOwn(file) && !(values.quick && (startsPrograms(file) || isAlone(file)))
  );
}

/**
 * Sorts tasks so that the longest start first, so that no long task runs alone at the end: files
 * marked `long`, Workers, which are started for each case, then files that share a process.
 */
function rankOf({ target, files }: Task): number {
  if (target.isWorkers || files.some(isLong)) return 0;
  return files.length > 1 ? 1 : 2;
}

const targets = findTargets();
const newest = targets.find(isNewestNode);
const isNamed = positionals.length > 0 && wanted !== undefined;
const tasks: Task[] = targets.filter(isWanted)
  .flatMap((target) => {
    const isElsewhere = (file: string) =>
      !isNamed && newest !== undefined && target !== newest && runsOn(newest, file);
    return planTasks(target, filesOf(target), isElsewhere);
  })
  .sort((one, other) => rankOf(one) - rankOf(other));
if (tasks.length === 0) {
  console.error(
    'test: nothing to run; --runtime takes deno, bun, node, workers, or a label such as "node 20"',
  );
  process.exit(2);
}
/** True if bash reports the CPU time of a file, in the units of Linux. */
const isTimed = process.platform === "linux";
const env = {
  ...prepareTls(),
  NODE_COMPILE_CACHE: COMPILED,
  ...(values.quick && { SALLYPORT_TEST_QUICK: "1" }), // see tests/support/cases.ts
};
for (const folder of [REPORTS, COMPILED]) rmSync(folder, { recursive: true, force: true });
const builder = await run(process.execPath, ["scripts/build.ts", "--quiet", "--no-types"]);
if (builder.code !== 0) {
  console.error(builder.output);
  process.exit(1);
}
const untyped = tasks.filter(({ target }) => !target.runsTypeScript);
if (untyped.length > 0) await transpile(untyped);

const results: TaskResult[] = [];
async function runAndTell(task: Task): Promise<void> {
  const result = await runTask(task, env, isTimed);
  results.push(result);
  const { target: { label }, files, counts, output, seconds } = result;
  if (counts.failed > 0 || values.verbose) {
    console.log(`---- ${files.join(" ")} on ${label}, ${seconds.toFixed(1)} s\n${output}`);
  }
}
const cores = availableParallelism();
const isForItself = ({ files }: Task) => files.some(isAlone);
await runSideBySide(
  tasks.filter((task) => !isForItself(task)),
  { least: cores, most: 3 * cores, idle: 0.15 },
  runAndTell,
);
await runSideBySide(
  tasks.filter(isForItself),
  { least: 1, most: 2 * cores, idle: 0.5 },
  runAndTell,
);

/** Adds up the results of files. */
function sumUp(of: readonly TaskResult[]) {
  const sum = (count: (result: TaskResult) => number) =>
    of.reduce((total, result) => total + count(result), 0);
  return {
    passed: sum(({ counts }) => counts.passed),
    failed: sum(({ counts }) => counts.failed),
    skipped: of.flatMap(({ counts }) => counts.skipped),
    files: sum(({ files }) => files.length),
    seconds: sum(({ seconds }) => seconds),
    cpuSeconds: sum(({ cpuSeconds }) => cpuSeconds),
  };
}

if (values.times) console.log(describeTimes(results, SLOWEST));
const byLabel = Map.groupBy(results, ({ target }) => target.label);
const rows = findTargets().flatMap(({ label }) => {
  const of = byLabel.get(label);
  return of === undefined ? [] : [{ label, ...sumUp(of) }];
});
console.log(`\nruntime    files  passed  failed  skipped  seconds${isTimed ? "      CPU" : ""}`);
for (const { label, files, passed, failed, skipped, seconds, cpuSeconds } of rows) {
  const cells = [files, passed, failed, skipped.length].map((number) => String(number).padStart(8));
  const times = [seconds, ...(isTimed ? [cpuSeconds] : [])].map((time) =>
    time.toFixed(1).padStart(9)
  );
  console.log(`${label.padEnd(8)}${cells.join("")}${times.join("")}`);
}
if (isTimed) {
  const used = results.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0);
  const share = (100 * used) / (cores * performance.now() / 1000);
  console.log(`${used.toFixed(0)} s of CPU, ${share.toFixed(0)} % of all cores`);
}
console.log(describeSkipped(new Map(rows.map(({ label, skipped }) => [label, skipped]))));
const { passed, failed, skipped } = sumUp(results);
console.log(`${performance.now() / 1000 | 0} s on ${cores} cores`);
console.log(`${passed} passed, ${failed} failed, ${skipped.length} skipped`);
process.exit(failed > 0 || passed === 0 ? 1 : 0);
