/**
 * The supervisor's part of a change of the configuration: all workers prepare it, and then either
 * all or none apply it.
 *
 * @module
 */
import { ConfigError } from "../../../config/config.ts";
import type { Clock } from "../../../exchange/clock.ts";
import { runtime } from "../../../runtime.ts";
import type { Change } from "../../change.ts";
import { openListener } from "../../lifecycle.ts";
import { areInConflict } from "../../../config/listeners.ts";
import { serve } from "../../node.ts";
import type { Source } from "../../prepare.ts";
import type { SupervisorMessage, WorkerMessage } from "../messages.ts";
import type { AskedChange, WorkerEvent, WorkerState } from "./worker_state.ts";

/** Options of {@link WorkerChanges}. */
export interface WorkerChangesOptions<Worker extends ChangingWorker> {
  /** Returns all workers. */
  readonly all: () => readonly Worker[];
  /** Passes an event to a worker's state. Returns true if the state changed. */
  readonly move: (worker: Worker, event: WorkerEvent) => boolean;
  /** Drains a worker and starts another one in its place. */
  readonly replace: (worker: Worker, why: string) => void;
  readonly send: (worker: Worker, message: SupervisorMessage) => void;
  readonly clock: Clock;
}

/** The part of a worker that concerns its configuration. */
export interface ChangingWorker {
  readonly child: { readonly pid?: number | undefined };
  readonly ended: Promise<void>;
  readonly state: WorkerState;
  readonly urls: readonly string[];
}

/**
 * A worker's reply to a configuration that it was asked to prepare. `late` and `ended` replace a
 * missing reply.
 */
type PrepareReply = (WorkerMessage & { readonly type: "prepared" | "refused" }) | {
  readonly type: "late" | "ended";
};

/**
 * The longest time for a worker to prepare a configuration, with an unreachable Redis and large
 * files. Milliseconds.
 */
const PREPARE_MS = 30_000;
const UNTRIED = "no worker serves, so none could try the configuration. " +
  "Reload when one does, or restart the gateway";

/**
 * Returns the ports of listeners, for the other workers. Not needed on Node, whose cluster shares
 * the ports itself.
 */
const toPorts = (urls: readonly string[]): number[] =>
  runtime === "node" ? [] : urls.map((url) => Number(new URL(url).port));

/** Stores the configuration of all workers, and replaces it. */
export class WorkerChanges<Worker extends ChangingWorker> {
  /** The active configuration, which new workers receive. */
  #source: Source | undefined;
  readonly #options: WorkerChangesOptions<Worker>;
  /** Questions without a reply. */
  readonly #asked = new Map<number, (verdict: PrepareReply) => void>();
  readonly #catchingUp = new Set<Promise<void>>();
  /** Notifies a waiting change that a worker serves. */
  #served = (): void => {};
  /** The addresses of the workers under the active configuration. Empty until a worker listens. */
  #urls: readonly string[] = [];
  #lastQuestion = 0;

  constructor(options: WorkerChangesOptions<Worker>) {
    this.#options = options;
  }

  /** Sends the configuration to a started worker. */
  configure(worker: Worker): void {
    const { move, send } = this.#options;
    const source = this.#source;
    if (source === undefined || !move(worker, { type: "configured", source })) return;
    const urls = this.#urls;
    const isFirst = urls.length === 0;
    send(worker, { type: "configure", source, ports: toPorts(urls), isFirst });
  }

  /**
   * Handles a worker's message that it listens with the configuration that it was last asked to
   * use.
   */
  listening(worker: Worker): void {
    const { move } = this.#options;
    move(worker, { type: "listening" });
    const { state } = worker;
    if (state.name !== "serving") return;
    if (state.source !== this.#source) return this.#beginCatchUp(worker);
    this.#urls = worker.urls;
    this.#served();
  }

  /** Handles a worker's reply to a configuration that it was asked to prepare. */
  receive(verdict: WorkerMessage & { readonly type: "prepared" | "refused" }): void {
    this.#asked.get(verdict.question)?.(verdict);
  }

  /**
   * Asks all workers to prepare another configuration, after outdated ones have caught up. The
   * first does so alone, because the others use its ports. A worker that starts or ends in the
   * meantime is not asked: it, or its successor, receives the configuration that is then active.
   * Unless it is the first configuration, at least one worker must try it.
   *
   * @throws {ConfigError} If one of them can't use it, or no worker serves. All workers then keep
   * the previous configuration
   */
  async prepare(source: Source): Promise<Change> {
    while (this.#catchingUp.size > 0) await Promise.all(this.#catchingUp);
    const isFirst = this.#source === undefined;
    if (!isFirst && this.#serving.length === 0) await this.#untilServed();
    if (runtime === "node" && this.#serving.length > 0) await this.#assertFree(source);
    let urls: readonly string[] | undefined;
    try {
      for (const worker of this.#serving) {
        urls = await this.#ask(worker, source, []);
        if (urls !== undefined) break;
      }
      if (!isFirst && urls === undefined) {
        throw new ConfigError([{ path: "workers", message: UNTRIED }]);
      }
      const ports = toPorts(urls ?? []);
      await Promise.all(this.#serving.map((worker) => this.#ask(worker, source, ports)));
    } catch (error) {
      this.#abandon(source);
      throw error;
    }
    return {
      apply: () => this.#apply(source, urls ?? []),
      abandon: () => Promise.resolve(this.#abandon(source)),
    };
  }

  /** The serving workers that are not preparing a change. */
  get #serving(): readonly Worker[] {
    return this.#options.all().filter(({ state }) => state.name === "serving");
  }

  /** Waits a limited time until a worker serves: ended workers are started again after a pause. */
  #untilServed(): Promise<void> {
    return new Promise((resolve) => {
      const cancelTimer = this.#options.clock.timer(PREPARE_MS, resolve, { isBackground: true });
      this.#served = () => {
        cancelTimer();
        resolve();
      };
    });
  }

  #apply(source: Source, urls: readonly string[]): void {
    this.#source = source;
    this.#urls = urls;
    for (const worker of this.#options.all()) {
      const { state } = worker;
      if (state.name === "prepared" && state.change.source === source) {
        this.#tellToApply(worker, state.change);
      } else if (state.name === "serving") this.#beginCatchUp(worker); // it started to serve in the meantime
    }
  }

  #abandon(source: Source): void {
    for (const worker of this.#options.all()) {
      const { state } = worker;
      if ("change" in state && state.change.source === source) {
        this.#tellToAbandon(worker, state.change);
      }
    }
  }

  #tellToApply(worker: Worker, { question }: AskedChange): void {
    this.#options.move(worker, { type: "applied" });
    this.#options.send(worker, { type: "apply", question });
  }

