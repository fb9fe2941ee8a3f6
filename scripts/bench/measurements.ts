/** What is measured, and how each figure is taken. */
import { measureLatency, measureStreams, measureThroughput, type Provider, type Reading } from "./load.ts";
import { LARGE, LARGE_MANY, type Load, PLAIN, SPACED_STREAM, STREAMED, toEndlessStream } from "./requests.ts";
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
  "events",
  "connections",
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
/** Points of the curves. */
export const CONNECTION_CURVE: readonly number[] = [1, 8, 32, 128, 512, 1000];
export const KEY_CURVE: readonly number[] = [10, 1_000, 100_000];
/** Open streams, and events a second on each. */
const STREAMS = 1000;
const EVENT_RATE = 20;

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
  /** The point of a curve. */
  readonly at?: number;
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

/**
 * The measurements that take turns between running subjects.
 *
 * @param provider Says what it answers
 * @param names Those that are wanted
 */
export async function createMeasurements(
  provider: Provider,
  names: ReadonlySet<MeasurementName>,
): Promise<Measurement[]> {
  const plainAnswer = await provider.expect(PLAIN);
  const endless = toEndlessStream(EVENT_RATE);
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
    {
      ...common,
      name: "events",
      title: "event delay with 1,000 open streams at 20 events/s, p99",
      unit: "ms",
      isLong: true,
      measure: (subject, seconds) => measureStreams(subject, endless, { streams: STREAMS, rate: EVENT_RATE, seconds }),
    },
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
