/** The measurements, and how each figure is obtained. */
import { measureLatency, measureThroughput, type Provider, type Reading } from "./load.ts";
import {
  CONVERSATION,
  LARGE,
  LARGE_MANY,
  type Load,
  PLAIN,
  SHORT_STREAM,
  SPACED_STREAM,
  STREAMED,
} from "./requests.ts";
import type { MeasurementName } from "./names.ts";
import { createScenarios } from "./scenarios.ts";
import { createTlsMeasurements } from "./tls_measurements.ts";
import { measurePaced, toExtraSeconds } from "./streams.ts";
import type { RunningSubject } from "./subjects.ts";

/** Connections of the throughput figures, including 1 MB bodies. */
export const CONNECTIONS = 32;
const LARGE_CONNECTIONS = 8;
/** Streams of two events are idle most of the time, so they need more connections. */
const SHORT_CONNECTIONS = 64;
/**
 * Streams whose events are sent together, like an inference engine that generates one token for
 * each request of a batch in one step. If each stream sends at a separate time, every event wakes
 * every process. This adds the same cost to all of them, so ratios are smaller (`paced-alone`).
 */
const BATCH = 25;
/** Seconds that wrk needs in addition to the measured time. */
const WRK_SECONDS = 0.3;
/** The unit of throughput. */
export const THROUGHPUT = "requests/s";
/** Points of the curves. */
export const CONNECTION_CURVE: readonly number[] = [1, 32, 128, 1000];
export const KEY_CURVE: readonly number[] = [10, 100_000];
/**
 * Open streams, and events a second on each. 5,000 streams send a tenth as often as the others: at
 * 20 a second each they would send 100,000 events a second, which is more than nginx can forward on
 * one core. If a core is always busy, all subjects seem to cost the same.
 */
export const PACED_CURVE: readonly Paced[] = [500, 1000, 5000].map((streams) => ({
  streams,
  rate: toRate(streams),
}));

/** Events a second of each stream, by the number of open streams. */
export function toRate(streams: number): number {
  return streams > 1000 ? 10_000 / streams : 20;
}

/** A number of open streams, and the events a second of each. */
export interface Paced {
  readonly streams: number;
  readonly rate: number;
}

/** How a figure is obtained, and its meaning. */
export interface Measurement {
  readonly name: MeasurementName;
  readonly title: string;
  readonly unit: string;
  /** How the gateway is compared with its base: by a ratio, by a difference, or not at all. */
  readonly compare: "ratio" | "difference" | "none";
  /** True if the subject's core should be the bottleneck; the session then checks that. */
  readonly isThroughput: boolean;
  /** True if its goal is for processor time per request, instead of work per second. */
  readonly isByCpu?: boolean;
  /**
   * The code that it warms up. A subject is not warmed up again if another measurement has warmed
   * up the same code.
   */
  readonly heats: "plain" | "streams" | "bodies" | "paced" | "refusals" | "mixed" | "sessions";
  /** True if subjects that check no gateway key are left out. */
  readonly needsKeys?: boolean;
  /** True if it is over TLS on both sides, with subjects that were started for it. */
  readonly isTls?: boolean;
  /** Seconds of a turn in addition to the measured time. */
  readonly extraSeconds: number;
  /**
   * True if fewer rounds are enough: the result has no goal, or a second contains tens of thousands
   * of events.
   */
  readonly isAside?: boolean;
  /** True if old versions of a runtime are measured too. */
  readonly hasOld?: boolean;
  /** The point of a curve. */
  readonly at?: number;
  /** True if the floor of each runtime is measured too; set if there is a goal. */
  readonly hasFloor?: boolean;
  /** True if slow peers, and peers without streaming, are left out. */
  readonly isLong?: boolean;
  measure(subject: RunningSubject, seconds: number): Promise<Reading>;
}

/** A measurement of requests a second, in which every answer is checked. */
export async function throughput(
  provider: Provider,
  load: Load,
  { connections, ...rest }:
    & Pick<
      Measurement,
      "name" | "title" | "at" | "heats" | "isLong" | "isAside" | "hasOld" | "hasFloor" | "isTls"
    >
    & { connections: number },
): Promise<Measurement> {
  const expected = await provider.expect(load);
  return {
    ...rest,
    unit: THROUGHPUT,
    compare: "ratio",
    isThroughput: true,
    extraSeconds: WRK_SECONDS,
    measure: (subject, seconds) =>
      measureThroughput(subject, load, { expected, connections, seconds }),
  };
}

/** Processor time per request, from the readings of throughput. */
export function byCpu(measurement: Measurement): Measurement {
  const { measure, ...rest } = measurement;
  return {
    ...rest,
    unit: "µs of processor time",
    compare: "ratio",
    isThroughput: false,
    measure: async (subject, seconds) => {
      const reading = await measure(subject, seconds);
      return { ...reading, value: reading.details.cpuUs ?? NaN };
    },
  };
}

/** Measurements with at most this many streams run all of their rounds. */
const FULL_EFFORT_STREAMS = 500;

