/** What is measured, and how each figure is taken. */
import { measureLatency, measureThroughput, type Provider, type Reading } from "./load.ts";
import { CONVERSATION, LARGE, LARGE_MANY, type Load, PLAIN, SPACED_STREAM, STREAMED } from "./requests.ts";
import { measurePaced } from "./streams.ts";
import type { Series } from "./session.ts";
import type { RunningSubject } from "./subjects.ts";

/** All of them, in the order in which they run. */
export const MEASUREMENTS = [
  "startup",
  "plain",
  "streamed",
  "single",
  "first",
  "large",
  "large-many",
  "conversation",
  "paced",
  "paced-alone",
  "delay",
  "connections",
  "quiet",
  "memory",
  "keys",
  "observers",
] as const;
export type MeasurementName = (typeof MEASUREMENTS)[number];

/** Those of a quick run. */
export const QUICK: readonly MeasurementName[] = ["plain", "streamed", "single"];

/** Connections of the throughput figures, and those of 1 MB bodies. */
const CONNECTIONS = 32;
const LARGE_CONNECTIONS = 8;
/**
 * Streams whose events leave together, as an engine that serves a batch of requests makes a token for each in one step.
 * Where each leaves at a time of its own, every event wakes every process, which costs all of them the same again:
 * ratios are then smaller (`paced-alone`).
 */
const BATCH = 25;
/** Until then the runtimes compile what is hot; under 500 streams that takes about as long. */
const PACED_WARM_UP_SECONDS = 5;
/** Points of the curves. */
export const CONNECTION_CURVE: readonly number[] = [1, 8, 32, 128, 512, 1000];
export const KEY_CURVE: readonly number[] = [10, 1_000, 100_000];
/**
 * Open streams, and events a second on each. 5,000 speak a tenth as often as the others: at 20 a second each they would
 * be 100,000 events a second, more than one core does for nginx, and a core that is full all the time costs the same
 * for everybody.
 */
export const PACED_CURVE: readonly Paced[] = [500, 1000, 5000].map((streams) => ({ streams, rate: toRate(streams) }));

/** Events a second of each stream, where so many are open. */
export function toRate(streams: number): number {
  return streams > 1000 ? 10_000 / streams : 20;
}

/** A number of open streams, and the events a second of each. */
export interface Paced {
  readonly streams: number;
  readonly rate: number;
}

/** How a figure is taken and what it means. */
export interface Measurement {
  readonly name: MeasurementName;
  readonly title: string;
  readonly unit: string;
  /** How the gateway is compared with its base: by a ratio, by a difference, or not at all. */
  readonly compare: "ratio" | "difference" | "none";
  /** Whether the subject's core is meant to be the limit: then that is checked. */
  readonly isThroughput: boolean;
  /** Whether its goal is for processor time a request, and not for what was done in a second. */
  readonly isByCpu?: boolean;
  /** Seconds under load before the first reading, where they are more than usual. */
  readonly warmUpSeconds?: number;
  /** The point of a curve. */
  readonly at?: number;
  /** Whether the floor of each runtime is measured too. */
  readonly hasFloor?: boolean;
  /** Whether slow peers are left out. */
  readonly isLong?: boolean;
  measure(subject: RunningSubject, seconds: number): Promise<Reading>;
}

async function throughput(
  provider: Provider,
  load: Load,
  { connections, ...rest }: Pick<Measurement, "name" | "title" | "at" | "isLong"> & { connections: number },
): Promise<Measurement> {
  const expected = await provider.expect(load);
  return {
    ...rest,
    unit: "requests/s",
    compare: "ratio",
    isThroughput: true,
    measure: (subject, seconds) => measureThroughput(subject, load, { expected, connections, seconds }),
  };
}

/** What a reading of throughput says of the processor time of a request. */
export function byCpu(measurement: Measurement): Measurement {
  const { measure, ...rest } = measurement;
  return {
    ...rest,
    unit: "µs of processor time",
    compare: "ratio",
    isThroughput: false,
    hasFloor: true,
    measure: async (subject, seconds) => {
      const reading = await measure(subject, seconds);
      return { ...reading, value: reading.details.cpuUs ?? NaN };
    },
  };
}

/** Streams for which the delay of an event has a result of its own. */
const DELAY_STREAMS = 1000;

/**
 * A measurement that others' readings already hold: how late the last of a thousand events is.
 *
 * @param measurement One of paced streams
 * @param all Its readings
 */
