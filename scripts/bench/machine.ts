/** Processes on separate cores, and their usage according to the kernel. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";

/** Folder of all files that a run creates. */
export const CACHE: string = join(".cache", "bench");

/**
 * The measured process runs alone on the first core; load generator, provider and this script share
 * the second.
 */
export const CORES = { subject: "0", load: "1", both: "0,1" } as const;
export type Cores = (typeof CORES)[keyof typeof CORES];

/** Milliseconds between SIGTERM and SIGKILL. */
const STOP_MS = 3000;
/** Bytes of a log that are shown when a process fails. */
const LOG_TAIL = 2000;

/** A process that was started here. */
export interface Started {
  readonly pid: number;
  /** Returns the end of the process's output. */
  readonly log: () => string;
  /** Returns true while the process runs. */
  readonly isRunning: () => boolean;
  /** Stops the process. */
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
    // The process has already ended.
  }
}

/**
 * Pins this script to the load's core. Its child processes stay there unless they are pinned
 * elsewhere.
 */
export function pinSelf(): void {
  execFileSync("taskset", ["-cp", CORES.load, String(process.pid)], { stdio: "ignore" });
}

/**
 * Starts a process on a core. Its stderr is written to a log. Its stdout is discarded, so that the
 * time of the disk for an access log is not measured.
 *
 * @param cores Its core, or both
 * @param command Path and arguments
 * @param options A name for the log, and additional environment variables
 */
export function start(
  cores: Cores,
  [command = "", ...args]: readonly string[],
  { name, env = {} }: { name: string; env?: Readonly<Record<string, string>> },
): Started {
  const directory = join(CACHE, "logs");
  mkdirSync(directory, { recursive: true });
  const path = join(directory, `${name.replaceAll(/\W+/g, "-")}.log`);
  const output = openSync(path, "w");
  const child = spawn("taskset", ["-c", cores, command, ...args], {
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

/** Stops a process when this one exits. @returns The same process */
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
 * @param seconds Seconds after which it is killed
 * @returns Its stdout
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

/** Finds a port that is free now. */
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

/**
 * Nanoseconds of processor time that a process has had, over all its threads and, since a gateway
 * can have workers, all its child processes.
 */
function readCpuNs(pid: number): number {
  let sum = 0;
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    try {
      const directory = `/proc/${pid}/task/${task}`;
      sum += Number(readFileSync(join(directory, "schedstat"), "utf8").split(" ")[0]);
      const children = readFileSync(join(directory, "children"), "utf8").match(/\d+/g) ?? [];
      for (const child of children) sum += readCpuNs(Number(child));
    } catch {
      // The thread or the child has just ended.
    }
  }
  return sum;
}

/** Ticks of 10 ms: those in which a core was busy, and all (proc(5), /proc/stat). */
function readCore(core: Cores): { busy: number; all: number } {
  const lines = readFileSync("/proc/stat", "utf8").split("\n");
  const line = lines.find((text) => text.startsWith(`cpu${core} `));
  if (line === undefined) throw new Error(`There is no core ${core}`);
  const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
  const all = ticks.reduce((sum, each) => sum + each, 0);
  return { busy: all - (ticks[3] ?? 0) - (ticks[4] ?? 0), all };
}

/** Processor usage during a measurement. Shares are relative to the time of one core. */
export interface Usage {
  /** Nanoseconds of processor time that the process used. */
  readonly cpuNs: number;
  /** Usage of the process's core by all processes. */
  readonly coreBusy: number;
  /** Usage of the process's core by other processes. */
  readonly foreign: number;
  /** Usage of the load's core. */
  readonly loadBusy: number;
}

/** Starts to watch; the returned function reports the usage since then. */
export function watch(pid: number): () => Usage {
  const [cpu, subject, load, time] = [
    readCpuNs(pid),
    readCore(CORES.subject),
    readCore(CORES.load),
    performance.now(),
  ];
  const shareOf = (core: Cores, before: { busy: number; all: number }) => {
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
