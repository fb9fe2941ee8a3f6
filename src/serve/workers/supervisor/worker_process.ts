/**
 * A worker from its supervisor's view.
 *
 * @module
 */
import type { ChildProcess } from "node:child_process";
import type { RecordingServer } from "../../../durable/recording_server.ts";
import type { MemoryLimiter } from "../../../limits/memory_limiter.ts";
import type { MetricSnapshot } from "../../../observe/metrics/metric_registry.ts";
import type { SupervisorMessage, WorkerHealth } from "../messages.ts";
import { WorkerLeases } from "./worker_leases.ts";
import { WorkerRecordings } from "./worker_recordings.ts";
import type { WorkerState } from "./worker_state.ts";

/** A worker. */
export interface Worker {
  readonly child: ChildProcess;
  readonly startedAt: number;
  readonly leases: WorkerLeases;
  readonly recordings: WorkerRecordings;
  /** Resolves when it serves, or has ended before it served. */
  readonly begun: Promise<void>;
  readonly ended: Promise<void>;
  setBegun(): void;
  setEnded(): void;
  state: WorkerState;
  /** Stops the timer that kills it if its drain takes too long. */
  cancelKill(): void;
  urls: readonly string[];
  /** Digest of its configuration. */
  digest: string;
  openExchanges: number;
  isReady: boolean;
  /** Number of the last batch of usage that it reported. */
  lastUsageBatch: number;
  /** The metrics that it reported last. */
  metrics: readonly MetricSnapshot[];
}

/** Parts that count limits and store recordings for all workers. */
export interface SharedParts {
  readonly limiter: MemoryLimiter;
  readonly recordings: RecordingServer;
}

/** Creates the record of a started worker. */
export function createWorker(child: ChildProcess, { limiter, recordings }: SharedParts): Worker {
  const name = String(child.pid);
  let setBegun = (): void => {};
  let setEnded = (): void => {};
  return {
    child,
    startedAt: performance.now(),
    leases: new WorkerLeases(limiter),
    recordings: new WorkerRecordings(
      recordings,
      name,
      (replies) => send(child, { type: "recordings", replies }),
    ),
    begun: new Promise((resolve) => setBegun = resolve),
    ended: new Promise((resolve) => setEnded = resolve),
    setBegun,
    setEnded,
    state: { name: "starting" },
    cancelKill() {},
    urls: [],
    digest: "",
    openExchanges: 0,
    isReady: false,
    lastUsageBatch: 0,
    metrics: [],
  };
}

/** Sends a message to a worker, unless it has ended. */
export function send(child: ChildProcess, message: SupervisorMessage): void {
  if (child.connected) child.send(message, () => {});
}

/** Returns the health of a worker. */
export function toHealth(worker: Worker): WorkerHealth {
  const { child, openExchanges, isReady, digest } = worker;
  return { pid: child.pid, openExchanges, isReady, digest };
}