/** Processor time for an event of a paced stream, and how late it arrives. */
function paced(name: "paced" | "paced-alone", { streams, rate }: Paced): Measurement {
  const batch = name === "paced" ? BATCH : 1;
  const shape = batch === 1 ? "each at another time" : `${batch} of them together`;
  return {
    name,
    title: `${
      streams.toLocaleString("en")
    } open streams of ${rate} events a second, ${shape}: an event`,
    unit: "µs",
    compare: "ratio",
    isThroughput: false,
    hasFloor: name === "paced",
    heats: "paced",
    extraSeconds: toExtraSeconds(streams),
    isAside: name === "paced-alone" || streams > FULL_EFFORT_STREAMS,
    isLong: true,
    at: streams,
    measure: (subject, seconds) => measurePaced(subject, { streams, rate, batch, seconds }),
  };
}

/** Small calls and short streams. */
async function createCalls(provider: Provider): Promise<Measurement[]> {
  const expected = await provider.expect(PLAIN);
  const common = {
    compare: "difference",
    unit: "µs",
    isThroughput: false,
    extraSeconds: 0.1,
    isAside: true,
  } as const;
  return [
    await throughput(provider, PLAIN, {
      name: "plain",
      title: "plain, 32 connections",
      connections: CONNECTIONS,
      heats: "plain",
      hasOld: true,
      hasFloor: true,
    }),
    await throughput(provider, STREAMED, {
      name: "streamed",
      title: "streams of 20 events, 32 connections",
      connections: CONNECTIONS,
      heats: "streams",
      hasFloor: true,
      isLong: true,
    }),
    byCpu(
      await throughput(provider, SHORT_STREAM, {
        name: "setup",
        title: "a stream of two events that are 2 ms apart, 64 connections",
        connections: SHORT_CONNECTIONS,
        heats: "paced",
        isAside: true,
        isLong: true,
      }),
    ),
    {
      ...common,
      name: "single",
      title: "plain, 1 connection, p50",
      heats: "plain",
      measure: (subject, seconds) =>
        measureLatency(subject, PLAIN, { expected, seconds, until: "last" }),
    },
    {
      ...common,
      name: "first",
      title: "first byte of a stream, 1 connection, p50",
      heats: "paced",
      isLong: true,
      measure: (subject, seconds) =>
        measureLatency(subject, SPACED_STREAM, { seconds, until: "first" }),
    },
  ];
}

/** Bodies of 1 MB. */
async function createBodies(provider: Provider): Promise<Measurement[]> {
  const common = { connections: LARGE_CONNECTIONS, heats: "bodies", isLong: true } as const;
  return [
    await throughput(provider, LARGE, {
      ...common,
      name: "large",
      title: "1 MB in one message, 8 connections",
      isAside: true,
    }),
    await throughput(provider, LARGE_MANY, {
      ...common,
      name: "large-many",
      title: "1 MB in 1,000 messages, 8 connections",
      isAside: true,
    }),
    byCpu(
      await throughput(provider, CONVERSATION, {
        ...common,
        name: "conversation",
        title: "an agent's conversation of 1 MB in 1,000 messages, 8 connections",
        hasFloor: true,
      }),
    ),
  ];
}

/**
 * The measurements that alternate between running subjects.
 *
 * @param provider The stand-in provider
 * @param names The selected measurements
 * @param curve Numbers of paced streams
 */
export async function createMeasurements(
  provider: Provider,
  names: ReadonlySet<MeasurementName>,
  curve: readonly Paced[] = PACED_CURVE,
): Promise<Measurement[]> {
  const all: Measurement[] = [
    ...await createCalls(provider),
    ...await createBodies(provider),
    ...curve.map((each) => paced("paced", each)),
    ...curve.slice(0, 1).map((each) => paced("paced-alone", each)),
    ...await createTlsMeasurements(provider),
    ...await createScenarios(provider),
    ...await Promise.all(CONNECTION_CURVE.map((at) =>
      throughput(provider, PLAIN, {
        name: "connections",
        title: `plain, ${at} connections`,
        at,
        connections: at,
        heats: "plain",
        isAside: true,
        isLong: true,
      })
    )),
  ];
  // These two are derived from the readings of paced streams.
  const isPaced = names.has("delay") || names.has("paced-setup");
  return all.filter(({ name }) => names.has(name) || (name === "paced" && isPaced));
}

/** Plain throughput with and without log and metrics. */
export async function createObserverMeasurement(provider: Provider): Promise<Measurement> {
  const title = "plain, with log and metrics and without";
  return {
    ...await throughput(provider, PLAIN, {
      name: "observers",
      title,
      connections: CONNECTIONS,
      heats: "plain",
      isAside: true,
    }),
    isByCpu: true,
  };
}

/** Plain throughput of a gateway with the given number of keys. */
export function createKeyMeasurement(provider: Provider, at: number): Promise<Measurement> {
  const title = `plain, ${at.toLocaleString("en")} keys`;
  return throughput(provider, PLAIN, {
    name: "keys",
    title,
    at,
    connections: CONNECTIONS,
    heats: "plain",
    isAside: true,
  });
}
