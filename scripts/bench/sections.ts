/** The sections of a run: each starts the processes that it measures, and stops them. */
import { checkAll } from "./correctness/section.ts";
import type { Correctness } from "./correctness/checks.ts";
import { asSubject, type Provider, upstreamOf } from "./load.ts";
import { deriveAll } from "./derived.ts";
import { readRss } from "./machine.ts";
import {
  byCpu,
  createKeyMeasurement,
  createMeasurements,
  createObserverMeasurement,
  KEY_CURVE,
  type Measurement,
} from "./measurements.ts";
import type { MeasurementName } from "./names.ts";
import type { Options } from "./options.ts";
import { boundStreams, measureQuiet, QUIET_STREAMS, toAddresses } from "./quiet.ts";
import {
  conclude,
  concludePlainly,
  measurePair,
  type Result,
  type Series,
  takeTurns,
} from "./session.ts";
import {
  gatewayOn,
  type RunningSubject,
  serverOn,
  startSubject,
  type Subject,
} from "./subjects.ts";
import { buildUnobserved } from "./unobserved.ts";

/** Gateway keys in every run except the key curve. */
export const KEYS = 1000;
/** The measurements for a comparison of two builds. */
const AGAINST: ReadonlySet<MeasurementName> = new Set([
  "plain",
  "streamed",
  "conversation",
  "paced",
]);
/**
 * Starts of a process that are timed, and pairs of starts in the measurement of log and metrics.
 */
export const START_UPS = 3;
export const OBSERVER_STARTS = 2;

/** A run: its options, the provider, and the sink for results. */
export interface Run extends Options {
  readonly provider: Provider;
  readonly conclude: (result: Result) => void;
}

/**
 * Checks the answers. Old runtimes are skipped: they answer as the new version of the same runtime
 * does.
 */
export function checkCorrectness(run: Run, subjects: readonly Subject[]): Promise<Correctness[]> {
  return checkAll(
    subjects.filter(({ isFloor, isOld, isTls }) => !isFloor && !isTls && (!isOld || isAlone(run))),
  );
}

/** Measures the time from the start of a process to its first answer. */
export async function measureStartUp(
  { provider, conclude }: Run,
  subjects: readonly Subject[],
): Promise<void> {
  const figures = subjects.map(({ name }) => ({ subject: name, readings: [] as number[] }));
  for (let round = 0; round < START_UPS; round++) {
    for (const [index, subject] of subjects.entries()) {
      const running = await startSubject(subject, provider.url);
      figures[index]?.readings.push(running.startUpMs);
      await running.process.stop();
    }
  }
  conclude(
    concludePlainly(
      { name: "startup", title: "from the start to the first answer", unit: "ms" },
      figures,
    ),
  );
}

/** True if only old runtimes are selected. */
const isAlone = ({ runtimes }: Options): boolean =>
  !runtimes.some(({ runsTypeScript }) => runsTypeScript);

/** The runtimes for measurements without a goal for old versions. */
export const newRuntimes = (options: Options): Options["runtimes"] =>
  options.runtimes.filter(({ runsTypeScript }) => runsTypeScript || isAlone(options));

/** Compares the gateway with few keys and with many. */
export async function measureKeys(run: Run): Promise<void> {
  const { provider, file, effort } = run;
  for (const runtime of newRuntimes(run)) {
    const running: RunningSubject[] = [];
    try {
      for (const keys of KEY_CURVE) {
        running.push(await startSubject(gatewayOn(runtime, file, keys), provider.url));
      }
      const measurement = await createKeyMeasurement(provider, KEYS);
      const all: Series[] = await takeTurns(measurement, [asSubject(provider), ...running], effort);
      const toName = (keys: number | undefined) =>
        `gateway ${runtime.label}, ${keys?.toLocaleString("en")} keys`;
      const series = all.map((each, index) =>
        index === 0 ? each : {
          ...each,
          name: toName(KEY_CURVE[index - 1]),
          base: index === 1 ? undefined : toName(KEY_CURVE[0]),
        }
      );
      run.conclude(conclude({ ...measurement, title: `plain, by number of keys` }, series));
    } finally {
      for (const { process: child } of running) await child.stop();
    }
  }
}

/** The processes for quiet streams: this build and bare lines, or this build and another one. */
export function quietSubjects(
  options: Options,
): { readonly subjects: readonly Subject[]; readonly streams: number } {
  const { file, against, quietStreams = QUIET_STREAMS } = options;
  const streams = boundStreams(quietStreams);
  const addresses = toAddresses(streams);
  const subjects = newRuntimes(options).flatMap((runtime) => {
    const gateway = gatewayOn(runtime, file, KEYS, { addresses });
    if (against === undefined) {
      return addresses === 1 ? [serverOn("bare", runtime), gateway] : [gateway];
    }
    const base = `previous ${runtime.label}`;
    return [{ ...gatewayOn(runtime, against, KEYS, { addresses }), name: base }, {
      ...gateway,
      base,
    }];
  });
  return { subjects, streams };
}

