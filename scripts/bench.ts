/**
 * `npm run bench -- [--portkey] [--dry] [--quick] [--runtime bun,deno,"node 20"] [--what
 * plain,paced] [--streams 500,5000 [--rate 20]] [--own] [--file dist/sallyport.js] [--rounds 4]
 * [--seconds 2] [--against OTHER_FILE [--starts 5]]`: measures the gateway on each runtime, ten
 * bare lines on the same runtime, its floor, and peers, all in front of one provider. The measured
 * process has one core to itself; the load runs on the other. Readings alternate between the
 * processes. `--portkey` adds Portkey's gateway from npm, `--own` leaves the peers out, and `--dry`
 * only prints how long a run would last.
 *
 * With `--against`, only two builds of the one file are compared with each other, alternately and
 * over several starts, by processor time: a ratio below 1 means that this build needs less.
 *
 * A whole run writes `scripts/bench/results.json`, `chart.svg` and the tables of
 * `docs/performance.md`; a quick or partial one writes to `.cache/bench/`. Measured results are
 * kept even if a later section fails. Ends with 1 when an answer of the gateway was wrong.
 */
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, release } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { drawChart } from "./bench/chart.ts";
import type { Correctness } from "./bench/correctness/checks.ts";
import { estimate, toPlan } from "./bench/estimate.ts";
import { prepareTools, startProvider } from "./bench/load.ts";
import { CACHE, pinSelf } from "./bench/machine.ts";
import { fail, type Options, readOptions } from "./bench/options.ts";
import { toReport } from "./bench/report.ts";
import {
  checkCorrectness,
  KEYS,
  measureAgainst,
  measureAll,
  measureKeys,
  measureMemory,
  measureObservers,
  measureStartUp,
  type Run,
} from "./bench/sections.ts";
import type { Result } from "./bench/session.ts";
import { findPeers, installPortkey } from "./bench/peers.ts";
import { measureWorkers } from "./bench/workers.ts";
import { gatewayOn, readVersion, serverOn, type Subject } from "./bench/subjects.ts";

const options = readOptions();
if (availableParallelism() < 2) fail("it needs two cores");
if (options.isBuilt && !options.isDry) {
  execFileSync(process.execPath, [join("scripts", "build.ts"), "--quiet", "--no-types"], {
    stdio: "inherit",
  });
}
pinSelf();
prepareTools();

const results: Result[] = [];
let correctness: Correctness[] | undefined;

function selectPeers({ hasPeers, hasPortkey, runtimes }: Options): Subject[] {
  const node = runtimes.find(({ kind }) => kind === "node");
  return [
    ...(hasPeers ? findPeers() : []),
    ...(hasPortkey ? [installPortkey(node ?? fail("Portkey needs node"))] : []),
  ];
}

const own = options.runtimes.flatMap((runtime) => [
  serverOn("bare", runtime),
  serverOn("floor", runtime),
  gatewayOn(runtime, options.file, KEYS),
]);
const overTls = [
  ...(options.hasPeers ? findPeers(true) : []),
  ...options.runtimes.flatMap((runtime) => [
    serverOn("bare", runtime, true),
    gatewayOn(runtime, options.file, KEYS, { isTls: true }),
  ]),
];
const subjects = [...selectPeers(options), ...own, ...overTls];

async function measure(run: Run): Promise<void> {
  const { names } = run;
  const sections = await estimate(subjects, run.provider, run);
  console.log(toPlan(sections));
  if (run.isDry) return;
  if (names.has("correct")) correctness = await checkCorrectness(run, subjects);
  if (names.has("startup")) await measureStartUp(run, own);
  await measureAll(run, subjects);
  if (names.has("quiet")) await measureMemory(run);
  if (names.has("keys")) await measureKeys(run);
  if (names.has("observers")) await measureObservers(run);
  if (names.has("workers")) await measureWorkers(run);
}

const provider = await startProvider();
const conclude = (result: Result): void => {
  results.push(result);
  console.log(toReport(result));
};
const run: Run = { ...options, provider, conclude };
let failure: unknown;
try {
  if (options.against === undefined) await measure(run);
  else {
    await measureAgainst(options.against, run);
    if (options.isAnyAsked && options.names.has("quiet")) await measureMemory(run);
  }
} catch (error) {
  failure = error;
} finally {
  await provider.process.stop();
}
if (options.isDry) process.exit(0);

const directory = options.isWhole && failure === undefined ? join("scripts", "bench") : CACHE;
const machine = { cpu: cpus()[0]?.model ?? "", cores: availableParallelism(), kernel: release() };
const versions = Object.fromEntries(
  Array.from(
    Map.groupBy(options.runtimes, ({ kind }) => kind),
    ([kind, all]) => [kind, all.map(({ command }) => readVersion(command)).join(" and ")],
  ),
);
const measuredAt = new Date().toISOString();
const caption = `${
  Object.entries(versions).map((pair) => pair.join(" ")).join(", ")
}; ${machine.cpu}, ${measuredAt.slice(0, 10)}`;
const { effort } = options;
const kept = {
  measuredAt,
  machine,
  versions,
  effort,
  results,
  ...(correctness && { correctness }),
};
writeFileSync(join(directory, "results.json"), JSON.stringify(kept, null, 2) + "\n");
writeFileSync(join(directory, "chart.svg"), drawChart(results, caption));
console.log(`\nwritten: ${join(directory, "results.json")} and chart.svg`);
if (failure !== undefined) throw failure;
if (options.isWhole) {
  execFileSync(process.execPath, [join("scripts", "docs.ts"), "tables"], { stdio: "inherit" });
}
rmSync(join(CACHE, "logs"), { recursive: true, force: true });
const wrong = results.flatMap(({ rows }) =>
  rows.filter(({ subject, objections }) =>
    /^gateway /.test(subject) && objections.some((text) => /wrong/.test(text))
  )
);
process.exit(wrong.length === 0 ? 0 : 1);
