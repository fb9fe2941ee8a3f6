/**
 * Start of a worker process. Bun and Deno share a port with SO_REUSEPORT, Node with its cluster.
 *
 * @module
 */
import { type ChildProcess, spawn } from "node:child_process";
import cluster from "node:cluster";
import process from "node:process";
import { runtime } from "../../../runtime.ts";
import { ownProgram, programPath } from "../../bun.ts";
import { WORKER_VARIABLE } from "../worker/supervisor_connection.ts";

/**
 * Returns the permissions for Deno's workers. Includes only permissions granted as a whole, because
 * partial ones can't be read.
 */
function denoFlags(): string[] {
  const { permissions } = (globalThis as unknown as {
    Deno: {
      permissions: { querySync(wanted: { name: string }): { state: string; partial?: boolean } };
    };
  }).Deno;
  return ["read", "write", "net", "env", "sys", "run"]
    .filter((name) => permissions.querySync({ name }).state === "granted")
    .map((name) => `--allow-${name}`);
}

/**
 * Starts this program again, with the same arguments, as a worker.
 *
 * @returns The process. Without a `pid` it could not be started, and an `error` follows
 * @throws The system's error if it refused at once
 */
export function spawnWorker(): ChildProcess {
  const args = process.argv.slice(2);
  const env = { ...process.env, [WORKER_VARIABLE]: "yes" };
  if (runtime === "node") return forkWorker(args, env);
  const flags = runtime === "deno" ? ["run", "--unstable-net", ...denoFlags()] : process.execArgv;
  return spawn(process.execPath, [...flags, ...ownProgram(), ...args], {
    env,
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
}

function forkWorker(args: string[], env: NodeJS.ProcessEnv): ChildProcess {
  // The kernel hands connections out. Node's own way keeps one for ever that it gave to a worker
  // that then died.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  cluster.setupPrimary({ exec: programPath(), args, execArgv: process.execArgv });
  const worker = cluster.fork(env);
  // Without a listener, the cluster throws the error of a process that could not be started. The
  // cluster never removes that process.
  worker.on("error", () => {
    if (worker.process.pid === undefined) delete cluster.workers?.[worker.id];
  });
  return worker.process;
}
