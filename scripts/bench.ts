/**
 * `npm run bench -- [--quick] [--runtime bun,deno,"node 20"] [--what plain,paced] [--streams 500,5000 [--rate 20]]
 * [--own | --portkey] [--file dist/sallyport.js] [--rounds 5] [--seconds 3] [--against OTHER_FILE [--starts 5]]`: the gateway
 * on each runtime, beside ten bare lines on the same runtime, its floor, and peers, all in front of one provider. Each
 * has one core to itself; the load has the other. The readings take turns. `--own` leaves the peers out.
 *
 * With `--against`, only two builds of the one file are compared with each other, in turns and over several starts, by
 * processor time: below 1 this build takes less.
 *
 * A whole run writes `scripts/bench/results.json` and `chart.svg`; a quick or partial one writes to `.cache/bench/`.
 * Ends with 1 when an answer was wrong.
 */
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, release } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { drawChart } from "./bench/chart.ts";
import { asSubject, prepareTools, type Provider, startProvider } from "./bench/load.ts";
import { CACHE, pinSelf, readRss } from "./bench/machine.ts";
import {
  byCpu,
  createKeyMeasurement,
  createMeasurements,
  createObserverMeasurement,
  KEY_CURVE,
  type Measurement,
  type MeasurementName,
  MEASUREMENTS,
  type Paced,
  PACED_CURVE,
  QUICK,
  toDelays,
  toRate,
} from "./bench/measurements.ts";
import { boundStreams, measureQuiet, QUIET_STARTS, QUIET_STREAMS, toAddresses } from "./bench/quiet.ts";
import { toReport } from "./bench/report.ts";
import {
  conclude,
  concludePlainly,
  type Effort,
  measurePair,
  type Result,
  type Series,
  takeTurns,
} from "./bench/session.ts";
import {
  findHaproxy,
  findNginx,
  gatewayOn,
  installPortkey,
  readVersion,
  type RunningSubject,
  selectRuntimes,
  serverOn,
  startSubject,
  type Subject,
} from "./bench/subjects.ts";
import { buildUnobserved } from "./bench/unobserved.ts";

/** Gateway keys of every run but the key curve. */
const KEYS = 1000;
/** What two builds are compared by. */
const AGAINST: ReadonlySet<MeasurementName> = new Set(["plain", "streamed", "conversation", "paced"]);
const STARTS = 5;
/** Each stream takes the gateway two file descriptors and two ports. */
const MAX_STREAMS = 100_000;
const FULL: Effort = { rounds: 5, seconds: 3, warmUpSeconds: 5 };
const FAST: Effort = { rounds: 3, seconds: 1, warmUpSeconds: 4 };

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    runtime: { type: "string" },
    what: { type: "string" },
    streams: { type: "string" },
    rate: { type: "string" },
    own: { type: "boolean", default: false },
    portkey: { type: "boolean", default: false },
    file: { type: "string" },
    against: { type: "string" },
    rounds: { type: "string" },
    seconds: { type: "string" },
    starts: { type: "string" },
  },
});

function fail(message: string): never {
  console.error(`bench: ${message}`);
  process.exit(2);
}

function readNames(text: string | undefined): ReadonlySet<MeasurementName> {
  if (text === undefined) return new Set(values.quick ? QUICK : MEASUREMENTS);
  const isName = (name: string): name is MeasurementName => MEASUREMENTS.some((each) => each === name);
  return new Set(
    text.split(",").map((name) => {
      const trimmed = name.trim();
      return isName(trimmed) ? trimmed : fail(`--what takes ${MEASUREMENTS.join(", ")}`);
    }),
  );
}

function readCount(text: string | undefined, fallback: number, max = 60): number {
  const number = Number(text ?? fallback);
  return Number.isInteger(number) && number >= 1 && number <= max
    ? number
    : fail(`expected a whole number from 1 to ${max}`);
}

function readEffort(): Effort {
  const { rounds, seconds, warmUpSeconds } = values.quick ? FAST : FULL;
  return { rounds: readCount(values.rounds, rounds), seconds: readCount(values.seconds, seconds), warmUpSeconds };
}

