/**
 * The workers of a supervisor: starts them, replaces ended ones, and drains them.
 *
 * @module
 */
import type { EventFacts, ReportEvent } from "../../../exchange/reported_event.ts";
import type { ChildProcess } from "node:child_process";
import process from "node:process";
import { systemClock } from "../../../exchange/clock.ts";
import { spawnWorker } from "./spawn.ts";
import { createWorker, send, type SharedParts, type Worker } from "./worker_process.ts";
import type { WorkerMessage } from "../messages.ts";
import {
  acceptsCallers,
  nextSupervisorState,
  nextWorkerState,
  type SupervisorState,
  type WorkerEvent,
  type WorkerState,
} from "./worker_state.ts";

/** Options of the pool. */
export interface WorkerPoolOptions {
  readonly shared: SharedParts;
  /** Receives each message of a worker. */
  readonly onMessage: (worker: Worker, message: WorkerMessage) => void;
  /** Called when a worker has ended. */
  readonly onEnded: (worker: Worker) => void;
  /** Returns the longest time for a worker to drain. Milliseconds. */
  readonly drainLimitMs: () => number;
  /** Receives one-line messages for the operator. */
  readonly report: ReportEvent;
}

/** A worker that ends at a lower age is replaced only after a pause, which grows. Milliseconds. */
const YOUNG_MS = 5000;
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 10_000;
/** Time after the drain's limit when a worker that has not ended is killed. Milliseconds. */
const GRACE_MS = 5000;

/** Reason for the loss of a worker, for the operator. */
interface Loss {
  /** Text if other workers serve. */
  readonly text: string;
  /** Text if it was the first worker. */
  readonly textOfFirst: string;
  readonly facts: Omit<EventFacts, "event">;
}

function toExit({ pid }: ChildProcess, status: unknown): Loss {
  return {
    text: `worker ${pid} ended with ${status} and is started again`,
    textOfFirst: "it says why above",
    facts: { worker: pid, status: String(status) },
  };
}

function toSpawnFailure(error: unknown): Loss {
  const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
  return {
    text: `a worker could not be started: ${code}; it is tried again`,
    textOfFirst: code,
    facts: { code },
  };
}

