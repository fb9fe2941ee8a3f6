/** The load generators and the provider: building them, starting them, and reading their output. */
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { makeCertificates } from "./certificates.ts";
import { UPSTREAM_KEY } from "./gateway_config.ts";
import { CACHE, CORES, findPort, run, start, type Started, type Usage, watch } from "./machine.ts";
import { type Load, writeLoad } from "./requests.ts";
import { callOnce, type RunningSubject, type Subject } from "./subjects.ts";

/** Seconds after its planned end at which a load generator is killed. */
export const GRACE_SECONDS = 20;
/** Milliseconds for the provider to listen. */
const PROVIDER_MS = 5000;

/** The programs that the harness needs, and the Debian packages that contain them. */
const NEEDED = {
  wrk: "wrk",
  cc: "gcc libc6-dev libssl-dev",
  openssl: "openssl",
  taskset: "util-linux",
} as const;
const LIBRARIES = ["-lssl", "-lcrypto"] as const;

/** The provider without anything in front of it. */
export const REFERENCE = "provider alone";

/** The result of one run of a load generator. */
export interface Reading {
  /** The measured figure, in the unit of the measurement. */
  readonly value: number;
  /** Further figures by name. */
  readonly details: Readonly<Record<string, number>>;
  /** Wrong answers or streams, and broken connections. */
  readonly wrong: number;
  /** An example of a wrong answer. */
  readonly example?: string;
  /** Requests or events during the measurement. */
  readonly count: number;
  readonly usage: Usage;
}

/** The stand-in provider. */
export interface Provider {
  readonly url: string;
  /** The address of the same provider over TLS. */
  readonly tlsUrl: string;
  readonly process: Started;
  /** Returns the provider's answer to a load. */
  expect(load: Load): Promise<string>;
}

/**
 * Compiles the C programs.
 *
 * @throws {Error} Names the packages that must be installed
 */
export function prepareTools(): void {
  for (const [program, packages] of Object.entries(NEEDED)) {
    try {
      execFileSync("which", [program], { stdio: "ignore" });
    } catch {
      throw new Error(
        `Cannot find ${program}: install it first (Debian: apt-get install ${packages})`,
      );
    }
  }
  mkdirSync(CACHE, { recursive: true });
  for (const name of ["provider", "probe", "streams"]) {
    const source = join("scripts", "bench", `${name}.c`);
    try {
      execFileSync("cc", ["-O2", "-Wall", "-o", join(CACHE, name), source, ...LIBRARIES], {
        timeout: 60_000,
      });
    } catch (error) {
      throw new Error(`Cannot compile ${source}: it needs the packages ${NEEDED.cc}`, {
        cause: error,
      });
    }
  }
}

/** Starts the provider on the load's core, with and without TLS. */
export async function startProvider(): Promise<Provider> {
  const [port, tlsPort] = [await findPort(), await findPort()];
  const { cert, key } = makeCertificates();
  const command = [join(CACHE, "provider"), String(port), String(tlsPort), cert, key];
  const running = start(CORES.load, command, { name: "provider" });
  const headers = { host: "provider", authorization: `Bearer ${UPSTREAM_KEY}` };
  const until = performance.now() + PROVIDER_MS;
  while (await callOnce(port, headers) === undefined) {
    if (performance.now() > until) throw new Error(`Cannot start the provider: ${running.log()}`);
  }
  return {
    url: `http://127.0.0.1:${port}`,
    tlsUrl: `https://127.0.0.1:${tlsPort}`,
    process: running,
    async expect({ body }) {
      const answer = await callOnce(port, headers, { body });
      if (answer === undefined) throw new Error("Cannot read what the provider answers");
      return answer;
    },
  };
}

/** The provider's address for a subject. */
export const upstreamOf = ({ isTls }: Subject, { url, tlsUrl }: Provider): string =>
  isTls === true ? tlsUrl : url;

