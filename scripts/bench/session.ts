/** Runs the readings alternately, and decides which of them can be quoted. */
import { type Goal, goalFor, isWithin } from "./goals.ts";
import { asSubject, type Provider, type Reading, upstreamOf } from "./load.ts";
import { type Measurement, THROUGHPUT } from "./measurements.ts";
import type { MeasurementName } from "./names.ts";
import { comparePairs, type Spread, toSpread } from "./statistics.ts";
import { type RunningSubject, startSubject, type Subject } from "./subjects.ts";

/** The load generator alone must be this many times as fast as through a subject. */
const MIN_HEADROOM = 1.5;
/** For throughput, the subject's core must be busy for at least this share of the time. */
const MIN_BUSY = 0.85;
/**
 * From this connection count on, a core that is not busy means that the load was the bottleneck.
 */
const MIN_CONNECTIONS = 8;
/**
 * A figure is marked as noisy if other processes used more than this share of the subject's core.
 */
const MAX_FOREIGN = 0.05;

/** Measurements that count events, but wrong streams. */
const COUNTS_EVENTS: ReadonlySet<MeasurementName> = new Set([
  "paced",
  "paced-alone",
  "paced-setup",
  "delay",
]);

/** One subject's figures. */
export interface Row {
  readonly subject: string;
  readonly spread: Spread;
  readonly readings: readonly number[];
  /** Medians of the further figures. */
  readonly details: Readonly<Record<string, number>>;
  /** The number of all answers and of wrong ones, in the warm-up too; for timed figures. */
  readonly answers?: { readonly count: number; readonly wrong: number };
  /** Reasons why it must not be quoted; empty if it can be. */
  readonly objections: readonly string[];
  /** Median share of the time in which other processes used its core. */
  readonly foreign: number;
  readonly isNoisy: boolean;
}

/** A gateway compared with its base, round by round. */
export interface Comparison {
  readonly subject: string;
  readonly base: string;
  readonly spread: Spread;
  /** The same by processor time per request, which other processes on the machine disturb less. */
  readonly byCpu?: Spread;
  readonly goal?: Goal;
  readonly isMet?: boolean;
  readonly isQuotable: boolean;
}

/** One measurement's figures. */
export interface Result {
  readonly name: MeasurementName;
  readonly title: string;
  readonly unit: string;
  readonly compare: Measurement["compare"];
  readonly at?: number;
  readonly rows: readonly Row[];
  readonly comparisons: readonly Comparison[];
}

/** How long and how often. */
export interface Effort {
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  /**
   * Seconds of lead-in before each reading of throughput. During the turns of the others a process
   * is idle for ten seconds and more: V8 then shrinks its heap, and the CPU caches contain other
   * data. 0 if there are few subjects.
   */
  readonly leadInSeconds: number;
}

/** The most effort for measurements without a goal. */
const ASIDE = { rounds: 3, seconds: 1 };

/** The effort for a measurement. */
function effortOf({ isAside = false, isThroughput }: Measurement, effort: Effort): Effort {
  const { rounds, seconds } = effort;
  if (!isAside) return isThroughput ? effort : { ...effort, leadInSeconds: 0 };
  return {
    ...effort,
    rounds: Math.min(rounds, ASIDE.rounds),
    seconds: Math.min(seconds, ASIDE.seconds),
    leadInSeconds: 0,
  };
}

/**
 * Estimates the duration of {@link takeTurns}.
 *
 * @param measurement The measurement
 * @param heated The code that each subject has warmed up so far; the code of this measurement is
 * added
 * @param effort Seconds and rounds
 * @returns Seconds
 */
export function estimateTurns(
  measurement: Measurement,
  heated: readonly Set<string>[],
  effort: Effort,
): number {
  const { rounds, seconds, warmUpSeconds, leadInSeconds } = effortOf(measurement, effort);
  const { heats, extraSeconds } = measurement;
  return heated.reduce((sum, hot) => {
    const warmUp = hot.has(heats) ? 0 : warmUpSeconds + extraSeconds;
    hot.add(heats);
    return sum + warmUp + rounds * (leadInSeconds + seconds + extraSeconds);
  }, 0);
}