/** Numbers of open streams, each with its events a second. */
function readCurve(): readonly Paced[] {
  if (values.streams === undefined) return PACED_CURVE;
  return values.streams.split(",").map((text) => {
    const streams = readCount(text, 0, MAX_STREAMS);
    return { streams, rate: Number(values.rate ?? toRate(streams)) };
  });
}

const names = readNames(values.what);
const effort = readEffort();
const curve = readCurve();
const runtimes = selectRuntimes(values.runtime?.split(",").map((name) => name.trim()));
if (runtimes.length === 0) fail("--runtime takes bun, deno or node");
if (availableParallelism() < 2) fail("it needs two cores");
const file = values.file ?? join("dist", "sallyport.js");
if (values.file === undefined) {
  execFileSync(process.execPath, [join("scripts", "build.ts"), "--quiet", "--no-types"], { stdio: "inherit" });
}
pinSelf();
prepareTools();

const results: Result[] = [];
const conclusion = (result: Result): void => {
  results.push(result);
  console.log(toReport(result));
};

/** From the start of a process to its first answer. */
async function measureStartUp(subjects: readonly Subject[], provider: Provider): Promise<void> {
  const figures = subjects.map(({ name }) => ({ subject: name, readings: [] as number[] }));
  for (let round = 0; round < STARTS; round++) {
    for (const [index, subject] of subjects.entries()) {
      const running = await startSubject(subject, provider.url);
      figures[index]?.readings.push(running.startUpMs);
      await running.process.stop();
    }
  }
  conclusion(concludePlainly({ name: "startup", title: "from the start to the first answer", unit: "ms" }, figures));
}

/** The gateway with few keys and with many, against itself. */
async function measureKeys(provider: Provider): Promise<void> {
  for (const runtime of runtimes) {
    const all: Series[] = [];
    const running: RunningSubject[] = [];
    try {
      for (const keys of KEY_CURVE) running.push(await startSubject(gatewayOn(runtime, file, keys), provider.url));
      const measurement = await createKeyMeasurement(provider, KEYS);
      all.push(...await takeTurns(measurement, [asSubject(provider), ...running], effort));
      const toName = (keys: number | undefined) => `gateway ${runtime.label}, ${keys?.toLocaleString("en")} keys`;
      const series = all.map((each, index) =>
        index === 0
          ? each
          : { ...each, name: toName(KEY_CURVE[index - 1]), base: index === 1 ? undefined : toName(KEY_CURVE[0]) }
      );
      conclusion(conclude({ ...measurement, title: `plain, by number of keys` }, series));
    } finally {
      for (const { process: child } of running) await child.stop();
    }
  }
}

/** Quiet streams: this build beside bare lines, or beside another one. */
async function measureMemory(provider: Provider): Promise<void> {
  const streams = boundStreams(curve === PACED_CURVE ? QUIET_STREAMS : Math.max(...curve.map((each) => each.streams)));
  const addresses = toAddresses(streams);
  const subjects = runtimes.flatMap((runtime) => {
    const gateway = gatewayOn(runtime, file, KEYS, addresses);
    if (values.against === undefined) return addresses === 1 ? [serverOn("bare", runtime), gateway] : [gateway];
    const base = `previous ${runtime.label}`;
    return [{ ...gatewayOn(runtime, values.against, KEYS, addresses), name: base }, { ...gateway, base }];
  });
  const starts = readCount(values.starts, values.quick ? 1 : QUIET_STARTS);
  conclusion(await measureQuiet(subjects, { streams, starts, provider }));
}

/** The gateway with what watches exchanges and without, against itself. */
async function measureObservers(provider: Provider): Promise<void> {
  const unobserved = await buildUnobserved();
  const measurement = await createObserverMeasurement(provider);
  for (const runtime of runtimes) {
    const base = `unobserved ${runtime.label}`;
    const pair = [{ ...gatewayOn(runtime, unobserved, KEYS), name: base }, { ...gatewayOn(runtime, file, KEYS), base }];
    for (const result of await measurePair(pair, [measurement], { provider, starts: STARTS, effort })) {
      conclusion(result);
    }
  }
}

