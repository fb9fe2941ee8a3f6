/** The command line of the bench. */
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { type Paced, PACED_CURVE, toRate } from "./measurements.ts";
import { type MeasurementName, MEASUREMENTS, QUICK, WHOLE } from "./names.ts";
import { QUIET_STARTS } from "./quiet.ts";
import type { Effort } from "./session.ts";
import { selectRuntimes } from "./subjects.ts";
import type { RuntimeOnMachine } from "../runtimes.ts";

/** The gateway needs two file descriptors and two ports for each stream. */
const MAX_STREAMS = 100_000;
/** After about four seconds under load the runtimes have compiled the hot code. */
const FULL: Effort = { rounds: 5, seconds: 1, warmUpSeconds: 5, leadInSeconds: 1 };
const FAST: Effort = { rounds: 3, seconds: 1, warmUpSeconds: 4, leadInSeconds: 0 };
/** Starts of each build in a comparison of two. A single start is not representative. */
const PAIR_STARTS = 5;

/** The options of a run. */
export interface Options {
  readonly names: ReadonlySet<MeasurementName>;
  /** True if measurements were selected by name. */
  readonly isAnyAsked: boolean;
  readonly effort: Effort;
  readonly curve: readonly Paced[];
  /** Open streams of the measurement of quiet streams, if the number is set. */
  readonly quietStreams: number | undefined;
  readonly runtimes: readonly RuntimeOnMachine[];
  readonly file: string;
  /** True if the one file must be built first. */
  readonly isBuilt: boolean;
  /** The build that this one is compared with. */
  readonly against: string | undefined;
  /**
   * Starts of each build in a comparison of two, and of each process in the measurement of quiet
   * streams.
   */
  readonly starts: number;
  readonly quietStarts: number;
  readonly hasPeers: boolean;
  readonly hasPortkey: boolean;
  /** True if the run is a whole one, whose results are kept. */
  readonly isWhole: boolean;
  /** True if only the estimated duration is printed. */
  readonly isDry: boolean;
}

/** Exits because of wrong arguments. */
export function fail(message: string): never {
  console.error(`bench: ${message}`);
  process.exit(2);
}

function readNames(text: string | undefined, isQuick: boolean): ReadonlySet<MeasurementName> {
  if (text === undefined) return new Set(isQuick ? QUICK : WHOLE);
  const isName = (name: string): name is MeasurementName =>
    MEASUREMENTS.some((each) => each === name);
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

/** Numbers of open streams, each with its events a second. */
function readCurve(text: string | undefined, rate: string | undefined): readonly Paced[] {
  if (text === undefined) return PACED_CURVE;
  return text.split(",").map((each) => {
    const streams = readCount(each, 0, MAX_STREAMS);
    return { streams, rate: Number(rate ?? toRate(streams)) };
  });
}

/** Reads the command line. */
export function readOptions(): Options {
  const flag = { type: "boolean", default: false } as const;
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    options: {
      ...{ quick: flag, own: flag, portkey: flag, dry: flag },
      ...{ runtime: text, what: text, streams: text, rate: text, file: text, against: text },
      ...{ rounds: text, seconds: text, starts: text },
    },
  });
  const { quick, own, portkey, runtime, what, streams, rate, file, against, starts } = values;
  const { rounds, seconds, ...rest } = quick ? FAST : FULL;
  const runtimes = selectRuntimes(runtime?.split(",").map((name) => name.trim()));
  if (values.dry && against !== undefined) fail("--dry estimates no comparison by --against");
  if (runtimes.length === 0) fail("--runtime takes bun, deno or node");
  const curve = readCurve(streams, rate);
  return {
    names: readNames(what, quick),
    isAnyAsked: what !== undefined,
    effort: {
      rounds: readCount(values.rounds, rounds),
      seconds: readCount(values.seconds, seconds),
      ...rest,
    },
    curve,
    quietStreams: streams === undefined
      ? undefined
      : Math.max(...curve.map((each) => each.streams)),
    runtimes,
    file: file ?? join("dist", "sallyport.js"),
    isBuilt: file === undefined,
    against,
    starts: readCount(starts, PAIR_STARTS),
    quietStarts: readCount(starts, quick ? 1 : QUIET_STARTS),
    hasPeers: !own,
    hasPortkey: portkey,
    isWhole: !quick && against === undefined && what === undefined && runtime === undefined,
    isDry: values.dry,
  };
}
