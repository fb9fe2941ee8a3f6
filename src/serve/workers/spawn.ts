/**
 * Start of a worker process. Bun and Deno share a port by SO_REUSEPORT, Node by its cluster.
 *
 * @module
 */
import { type ChildProcess, spawn } from "node:child_process";
import cluster from "node:cluster";
import process from "node:process";
import type { MetricSnapshot } from "../../observe/metrics/metric_registry.ts";
import { runtime } from "../../runtime.ts";
import { ownProgram } from "../bun.ts";
import type { ChangingWorker } from "./changes.ts";
import { WORKER_VARIABLE } from "./worker.ts";
import type { WorkerLeases } from "./worker_leases.ts";

/** A worker as its supervisor knows it. */
export interface Worker extends ChangingWorker {
  readonly child: ChildProcess;
  readonly startedAt: number;
  readonly leases: WorkerLeases;
  urls: readonly string[];
  /** Digest of its configuration. */
  digest: string;
  open: number;
  isReady: boolean;
  isLeaving: boolean;
  /** Number of the last batch of usage that it has reported. */
  batch: number;
  /** The metrics that it has reported last. */
  counts: readonly MetricSnapshot[];
}

/** Returns the permissions of Deno's workers. Only those granted as a whole: partial ones can't be read back. */
function denoFlags(): string[] {
  const { permissions } = (globalThis as unknown as {
    Deno: { permissions: { querySync(wanted: { name: string }): { state: string; partial?: boolean } } };
  }).Deno;
  return ["read", "write", "net", "env", "sys", "run"]
    .filter((name) => permissions.querySync({ name }).state === "granted")
    .map((name) => `--allow-${name}`);
}

/**
 * Starts this program again, with the same arguments, as a worker.
 *
 * @param ports The ports of the listeners, once they are known. Node's cluster finds them itself
 * @returns The process
 */
export function spawnWorker(ports: readonly string[]): ChildProcess {
  const args = process.argv.slice(2);
  if (runtime === "node") {
    const [, program = ""] = process.argv;
    // The kernel hands connections out. Node's own way keeps one for ever that it gave to a worker that then died.
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    cluster.setupPrimary({ exec: program, args, execArgv: process.execArgv });
    return cluster.fork({ ...process.env, [WORKER_VARIABLE]: "" }).process;
  }
  const flags = runtime === "deno" ? ["run", "--unstable-net", ...denoFlags()] : process.execArgv;
  const env = { ...process.env, [WORKER_VARIABLE]: ports.join(",") };
  return spawn(process.execPath, [...flags, ...ownProgram(), ...args], {
    env,
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
}