/** All readings of one subject. */
export interface Series {
  readonly subject: RunningSubject;
  /** Its name in the result; several series can belong to one kind of subject. */
  readonly name: string;
  readonly base?: string | undefined;
  readonly readings: Reading[];
  /** The number of all answers, in the warm-up too. */
  count: number;
  wrong: number;
  example?: string;
}

/**
 * Makes all readings: one of each subject, then the next round.
 *
 * @param measurement The measurement
 * @param subjects In the order of their turns
 * @param effort Seconds and rounds
 */
export async function takeTurns(
  measurement: Measurement,
  subjects: readonly RunningSubject[],
  effort: Effort,
): Promise<Series[]> {
  const { rounds, seconds, warmUpSeconds, leadInSeconds } = effortOf(measurement, effort);
  const all: Series[] = subjects.map((subject) => ({
    subject,
    name: subject.name,
    base: subject.subject.base,
    readings: [],
    count: 0,
    wrong: 0,
  }));
  const take = async (series: Series, duration: number): Promise<Reading> => {
    const reading = await measurement.measure(series.subject, duration);
    series.count += reading.count;
    series.wrong += reading.wrong;
    if (reading.example !== undefined) series.example ??= reading.example;
    return reading;
  };
  for (const series of all) {
    const { subject, heated } = series.subject;
    if (subject.isReference !== true && !heated.has(measurement.heats)) {
      await take(series, warmUpSeconds);
    }
    heated.add(measurement.heats);
  }
  for (let round = 0; round < rounds; round++) {
    for (const series of all) {
      if (leadInSeconds > 0) await take(series, leadInSeconds);
      series.readings.push(await take(series, seconds));
    }
  }
  return all;
}

/** Joins the readings of the same subjects from several starts. */
function joinStarts(starts: readonly (readonly Series[])[]): Series[] {
  return (starts[0] ?? []).map((first, place) => {
    const all = starts.flatMap((series) => series[place] ?? []);
    const example = all.find((series) => series.example !== undefined)?.example;
    return {
      ...first,
      readings: all.flatMap(({ readings }) => readings),
      count: all.reduce((sum, { count }) => sum + count, 0),
      wrong: all.reduce((sum, { wrong }) => sum + wrong, 0),
      ...(example !== undefined && { example }),
    };
  });
}

function medianOf(readings: readonly Reading[], get: (reading: Reading) => number): number {
  return toSpread(readings.map(get)).median;
}

function toRow(
  { subject, name, readings, count, wrong, example }: Series,
  measurement: Measurement,
  top: number,
): Row {
  const spread = toSpread(readings.map(({ value }) => value));
  const objections: string[] = [];
  if (wrong > 0) {
    objections.push(
      `${wrong} wrong answers${example === undefined ? "" : `, such as: ${example}`}`,
    );
  }
  if (readings.some(({ count }) => count === 0)) objections.push("no answers");
  const foreign = medianOf(readings, ({ usage }) => usage.foreign);
  const { isReference = false } = subject.subject;
  if (measurement.isThroughput && !isReference) {
    const busy = medianOf(readings, ({ usage }) => usage.coreBusy);
    if (top < MIN_HEADROOM * spread.median) {
      objections.push(
        `the load's side alone does only ${(top / spread.median).toFixed(2)} times as much`,
      );
    }
    if ((measurement.at ?? MIN_CONNECTIONS) >= MIN_CONNECTIONS && busy < MIN_BUSY) {
      objections.push(
        `its core was busy for ${(busy * 100).toFixed(0)} % only: the load was the limit`,
      );
    }
  }
  const names = Object.keys(readings[0]?.details ?? {});
  const details = Object.fromEntries(
    names.map((key) => [key, medianOf(readings, (each) => each.details[key] ?? NaN)]),
  );
  return {
    subject: name,
    spread,
    readings: readings.map(({ value }) => value),
    details,
    ...(!COUNTS_EVENTS.has(measurement.name) && { answers: { count, wrong } }),
    objections,
    foreign,
    isNoisy: !isReference && foreign > MAX_FOREIGN,
  };
}

