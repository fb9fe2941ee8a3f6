/**
 * A worker as its supervisor knows it.
 *
 * @module
 */
import type { ChildProcess } from "node:child_process";
import type { SharedRecordings } from "../../durable/shared_recordings.ts";
import type { MemoryLimiter } from "../../limits/memory_limiter.ts";
import type { MetricSnapshot } from "../../observe/metrics/metric_registry.ts";
import type { ChangingWorker } from "./changes.ts";
import type { SupervisorMessage, WorkerHealth } from "./worker.ts";
import { WorkerLeases } from "./worker_leases.ts";
import { WorkerRecordings } from "./worker_recordings.ts";

/** A worker. */
export interface Worker extends ChangingWorker {
  readonly child: ChildProcess;
  readonly startedAt: number;
  readonly leases: WorkerLeases;
  readonly recordings: WorkerRecordings;
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

/**
 * Creates the record of a worker that has just been started.
 *
 * @param child The process
 * @param ended Resolves when it has ended
 * @param all Count limits, and keep recordings, for all workers
 */
export function createWorker(
  child: ChildProcess,
  ended: Promise<void>,
  { limiter, recordings }: { readonly limiter: MemoryLimiter; readonly recordings: SharedRecordings },
): Worker {
  const name = String(child.pid);
  return {
    child,
    startedAt: performance.now(),
    leases: new WorkerLeases(limiter),
    recordings: new WorkerRecordings(recordings, name, (answers) => say(child, { type: "recordings", answers })),
    ended,
    urls: [],
    digest: "",
    source: undefined,
    open: 0,
    isReady: false,
    isLeaving: false,
    batch: 0,
    counts: [],
  };
}

/** Sends a message to a worker, unless it has ended. */
export function say(child: ChildProcess, message: SupervisorMessage): void {
  if (child.connected) child.send(message, () => {});
}

/** Returns the health of a worker. */
export function toHealth({ child: { pid }, open, isReady, digest }: Worker): WorkerHealth {
  return { pid, openExchanges: open, isReady, digest };
}