/** The workers. */
export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  readonly #all = new Set<Worker>();
  readonly #restarts = new Set<() => void>();
  #state: SupervisorState = "starting";
  #pauseMs = FIRST_PAUSE_MS;
  #deaths = 0;
  /** Reason why the first worker could not start. */
  #failure: string | undefined;

  constructor(options: WorkerPoolOptions) {
    this.#options = options;
    // A second signal, or a closed terminal, ends the supervisor and its workers at once.
    process.on("exit", () => this.kill());
  }

  /** All workers that have not ended. */
  get all(): readonly Worker[] {
    return Array.from(this.#all);
  }

  /** The workers that accept callers. */
  get accepting(): readonly Worker[] {
    return this.all.filter(({ state }) => acceptsCallers(state));
  }

  /** True when ended workers are no longer replaced. */
  get isClosing(): boolean {
    return this.#state === "closing";
  }

  /** Number of workers that ended unexpectedly or could not be started. */
  get deaths(): number {
    return this.#deaths;
  }

  /**
   * Starts all workers: first one alone, because the others use its ports.
   *
   * @returns Reason why the first one could not start; `undefined` when each of them serves, or has
   * ended since
   */
  async start(count: number): Promise<string | undefined> {
    await this.#startOne()?.begun;
    if (this.#state !== "serving") return this.#failure;
    const others = Array.from({ length: count - 1 }, () => this.#startOne());
    await Promise.all(others.map((worker) => worker?.begun));
    return undefined;
  }

  /** Passes an event to a worker. Returns true if that changed the worker's state. */
  move(worker: Worker, event: WorkerEvent): boolean {
    const before = worker.state;
    worker.state = nextWorkerState(before, event);
    if (worker.state === before) return false;
    this.#entered(worker, before);
    return true;
  }

  /**
   * Drains a worker that can't continue, and starts another one in its place.
   *
   * @param why The worker and the reason, for the operator
   */
  replace(worker: Worker, why: string): void {
    if (this.#state !== "serving" || !this.move(worker, { type: "drained" })) return;
    const reason = why.replaceAll("\n", "; ");
    const text = `${reason}; it finishes its exchanges, and another worker replaces it`;
    this.#options.report(text, { event: "worker_replaced", worker: worker.child.pid });
    this.#startOne();
  }

  /** Stops replacing workers, and ends workers that do not serve yet. */
  beginClose(): void {
    this.#state = nextSupervisorState(this.#state, "closed");
    for (const cancel of this.#restarts) cancel();
    this.#restarts.clear();
    for (const worker of this.all) {
      if (worker.state.name === "starting") this.move(worker, { type: "drained" });
    }
  }

  /** Drains all workers. */
  async close(): Promise<void> {
    const all = this.all;
    for (const worker of all) this.move(worker, { type: "drained" });
    await Promise.all(all.map(({ ended }) => ended));
  }

  /** Kills all workers at once. */
  kill(): void {
    for (const { child } of this.#all) child.kill("SIGKILL");
  }

  /** Starts a worker. Returns `undefined` if the system refused at once. */
  #startOne(): Worker | undefined {
    const startedAt = performance.now();
    let child: ChildProcess;
    try {
      child = spawnWorker();
    } catch (error) {
      this.#lose(startedAt, toSpawnFailure(error));
      return undefined;
    }
    const worker = createWorker(child, this.#options.shared);
    this.#all.add(worker);
    child.once("exit", (code, signal) => this.#end(worker, toExit(child, code ?? signal)));
    child.on("error", (error) => {
      if (child.pid === undefined) this.#end(worker, toSpawnFailure(error)); // no exit follows
    });
    child.on("message", (message) => this.#options.onMessage(worker, message as WorkerMessage));
    return worker;
  }

  /** Acts on the new state of a worker. */
  #entered(worker: Worker, before: WorkerState): void {
    const { name } = worker.state;
    switch (name) {
      case "starting":
      case "opening":
      case "preparing":
      case "prepared":
        return;
      case "serving":
        this.#state = nextSupervisorState(this.#state, "served");
        return worker.setBegun();
      case "draining":
        worker.cancelKill = this.#drain(worker, before);
        return;
      case "ended":
        worker.cancelKill();
        this.#all.delete(worker);
        this.#options.onEnded(worker);
        worker.setBegun();
        return worker.setEnded();
      default:
        return name satisfies never;
    }
  }

  #drain({ child }: Worker, before: WorkerState): () => void {
    const kill = () => void child.kill("SIGKILL");
    if (before.name === "starting") kill(); // it serves nothing, and possibly does not read messages yet
    else send(child, { type: "close" });
    return systemClock.timer(this.#options.drainLimitMs() + GRACE_MS, kill);
  }

  #end(worker: Worker, loss: Loss): void {
    const wasDraining = worker.state.name === "draining";
    if (this.move(worker, { type: "ended" }) && !wasDraining) this.#lose(worker.startedAt, loss);
  }

  /**
   * Acts on the loss of a worker: starts another one, after a pause if the lost worker was young.
   */
  #lose(startedAt: number, { text, textOfFirst, facts }: Loss): void {
    const state = this.#state;
    switch (state) {
      case "starting":
        this.#failure = textOfFirst;
        return;
      case "serving":
        this.#deaths++;
        this.#options.report(text, { event: "worker_ended", ...facts });
        return this.#startAgain(performance.now() - startedAt < YOUNG_MS);
      case "closing":
        return;
      default:
        return state satisfies never;
    }
  }

  #startAgain(wasYoung: boolean): void {
    this.#pauseMs = wasYoung ? Math.min(this.#pauseMs * 2, MAX_PAUSE_MS) : FIRST_PAUSE_MS;
    const cancel = systemClock.timer(wasYoung ? this.#pauseMs : 0, () => {
      this.#restarts.delete(cancel);
      this.#startOne();
    });
    this.#restarts.add(cancel);
  }
}
