/**
 * Many open streams: paced ones, which need processor time for each event, and quiet ones, which
 * only need memory.
 */
import { join } from "node:path";
import { GRACE_SECONDS, type Reading } from "./load.ts";
import { CACHE, run } from "./machine.ts";
import { toEndlessStream, writeLoad } from "./requests.ts";
import type { RunningSubject } from "./subjects.ts";

/** Seconds between the opening of the last stream and the first reading. */
const SETTLE_SECONDS = 1;
/** Streams that are opened in a second (streams.c). */
const OPENED_A_SECOND = 2000;
/** Milliseconds until a subject is idle after all of its streams have ended. */
const REST_MS = 1000;

/** Seconds of a turn in addition to the time in which events are counted. */
export function toExtraSeconds(streams: number): number {
  return streams / OPENED_A_SECOND + SETTLE_SECONDS + REST_MS / 1000;
}

/** The output of `streams paced`; delays in microseconds. */
interface PacedReport {
  /** Events and processor time since before the first stream was opened. */
  readonly allEvents: number;
  readonly allCpuNs: number;
  readonly events: number;
  readonly wrong: number;
  readonly seconds: number;
  readonly cpuNs: number;
  readonly coreBusy: number;
  readonly loadBusy: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly p9999: number;
  readonly max: number;
}

/**
 * Measures many open streams with a fixed rate of events, which does not depend on their delivery
 * (an open model).
 *
 * @param subject The called process
 * @param options The number of streams, events a second of each, the number of streams that send
 * together, seconds
 * @returns Microseconds of processor time for each event that arrived, and milliseconds from its
 * sending to its arrival
 */
export async function measurePaced(
  subject: RunningSubject,
  { streams, rate, batch, seconds }: {
    streams: number;
    rate: number;
    batch: number;
    seconds: number;
  },
): Promise<Reading> {
  const stepUs = batch === 1 ? 0 : Math.round(1e6 / rate * batch / streams);
  const files = writeLoad(toEndlessStream(rate, stepUs), subject.headers, "", subject.name);
  const counts = [streams, rate, SETTLE_SECONDS, seconds, subject.process.pid].map(String);
  const output = await run(
    [join(CACHE, "streams"), "paced", String(subject.port), files.request, ...counts],
    2 * streams / OPENED_A_SECOND + SETTLE_SECONDS + seconds + GRACE_SECONDS,
  ).catch((error: Error) => error);
  // Otherwise they would close during the turn of another subject.
  await new Promise((resolve) => setTimeout(resolve, REST_MS));
  if (output instanceof Error) return toFailure(streams, output);
  return toReading(JSON.parse(output), streams);
}

/** The reading of a subject that is too slow for so many streams: all of them are wrong. */
function toFailure(streams: number, { message }: Error): Reading {
  const usage = { cpuNs: 0, coreBusy: 0, foreign: 0, loadBusy: 0 };
  return { value: NaN, details: {}, wrong: streams, example: message, count: 0, usage };
}

function toReading(report: PacedReport, streams: number): Reading {
  const { events, wrong, cpuNs, coreBusy, loadBusy } = report;
  const withSetupUs = report.allCpuNs / 1000 / Math.max(1, report.allEvents);
  const cpuUs = cpuNs / 1000 / Math.max(1, events);
  return {
    value: cpuUs,
    details: {
      cpuUs,
      withSetupUs,
      eventsPerStream: report.allEvents / streams,
      p50Ms: report.p50 / 1000,
      p90Ms: report.p90 / 1000,
      p99Ms: report.p99 / 1000,
      p999Ms: report.p999 / 1000,
      p9999Ms: report.p9999 / 1000,
      maxMs: report.max / 1000,
      busy: coreBusy,
      eventsPerSecond: events / report.seconds,
    },
    wrong,
    count: events,
    usage: {
      cpuNs,
      coreBusy,
      foreign: Math.max(0, coreBusy - cpuNs / 1e9 / report.seconds),
      loadBusy,
    },
  };
}