/** Measures the memory of quiet streams. */
export async function measureMemory(run: Run): Promise<void> {
  const { subjects, streams } = quietSubjects(run);
  run.conclude(
    await measureQuiet(subjects, { streams, starts: run.quietStarts, provider: run.provider }),
  );
}

/** Compares the gateway with and without the code that observes exchanges. */
export async function measureObservers(run: Run): Promise<void> {
  const { provider, file, effort } = run;
  const unobserved = await buildUnobserved();
  const measurement = await createObserverMeasurement(provider);
  for (const runtime of newRuntimes(run)) {
    const base = `unobserved ${runtime.label}`;
    const pair = [{ ...gatewayOn(runtime, unobserved, KEYS), name: base }, {
      ...gatewayOn(runtime, file, KEYS),
      base,
    }];
    for (
      const result of await measurePair(pair, [measurement], {
        provider,
        starts: OBSERVER_STARTS,
        effort,
      })
    ) {
      run.conclude(result);
    }
  }
}

/**
 * Compares this build with another one: processor time for a call, a stream of 20 events, and an
 * event of a paced stream.
 */
export async function measureAgainst(other: string, run: Run): Promise<void> {
  const { provider, names, isAnyAsked, curve, runtimes, file, starts } = run;
  const effort = { ...run.effort, leadInSeconds: 0 };
  const measurements = await createMeasurements(provider, isAnyAsked ? names : AGAINST, curve);
  const all = measurements.map((each) => each.isThroughput ? byCpu(each) : each);
  for (const runtime of runtimes) {
    const base = `previous ${runtime.label}`;
    for (const isTls of [false, true]) {
      const alike = all.filter((each) => (each.isTls ?? false) === isTls);
      if (alike.length === 0) continue;
      const pair = [
        { ...gatewayOn(runtime, other, KEYS, { isTls }), name: base },
        { ...gatewayOn(runtime, file, KEYS, { isTls }), name: `this ${runtime.label}`, base },
      ];
      for (const result of await measurePair(pair, alike, { provider, starts, effort })) {
        run.conclude(result);
      }
    }
  }
}

/** The subjects of a measurement. */
export function subjectsFor(
  measurement: Measurement,
  subjects: readonly Subject[],
  options: Options,
): readonly Subject[] {
  const { isLong = false, hasFloor = false, hasOld = isAlone(options) } = measurement;
  const { isTls = false, needsKeys = false } = measurement;
  return subjects.filter((subject) => {
    const { isExact, isFloor = false, isOld = false } = subject;
    const isFor = (isExact || !isLong) && (!isFloor || hasFloor) && (!isOld || hasOld);
    const hasKey = !needsKeys || "gateway-auth" in subject.headers("");
    return isFor && hasKey && (subject.isTls ?? false) === isTls;
  });
}

/** Runs the measurements that alternate between running subjects, with or without TLS. */
export async function measureAll(run: Run, subjects: readonly Subject[]): Promise<void> {
  const { names } = run;
  const measurements = await createMeasurements(run.provider, names, run.curve);
  const [overTls, plain] = [true, false].map((wanted) =>
    measurements.filter(({ isTls = false }) => isTls === wanted)
  ) as [Measurement[], Measurement[]];
  if (plain.length > 0 || names.has("memory")) {
    await measureTogether(run, subjects.filter(({ isTls }) => isTls !== true), plain);
  }
  if (overTls.length > 0) {
    await measureTogether(run, subjects.filter(({ isTls }) => isTls === true), overTls);
  }
}

/** Starts all subjects, runs the measurements, and stops the subjects. */
async function measureTogether(
  run: Run,
  subjects: readonly Subject[],
  measurements: readonly Measurement[],
): Promise<void> {
  const { provider } = run;
  const hasMemory = run.names.has("memory") && !subjects.some(({ isTls }) => isTls);
  const needed = new Set(measurements.flatMap((each) => subjectsFor(each, subjects, run)));
  const running: RunningSubject[] = [];
  try {
    for (const subject of subjects) {
      if (!hasMemory && !needed.has(subject)) continue;
      running.push(await startSubject(subject, upstreamOf(subject, provider)));
    }
    for (const measurement of measurements) {
      const wanted = subjectsFor(measurement, subjects, run);
      await measureOne(measurement, running.filter(({ subject }) => wanted.includes(subject)), run);
    }
    if (hasMemory) {
      const figures = running.map(({ name, process: { pid } }) => ({
        subject: name,
        readings: [readRss(pid) / 1e6],
      }));
      run.conclude(
        concludePlainly({ name: "memory", title: "RSS after all of this", unit: "MB" }, figures),
      );
    }
  } finally {
    for (const { process: child } of running) await child.stop();
  }
}

async function measureOne(
  measurement: Measurement,
  subjects: readonly RunningSubject[],
  run: Run,
): Promise<void> {
  const withProvider = measurement.isThroughput ? [asSubject(run.provider), ...subjects] : subjects;
  const all = await takeTurns(measurement, withProvider, run.effort);
  run.conclude(conclude(measurement, all));
  for (const derived of deriveAll(measurement, all)) run.conclude(conclude(...derived));
}
