/** Processes on cores of their own, and what the kernel says of them. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";

/** Where everything that a run makes is kept. */
export const CACHE: string = join(".cache", "bench");

/**
 * What is measured runs alone on the first core; load generator, provider and this script share the
 * second.
 */
export const CORES = { subject: 0, load: 1 } as const;

/** Milliseconds from the polite signal to the other one. */
const STOP_MS = 3000;
/** Bytes of a log that are shown when a process fails. */
const LOG_TAIL = 2000;

/** A process that was started here. */
export interface Started {
  readonly pid: number;
  /** The end of what it wrote. */
  readonly log: () => string;
  /** Whether it runs. */
  readonly isRunning: () => boolean;
  /** Ends it. */
  stop(): Promise<void>;
}

const started = new Set<number>();
process.once("exit", () => {
  for (const pid of started) kill(pid, "SIGKILL");
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(130));

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It is gone.
  }
}

/** Puts this script on the load's core: what it starts stays there unless it says otherwise. */
export function pinSelf(): void {
  execFileSync("taskset", ["-cp", String(CORES.load), String(process.pid)], { stdio: "ignore" });
}

/**
 * Starts a process on a core. What it writes to stderr goes to a log; its stdout goes nowhere, for
 * what a disk takes to keep an access log is no cost of who writes it.
 *
 * @param core Its core
 * @param command Path and arguments
 * @param options A name for the log, and variables beside those of this process
 */
export function start(
  core: number,
  [command = "", ...args]: readonly string[],
  { name, env = {} }: { name: string; env?: Readonly<Record<string, string>> },
): Started {
  const directory = join(CACHE, "logs");
  mkdirSync(directory, { recursive: true });
  const path = join(directory, `${name.replaceAll(/\W+/g, "-")}.log`);
  const output = openSync(path, "w");
  const child = spawn("taskset", ["-c", String(core), command, ...args], {
    env: { ...process.env, NO_COLOR: "1", ...env },
    stdio: ["ignore", "ignore", output],
  });
  closeSync(output);
  const { pid } = child;
  if (pid === undefined) throw new Error(`Cannot start ${name}: is taskset there?`);
  started.add(pid);
  let isRunning = true;
  const ended = new Promise<void>((resolve) =>
    child.once("exit", () => {
      isRunning = false;
      started.delete(pid);
      resolve();
    })
  );
  return {
    pid,
    log: () => readFileSync(path, "utf8").slice(-LOG_TAIL),
    isRunning: () => isRunning,
    async stop() {
      if (!isRunning) return;
      kill(pid, "SIGTERM");
      const timer = setTimeout(() => kill(pid, "SIGKILL"), STOP_MS);
      await ended;
      clearTimeout(timer);
    },
  };
}

/** Has a process end with this one. @returns The same */
export function watchChild<Child extends ChildProcess>(child: Child): Child {
  const { pid } = child;
  if (pid !== undefined) {
    started.add(pid);
    child.once("exit", () => started.delete(pid));
  }
  return child;
}

/**
 * Runs a command to its end.
 *
 * @param command Path and arguments; it runs on the core of this script
 * @param seconds It is ended after so long
 * @returns What it wrote to stdout
 */
export function run([command = "", ...args]: readonly string[], seconds: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = watchChild(spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] }));
    let [output, complaints] = ["", ""];
    child.stdout.setEncoding("utf8").on("data", (text: string) => output += text);
    child.stderr.setEncoding("utf8").on("data", (text: string) => complaints += text);
    const timer = setTimeout(() => child.kill("SIGKILL"), seconds * 1000);
    child.once("error", reject);
    child.once("close", (code) => {
      clearTimeout(timer);
      if (code === 0) resolve(output);
      else {reject(
          new Error(
            `Cannot run ${command}: it ended with ${code ?? "a signal"}. ${
              complaints.slice(-LOG_TAIL)
            }`,
          ),
        );}
    });
  });
}

/** A port that was free a moment ago. */
export function findPort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() =>
        resolve(typeof address === "object" && address !== null ? address.port : 0)
      );
    });
  });
}

/** Nanoseconds of processor time that a process has had, over all its threads. */
function readCpuNs(pid: number): number {
  let sum = 0;
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    try {
      sum += Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, "utf8").split(" ")[0]);
    } catch {
      // The thread has just ended.
    }
  }
  return sum;
}

/** Ticks of 10 ms that a core was busy, and all of them (proc(5), /proc/stat). */
function readCore(core: number): { busy: number; all: number } {
  const lines = readFileSync("/proc/stat", "utf8").split("\n");
  const line = lines.find((text) => text.startsWith(`cpu${core} `));
  if (line === undefined) throw new Error(`There is no core ${core}`);
  const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
  const all = ticks.reduce((sum, each) => sum + each, 0);
  return { busy: all - (ticks[3] ?? 0) - (ticks[4] ?? 0), all };
}

/** How busy the machine was while something was measured. Shares of a core's time. */
export interface Usage {
  /** Nanoseconds of processor time of the process. */
  readonly cpuNs: number;
  /** Its core, whoever used it. */
  readonly coreBusy: number;
  /** Its core, used by anybody else. */
  readonly foreign: number;
  /** The load's core. */
  readonly loadBusy: number;
}

/** Starts to watch; the function that it returns says what happened since. */
export function watch(pid: number): () => Usage {
  const [cpu, subject, load, time] = [
    readCpuNs(pid),
    readCore(CORES.subject),
    readCore(CORES.load),
    performance.now(),
  ];
  const shareOf = (core: number, before: { busy: number; all: number }) => {
    const after = readCore(core);
    return (after.busy - before.busy) / Math.max(1, after.all - before.all);
  };
  return () => {
    const cpuNs = readCpuNs(pid) - cpu;
    const coreBusy = shareOf(CORES.subject, subject);
    const own = cpuNs / 1e6 / (performance.now() - time);
    return {
      cpuNs,
      coreBusy,
      foreign: Math.max(0, coreBusy - own),
      loadBusy: shareOf(CORES.load, load),
    };
  };
}

/** Bytes of memory that a process has in use (VmRSS). */
export function readRss(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? NaN) *
    1024;
}