  #tellToAbandon(worker: Worker, { question }: AskedChange): void {
    this.#options.move(worker, { type: "abandoned" });
    this.#options.send(worker, { type: "abandon", question });
  }

  /**
   * Checks that new addresses can be listened on, before a worker tries to: after a worker of
   * Node's cluster has failed to listen on an address, it can't do so later, even if others can
   * (Node 20 to 26).
   */
  async #assertFree({ addresses }: Source): Promise<void> {
    const before = this.#source?.addresses ?? [];
    for (const [index, { hostname, port }] of addresses.entries()) {
      const address = { hostname, port, bodyTimeMs: 0 };
      // The address stays open, or the worker reports why it can't.
      if (before.some((other) => areInConflict(other, address))) continue;
      const refuse = () => Promise.reject(new Error("this listener answers no one"));
      const listener = await openListener(
        { fetch: refuse, handle: refuse },
        serve,
        address,
        `listen[${index}]`,
      );
      listener.kill();
      await listener.stop();
    }
  }

  /**
   * Asks a serving worker to prepare a configuration.
   *
   * @returns The addresses that it would listen on; `undefined` if it has ended, or was asked to
   * end, in the meantime
   * @throws {ConfigError} If it can't use the configuration, or does not answer in time
   */
  async #ask(
    worker: Worker,
    source: Source,
    ports: readonly number[],
  ): Promise<readonly string[] | undefined> {
    const { move, send, clock } = this.#options;
    const question = ++this.#lastQuestion;
    if (!move(worker, { type: "asked", change: { question, source } })) return undefined;
    let cancelTimer = (): void => {};
    const verdict = await new Promise<PrepareReply>((resolve) => {
      cancelTimer = clock.timer(PREPARE_MS, () => resolve({ type: "late" }));
      this.#asked.set(question, resolve);
      void worker.ended.then(() => resolve({ type: "ended" }));
      send(worker, { type: "prepare", question, source, ports });
    });
    cancelTimer();
    this.#asked.delete(question);
    const refuse = (message: string) => {
      send(worker, { type: "abandon", question }); // a late worker can still finish its preparation
      if (!move(worker, { type: "refused", question })) return undefined;
      throw new ConfigError([{ path: `worker ${worker.child.pid}`, message }]);
    };
    switch (verdict.type) {
      case "prepared":
        return move(worker, { type: "prepared", question }) ? verdict.urls : undefined;
      case "refused":
        return refuse(verdict.why);
      case "late":
        return refuse("it did not answer in time");
      case "ended":
        return undefined;
      default:
        return verdict satisfies never;
    }
  }

  /** Updates a worker that was starting while the configuration changed. */
  #beginCatchUp(worker: Worker): void {
    const task = this.#catchUp(worker).finally(() => {
      this.#catchingUp.delete(task);
      if (this.#serving.length > 0) this.#served();
    });
    this.#catchingUp.add(task);
  }

  /** If it can't use the active configuration, it is replaced by a new worker. */
  async #catchUp(worker: Worker): Promise<void> {
    const isBehind = ({ state }: Worker) =>
      state.name === "serving" && state.source !== this.#source;
    while (this.#source !== undefined && isBehind(worker)) {
      const source = this.#source;
      try {
        await this.#ask(worker, source, toPorts(this.#urls));
      } catch (error) {
        return this.#options.replace(
          worker,
          error instanceof ConfigError ? error.message : String(error),
        );
      }
      const { state } = worker;
      if (state.name !== "prepared") return;
      if (source === this.#source) this.#tellToApply(worker, state.change);
      else this.#tellToAbandon(worker, state.change);
    }
  }
}