/** The provider in the place of a proxy, to measure the maximum of the load generators. */
export function asSubject(provider: Provider): RunningSubject {
  return {
    subject: {
      name: REFERENCE,
      isExact: true,
      isReference: true,
      headers: () => ({}),
      command: () => ({ command: [] }),
    },
    name: REFERENCE,
    headers: { host: "provider", authorization: `Bearer ${UPSTREAM_KEY}` },
    port: Number(new URL(provider.url).port),
    process: provider.process,
    startUpMs: 0,
    heated: new Set(),
  };
}

interface WrkReport {
  readonly requests: number;
  readonly microseconds: number;
  readonly wrong: number;
  readonly broken: number;
  readonly p50: number;
  readonly p99: number;
  readonly example: string;
}

/** wrk adds its own Host header unless the name is spelled exactly `Host`. */
const toWrkName = (name: string) => name === "host" ? "Host" : name;

/**
 * Measures throughput over several connections, each with one request after the other.
 *
 * @param subject The called process
 * @param load The requests
 * @param options The provider's answer, connections, seconds
 * @returns Requests a second; every answer is checked
 */
export async function measureThroughput(
  subject: RunningSubject,
  load: Load,
  { expected, connections, seconds }: { expected: string; connections: number; seconds: number },
): Promise<Reading> {
  const files = writeLoad(load, subject.headers, expected, subject.name);
  const headers = Object.entries(subject.headers).flatMap((
    [name, value],
  ) => ["-H", `${toWrkName(name)}: ${value}`]);
  const scheme = subject.subject.isTls === true ? "https" : "http";
  const url = `${scheme}://127.0.0.1:${subject.port}/v1/chat/completions`;
  const time = ["-t1", `-c${connections}`, `-d${seconds}s`, "--timeout", "10s"];
  const isRotated = load.bodies !== undefined || load.keys !== undefined;
  const program = join("scripts", "bench", isRotated ? "rotate.lua" : "check.lua");
  const script = ["-s", program, url, "--", files.body, files.expected];
  const isExact = subject.subject.isExact && load.isTimed !== true;
  const mode = load.isRefused === true ? "refused" : isExact ? "exact" : "loose";
  const keys = load.keys === undefined ? [] : [files.keys];
  const since = watch(subject.process.pid);
  const output = await run(
    ["wrk", ...time, ...headers, ...script, mode, ...keys],
    seconds + GRACE_SECONDS,
  );
  const usage = since();
  const report: WrkReport = JSON.parse(String(output.trim().split("\n").at(-1)));
  const { requests, microseconds, wrong, broken, p50, p99, example } = report;
  return {
    value: requests / microseconds * 1e6,
    details: {
      cpuUs: usage.cpuNs / 1000 / Math.max(1, requests),
      p50Us: p50,
      p99Us: p99,
      busy: usage.coreBusy,
    },
    wrong: wrong + broken,
    ...(example !== "" && { example }),
    count: requests,
    usage,
  };
}

interface LatencyReport {
  readonly requests: number;
  readonly wrong: number;
  readonly p50: number;
  readonly p99: number;
  readonly firstP50: number;
  readonly firstP99: number;
}

/**
 * Measures latency over one connection, with one request after the other.
 *
 * @param subject The called process
 * @param load The requests
 * @param options The provider's answer if it is constant; seconds; the time to measure
 * @returns Microseconds (p50) to the last byte or to the first of the body
 */
export async function measureLatency(
  subject: RunningSubject,
  load: Load,
  { expected, seconds, until }: { expected?: string; seconds: number; until: "first" | "last" },
): Promise<Reading> {
  const files = writeLoad(load, subject.headers, expected ?? "", subject.name);
  const known = expected !== undefined && subject.subject.isExact ? files.expected : "-";
  const authority = subject.subject.isTls === true ? [makeCertificates().ca] : [];
  const command = [join(CACHE, "probe"), String(subject.port), String(seconds), files.request];
  const since = watch(subject.process.pid);
  const output = await run([...command, known, ...authority], seconds + GRACE_SECONDS);
  const usage = since();
  const { requests, wrong, p50, p99, firstP50, firstP99 }: LatencyReport = JSON.parse(output);
  const details = { p50Us: p50, p99Us: p99, firstP50Us: firstP50, firstP99Us: firstP99 };
  const value = until === "first" ? firstP50 : p50;
  return { value, details, wrong, count: requests, usage };
}