/** This build against another one: processor time for a call, a stream of 20 events, and an event of a paced stream. */
async function measureAgainst(other: string, provider: Provider): Promise<void> {
  const measurements = await createMeasurements(provider, values.what === undefined ? AGAINST : names, curve);
  const all = measurements.map((each) => each.isThroughput ? byCpu(each) : each);
  const starts = readCount(values.starts, STARTS);
  for (const runtime of runtimes) {
    const base = `previous ${runtime.label}`;
    const pair = [
      { ...gatewayOn(runtime, other, KEYS), name: base },
      { ...gatewayOn(runtime, file, KEYS), name: `this ${runtime.label}`, base },
    ];
    for (const result of await measurePair(pair, all, { provider, starts, effort })) conclusion(result);
  }
}

/** Everything that takes turns between subjects that stay up. */
async function measureAll(subjects: readonly Subject[], provider: Provider): Promise<void> {
  const measurements = await createMeasurements(provider, names, curve);
  if (measurements.length === 0 && !names.has("memory")) return;
  const running: RunningSubject[] = [];
  try {
    for (const subject of subjects) running.push(await startSubject(subject, provider.url));
    for (const measurement of measurements) await measureOne(measurement, running, provider);
    if (names.has("memory")) {
      const figures = running.map(({ name, process: { pid } }) => ({ subject: name, readings: [readRss(pid) / 1e6] }));
      conclusion(concludePlainly({ name: "memory", title: "RSS after all of this", unit: "MB" }, figures));
    }
  } finally {
    for (const { process: child } of running) await child.stop();
  }
}

async function measureOne(
  measurement: Measurement,
  running: readonly RunningSubject[],
  provider: Provider,
): Promise<void> {
  const subjects = running.filter(({ subject: { isExact, isFloor } }) =>
    (isExact || measurement.isLong !== true) && (isFloor !== true || measurement.hasFloor === true)
  );
  const withProvider = measurement.isThroughput ? [asSubject(provider), ...subjects] : subjects;
  const all = await takeTurns(measurement, withProvider, effort);
  conclusion(conclude(measurement, all));
  const delays = toDelays(measurement, all);
  if (delays !== undefined) conclusion(conclude(...delays));
}

const peers = [
  ...(values.own ? [] : [...findNginx(), ...findHaproxy()]),
  ...(values.portkey
    ? [installPortkey(runtimes.find(({ kind }) => kind === "node") ?? fail("Portkey needs node"))]
    : []),
];
const own = runtimes.flatMap((runtime) => [
  serverOn("bare", runtime),
  serverOn("floor", runtime),
  gatewayOn(runtime, file, KEYS),
]);
const provider = await startProvider();
try {
  if (values.against === undefined) {
    if (names.has("startup")) await measureStartUp(own, provider);
    await measureAll([...peers, ...own], provider);
    if (names.has("quiet")) await measureMemory(provider);
    if (names.has("keys")) await measureKeys(provider);
    if (names.has("observers")) await measureObservers(provider);
  } else {
    await measureAgainst(values.against, provider);
    if (values.what !== undefined && names.has("quiet")) await measureMemory(provider);
  }
} finally {
  await provider.process.stop();
}

const isWhole = !values.quick && values.against === undefined && values.what === undefined &&
  values.runtime === undefined;
const directory = isWhole ? join("scripts", "bench") : CACHE;
const machine = { cpu: cpus()[0]?.model ?? "", cores: availableParallelism(), kernel: release() };
const versions = Object.fromEntries(runtimes.map(({ kind, command }) => [kind, readVersion(command)]));
const measuredAt = new Date().toISOString();
const caption = `${Object.entries(versions).map((pair) => pair.join(" ")).join(", ")}; ${machine.cpu}, ${
  measuredAt.slice(0, 10)
}`;
writeFileSync(
  join(directory, "results.json"),
  JSON.stringify({ measuredAt, machine, versions, effort, results }, null, 1) + "\n",
);
writeFileSync(join(directory, "chart.svg"), drawChart(results, caption));
rmSync(join(CACHE, "logs"), { recursive: true, force: true });
console.log(`\nwritten: ${join(directory, "results.json")} and chart.svg`);
const wrong = results.flatMap(({ rows }) =>
  rows.filter(({ objections }) => objections.some((text) => /wrong/.test(text)))
);
process.exit(wrong.length === 0 ? 0 : 1);