export function toDelays(measurement: Measurement, all: readonly Series[]): [Measurement, Series[]] | undefined {
  if (measurement.name !== "paced" || measurement.at !== DELAY_STREAMS) return undefined;
  const title = `delay of an event at ${DELAY_STREAMS.toLocaleString("en")} streams of 20 events a second, p99.9`;
  const series = all.map((each) => ({
    ...each,
    readings: each.readings.map((reading) => ({ ...reading, value: reading.details.p999Ms ?? NaN })),
  }));
  return [{ ...measurement, name: "delay", title, unit: "ms", compare: "difference" }, series];
}

/** Processor time for an event of a paced stream, and how late it arrives. */
function paced(name: "paced" | "paced-alone", { streams, rate }: Paced): Measurement {
  const batch = name === "paced" ? BATCH : 1;
  const shape = batch === 1 ? "each at a time of its own" : `${batch} of them together`;
  return {
    name,
    title: `${streams.toLocaleString("en")} open streams of ${rate} events a second, ${shape}: an event`,
    unit: "µs",
    compare: "ratio",
    isThroughput: false,
    hasFloor: true,
    isLong: true,
    at: streams,
    warmUpSeconds: PACED_WARM_UP_SECONDS,
    measure: (subject, seconds) => measurePaced(subject, { streams, rate, batch, seconds }),
  };
}

/**
 * The measurements that take turns between running subjects.
 *
 * @param provider Says what it answers
 * @param names Those that are wanted
 * @param curve Numbers of paced streams
 */
export async function createMeasurements(
  provider: Provider,
  names: ReadonlySet<MeasurementName>,
  curve: readonly Paced[] = PACED_CURVE,
): Promise<Measurement[]> {
  const plainAnswer = await provider.expect(PLAIN);
  const common = { compare: "difference", isThroughput: false } as const;
  const all: Measurement[] = [
    await throughput(provider, PLAIN, { name: "plain", title: "plain, 32 connections", connections: CONNECTIONS }),
    await throughput(provider, STREAMED, {
      name: "streamed",
      title: "streams of 20 events, 32 connections",
      connections: CONNECTIONS,
    }),
    {
      ...common,
      name: "single",
      title: "plain, 1 connection, p50",
      unit: "µs",
      measure: (subject, seconds) => measureLatency(subject, PLAIN, { expected: plainAnswer, seconds, until: "last" }),
    },
    {
      ...common,
      name: "first",
      title: "first byte of a stream, 1 connection, p50",
      unit: "µs",
      measure: (subject, seconds) => measureLatency(subject, SPACED_STREAM, { seconds, until: "first" }),
    },
    await throughput(provider, LARGE, {
      name: "large",
      title: "1 MB in one message, 8 connections",
      connections: LARGE_CONNECTIONS,
      isLong: true,
    }),
    await throughput(provider, LARGE_MANY, {
      name: "large-many",
      title: "1 MB in 1,000 messages, 8 connections",
      connections: LARGE_CONNECTIONS,
      isLong: true,
    }),
    byCpu(
      await throughput(provider, CONVERSATION, {
        name: "conversation",
        title: "an agent's conversation of 1 MB in 1,000 messages, 8 connections",
        connections: LARGE_CONNECTIONS,
        isLong: true,
      }),
    ),
    ...curve.map((each) => paced("paced", each)),
    ...curve.slice(0, 1).map((each) => paced("paced-alone", each)),
    ...await Promise.all(CONNECTION_CURVE.map((at) =>
      throughput(provider, PLAIN, {
        name: "connections",
        title: `plain, ${at} connections`,
        at,
        connections: at,
        isLong: true,
      })
    )),
  ];
  return all.filter(({ name }) => names.has(name));
}

/** Plain throughput with and without log and metrics. */
export async function createObserverMeasurement(provider: Provider): Promise<Measurement> {
  const title = "plain, with log and metrics and without";
  return {
    ...await throughput(provider, PLAIN, { name: "observers", title, connections: CONNECTIONS }),
    isByCpu: true,
  };
}

/** Plain throughput of a gateway that knows so many keys. */
export function createKeyMeasurement(provider: Provider, at: number): Promise<Measurement> {
  const title = `plain, ${at.toLocaleString("en")} keys`;
  return throughput(provider, PLAIN, { name: "keys", title, at, connections: CONNECTIONS });
}