function toComparison(
  series: Series,
  base: Series,
  measurement: Measurement,
  rows: ReadonlyMap<string, Row>,
): Comparison {
  const valuesOf = ({ readings }: Series, get = ({ value }: Reading) => value) => readings.map(get);
  const isRatio = measurement.compare === "ratio";
  const spread = comparePairs(valuesOf(series), valuesOf(base), (a, b) => isRatio ? a / b : a - b);
  const cpuOf = ({ details }: Reading) => details.cpuUs ?? NaN;
  const goal = goalFor(measurement.name, series.subject.name, measurement.at);
  const reached = {
    own: rows.get(series.name)?.spread.median ?? NaN,
    peer: rows.get(goal?.below ?? "")?.spread.median,
  };
  const byCpu = comparePairs(valuesOf(series, cpuOf), valuesOf(base, cpuOf), (a, b) => b / a);
  const compared = measurement.isByCpu === true ? byCpu : spread;
  return {
    subject: series.name,
    base: base.name,
    spread,
    ...(isRatio && measurement.unit === THROUGHPUT && { byCpu }),
    ...(goal && { goal, isMet: isWithin({ ...reached, value: compared.median }, goal) }),
    isQuotable: [series, base].every(({ name }) => rows.get(name)?.objections.length === 0),
  };
}

/**
 * Computes the result from the readings.
 *
 * @param measurement The measurement
 * @param all The readings of every subject, and for throughput of the provider alone
 */
export function conclude(measurement: Measurement, all: readonly Series[]): Result {
  const { name, title, unit, compare, at } = measurement;
  const tops = all.filter(({ subject }) => subject.subject.isReference);
  const top = tops.length === 0
    ? Infinity
    : Math.max(...tops.map(({ readings }) => medianOf(readings, (r) => r.value)));
  const rows = all.map((series) => toRow(series, measurement, top));
  const byName = new Map(rows.map((row) => [row.subject, row]));
  const comparisons = compare === "none" ? [] : all.flatMap((series) => {
    const base = all.find((each) => each.name === series.base);
    return base === undefined ? [] : [toComparison(series, base, measurement, byName)];
  });
  return { name, title, unit, compare, ...(at !== undefined && { at }), rows, comparisons };
}

/**
 * Compares two builds over several starts. The cost of the same code varies by some percent from
 * one start to the next, depending on how the runtime compiles it, so a single start is not
 * representative.
 *
 * @param pair The base first
 * @param measurements The measurements at each start
 * @param options The address of the calls, the number of starts, and the seconds of a measurement
 */
export async function measurePair(
  pair: readonly Subject[],
  measurements: readonly Measurement[],
  { provider, starts, effort }: { provider: Provider; starts: number; effort: Effort },
): Promise<Result[]> {
  const all: Series[][][] = measurements.map(() => []);
  for (let start = 0; start < starts; start++) {
    const running: RunningSubject[] = [];
    try {
      for (const subject of pair) {
        running.push(await startSubject(subject, upstreamOf(subject, provider)));
      }
      for (const [index, measurement] of measurements.entries()) {
        const reference = measurement.isThroughput ? [asSubject(provider)] : [];
        all[index]?.push(await takeTurns(measurement, [...reference, ...running], effort));
      }
    } finally {
      for (const { process: child } of running) await child.stop();
    }
  }
  return measurements.map((measurement, index) =>
    conclude(measurement, joinStarts(all[index] as Series[][]))
  );
}

/** Readings of a subject that are not timed. */
export interface Figures {
  readonly subject: string;
  /** The subject that it is compared with. */
  readonly base?: string | undefined;
  readonly readings: number[];
}

/**
 * The result of figures that are read once, such as memory.
 *
 * @param head The name of the result
 * @param figures Each subject's readings
 */
export function concludePlainly(
  head: Pick<Result, "name" | "title" | "unit" | "at">,
  figures: readonly Figures[],
): Result {
  const rows = figures.map(({ subject, readings }) => ({
    subject,
    spread: toSpread(readings),
    readings,
    details: {},
    objections: [],
    foreign: 0,
    isNoisy: false,
  }));
  const comparisons = figures.flatMap(({ subject, base, readings }) => {
    const other = figures.find((each) => each.subject === base);
    if (other === undefined || base === undefined) return [];
    return [{
      subject,
      base,
      spread: comparePairs(readings, other.readings, (a, b) => a / b),
      isQuotable: true,
    }];
  });
  return { ...head, compare: comparisons.length > 0 ? "ratio" : "none", rows, comparisons };
}
