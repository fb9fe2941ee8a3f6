/**
 * A worker as its supervisor knows it.
 *
 * @module
 */
import type { ChildProcess } from "node:child_process";
import type { MemoryLimiter } from "../../limits/memory_limiter.ts";
import type { MetricSnapshot } from "../../observe/metrics/metric_registry.ts";
import type { ChangingWorker } from "./changes.ts";
import type { WorkerHealth } from "./worker.ts";
import { WorkerLeases } from "./worker_leases.ts";

/** A worker. */
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

/**
 * Creates the record of a worker that has just been started.
 *
 * @param child The process
 * @param ended Resolves when it has ended
 * @param limiter Counts limits for all workers
 */
export function createWorker(child: ChildProcess, ended: Promise<void>, limiter: MemoryLimiter): Worker {
  return {
    child,
    startedAt: performance.now(),
    leases: new WorkerLeases(limiter),
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

/** Returns the health of a worker. */
export function toHealth({ child: { pid }, open, isReady, digest }: Worker): WorkerHealth {
  return { pid, openExchanges: open, isReady, digest };
}
