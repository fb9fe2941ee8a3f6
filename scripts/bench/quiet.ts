/** Memory of streams that received one event and then nothing more. */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Provider } from "./load.ts";
import { CACHE, readRss, watchChild } from "./machine.ts";
import { QUIET_STREAM, writeLoad } from "./requests.ts";
import { concludePlainly, type Figures, type Result } from "./session.ts";
import { type RunningSubject, startSubject, type Subject } from "./subjects.ts";

/**
 * Streams that are opened and closed before memory is read, so that code is compiled and pools
 * exist.
 */
const WARM_UP_STREAMS = 500;
/**
 * At least this share of the streams must open: `fetch` of bare lines fails for one in a thousand.
 */
const MIN_OPEN = 0.99;
/** Milliseconds until a process is idle. */
const REST_MS = 2500;
/**
 * Streams from one process to one address of the provider: each call needs one of about 28,000
 * ports.
 */
const STREAMS_PER_ADDRESS = 25_000;
/** Default number of streams of one process. */
export const QUIET_STREAMS = 100_000;
/** Default number of fresh processes that are measured: readings differ by about 2 %. */
export const QUIET_STARTS = 1;
/**
 * File descriptors of a process, without its streams. A stream needs two: the caller's and the
 * provider's.
 */
const OTHER_FILES = 200;
const FILES_PER_STREAM = 2;
/**
 * Bytes of a stream on the whole machine: in the process (Deno's are the largest), the kernel and
 * the load.
 */
const STREAM_BYTES = 160_000;
/** The share of the available memory that can be used. */
const MEMORY_SHARE = 0.5;

/**
 * True if the reason for fewer streams was printed: the estimate asks first, then the measurement.
 */
let isTold = false;

/**
 * The number of streams that one process on this machine can hold open.
 *
 * @param wanted The requested number
 * @returns The requested number, or fewer; it then prints the reason
 */
export function boundStreams(wanted: number): number {
  const files = /^Max open files\s+\S+\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))
    ?.[1];
  const byFiles = Math.floor((Number(files ?? 1024) - OTHER_FILES) / FILES_PER_STREAM);
  const available =
    Number(/^MemAvailable:\s+(\d+) kB/m.exec(readFileSync("/proc/meminfo", "utf8"))?.[1] ?? 0) *
    1024;
  const byMemory = Math.floor(available * MEMORY_SHARE / STREAM_BYTES);
  const streams = Math.min(wanted, byFiles, byMemory);
  if (streams === wanted) return streams;
  const reason = byFiles < byMemory
    ? `a process may open ${files} files (ulimit -Hn)`
    : `${Math.round(available / 1e9)} GB of memory are free`;
  if (!isTold) console.log(`\nquiet: ${streams} streams and not ${wanted}, since ${reason}`);
  isTold = true;
  return streams;
}

/** The number of the provider's addresses that these streams need; the bare lines use only one. */
export function toAddresses(streams: number): number {
  return Math.ceil(streams / STREAMS_PER_ADDRESS);
}

/** Streams that the load generator opens in a second (streams.c). */
const OPENED_A_SECOND = 2000;

/** Seconds for one start of one subject. */
export function toQuietSeconds(streams: number): number {
  return (Math.min(WARM_UP_STREAMS, streams) + streams) / OPENED_A_SECOND + 2 * REST_MS / 1000 + 1;
}

const rest = () => new Promise((resolve) => setTimeout(resolve, REST_MS));

/**
 * Opens streams and waits for the first event of each. @returns The number of open streams, and a
 * function that closes them
 */
async function open(
  subject: RunningSubject,
  streams: number,
): Promise<{ count: number; close: () => Promise<void> }> {
  const { request } = writeLoad(QUIET_STREAM, subject.headers, "", subject.name);
  const child = watchChild(
    spawn(join(CACHE, "streams"), ["quiet", String(subject.port), request, String(streams)], {
      stdio: ["pipe", "pipe", "inherit"],
    }),
  );
  const line = await new Promise<string>((resolve) => {
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (part: string) => {
      text += part;
      if (text.includes("\n")) resolve(text);
    }).on("end", () => resolve(text));
  });
  const report: { open: number } | undefined = line === "" ? undefined : JSON.parse(line);
  const close = async () => {
    const ended = child.exitCode === null
      ? new Promise((resolve) => child.once("exit", resolve))
      : undefined;
    child.stdin.end();
    await ended;
  };
  const count = report?.open ?? 0;
  if (count >= streams * MIN_OPEN) return { count, close };
  await close();
  throw new Error(`Cannot open ${streams} streams on ${subject.name}: ${count} are open`);
}

/** Measures one start of one subject. @returns kB of memory a stream */
async function measureOnce(subject: Subject, streams: number, provider: Provider): Promise<number> {
  const running = await startSubject(subject, provider.url);
  try {
    const { pid } = running.process;
    await (await open(running, Math.min(WARM_UP_STREAMS, streams))).close();
    await rest();
    const before = readRss(pid);
    const { count, close } = await open(running, streams);
    await rest();
    const after = readRss(pid);
    await close();
    return (after - before) / count / 1000;
  } finally {
    await running.process.stop();
  }
}

/**
 * Memory of a quiet stream, in a fresh process for each reading, since no runtime returns all of
 * its memory to the system.
 *
 * @param subjects The subjects, measured alternately
 * @param options The number of streams, the number of starts, the provider
 */
export async function measureQuiet(
  subjects: readonly Subject[],
  { streams, starts, provider }: { streams: number; starts: number; provider: Provider },
): Promise<Result> {
  const figures = subjects.map(({ name, base }): Figures => ({
    subject: name,
    base,
    readings: [],
  }));
  for (let start = 0; start < starts; start++) {
    for (const [index, subject] of subjects.entries()) {
      figures[index]?.readings.push(await measureOnce(subject, streams, provider));
    }
  }
  const title = `memory of a quiet stream, ${streams.toLocaleString("en")} of them in one process`;
  return concludePlainly({ name: "quiet", title, unit: "kB", at: streams }, figures);
}
