/**
 * The supervisor's half of a change of the configuration: all workers prepare it, and then either all or none apply it.
 *
 * @module
 */
import { ConfigError } from "../../config/config.ts";
import { systemClock } from "../../exchange/clock.ts";
import { runtime } from "../../runtime.ts";
import type { Change } from "../change.ts";
import { openListener } from "../lifecycle.ts";
import { areInConflict } from "../listener_set.ts";
import { serve } from "../node.ts";
import type { Source } from "../prepare.ts";
import type { SupervisorMessage, WorkerMessage } from "./worker.ts";

/** A worker and its configuration. */
export interface ChangingWorker {
  readonly child: { readonly pid?: number | undefined; kill(signal: "SIGKILL"): unknown };
  readonly ended: Promise<void>;
  /** The configuration that it was last told to use. */
  source: Source | undefined;
}

/** Options of {@link WorkerChanges}. */
export interface WorkerChangesOptions<Worker> {
  /** Returns the workers that serve. */
  readonly serving: () => readonly Worker[];
  readonly say: (worker: Worker, message: SupervisorMessage) => void;
}

/** A worker's answer to a configuration that it was told to prepare. */
type Verdict = WorkerMessage & { readonly type: "prepared" | "refused" };

/**
 * The longest time for a worker to prepare a configuration, with an unreachable Redis and large files. Milliseconds.
 */
const PREPARE_MS = 30_000;

/** Returns the ports of listeners, for the other workers. Not needed on Node, whose cluster shares the ports itself. */
const toPorts = (urls: readonly string[]): number[] =>
  runtime === "node" ? [] : urls.map((url) => Number(new URL(url).port));

/** Holds the configuration of all workers, and replaces it. */
export class WorkerChanges<Worker extends ChangingWorker> {
  /** The configuration that newly started workers get. */
  source: Source | undefined;
  readonly #options: WorkerChangesOptions<Worker>;
  readonly #waiting = new Map<Worker, { readonly call: number; readonly resolve: (verdict: Verdict) => void }>();
  /** The addresses that the workers listen on. */
  #urls: readonly string[] = [];
  #calls = 0;

  /** @param options Options of the changes */
  constructor(options: WorkerChangesOptions<Worker>) {
    this.#options = options;
  }

  /** Sends the configuration to a worker that has started. */
  configure(worker: Worker): void {
    const { source } = this;
    worker.source = source;
    if (source !== undefined) this.#options.say(worker, { type: "configure", source });
  }

  /** Returns whether a worker that serves has the configuration in force. If not, it is updated to it. */
  hasLatest(worker: Worker): boolean {
    if (worker.source === this.source) return true;
    void this.#catchUp(worker);
    return false;
  }

  /** Handles a worker's answer. @param verdict The answer to the configuration that the worker was told to prepare */
  answered(worker: Worker, verdict: Verdict): void {
    const waiting = this.#waiting.get(worker);
    if (waiting?.call === verdict.call) waiting.resolve(verdict);
  }

  /**
   * Makes all workers prepare another configuration. The first does so alone, for the others take over its ports. A
   * worker that ends meanwhile is ignored: its successor starts with the configuration that is then in force.
   *
   * @param source The configuration
   * @returns The change
   * @throws {ConfigError} When one of them can't use it: then all go on as before
   */
  async prepare(source: Source): Promise<Change> {
    const { serving, say } = this.#options;
    const call = ++this.#calls;
    const [first, ...others] = serving();
    const told: Worker[] = [];
    const ask = (worker: Worker, ports: readonly number[]) => {
      told.push(worker);
      return this.#prepareIn(worker, { call, source, ports });
    };
    const abandon = () => {
      for (const worker of told) say(worker, { type: "abandon", call });
      return Promise.resolve();
    };
    let urls: readonly string[] = [];
    if (runtime === "node" && first !== undefined) await this.#assertFree(source);
    try {
      if (first !== undefined) urls = await ask(first, []);
      await Promise.all(others.map((worker) => ask(worker, toPorts(urls))));
    } catch (error) {
      await abandon();
      throw error;
    }
    const apply = () => {
      this.source = source;
      this.#urls = urls;
      for (const worker of told) this.#apply(worker, call);
      for (const worker of serving()) this.hasLatest(worker); // one that came to serve since
    };
    return { apply, abandon };
  }

  /**
   * Checks that new addresses can be listened on, before a worker tries to: a worker of Node's cluster that has once
   * failed to listen on an address can't do so later, even if others can (Node 20 to 26).
   */
  async #assertFree({ addresses }: Source): Promise<void> {
    const before = this.source?.addresses ?? [];
    for (const [index, { hostname, port }] of addresses.entries()) {
      const address = { hostname, port, bodyTimeMs: 0 };
      if (before.some((other) => areInConflict(other, address))) continue; // it stays, or the worker says why it can't
      const nobody = () => Promise.reject(new Error("nobody is to be answered"));
      const listener = await openListener({ fetch: nobody, handle: nobody }, serve, address, `listen[${index}]`);
      listener.kill();
      await listener.stop();
    }
  }

  /** Makes one worker prepare a configuration. @returns The addresses that it would listen on */
  async #prepareIn(
    worker: Worker,
    asked: Omit<SupervisorMessage & { type: "prepare" }, "type">,
  ): Promise<readonly string[]> {
    const { pid } = worker.child;
    const refuse = (message: string) => new ConfigError([{ path: `worker ${pid}`, message }]);
    let cancelTimer = (): void => {};
    try {
      return await new Promise((resolve, reject) => {
        cancelTimer = systemClock.timer(PREPARE_MS, () => reject(refuse("it did not answer in time")));
        this.#waiting.set(worker, {
          call: asked.call,
          resolve: (verdict) => verdict.type === "prepared" ? resolve(verdict.urls) : reject(refuse(verdict.why)),
        });
        void worker.ended.then(() => resolve([]));
        this.#options.say(worker, { type: "prepare", ...asked });
      });
    } finally {
      cancelTimer();
      this.#waiting.delete(worker);
    }
  }

  #apply(worker: Worker, call: number): void {
    worker.source = this.source;
    this.#options.say(worker, { type: "apply", call });
  }

  /**
   * Updates a worker that was starting while the configuration changed. If that fails, the worker is killed, and its
   * successor starts with the new configuration.
   */
  async #catchUp(worker: Worker): Promise<void> {
    const { source } = this;
    if (source === undefined || this.#waiting.has(worker)) return;
    const call = ++this.#calls;
    try {
      await this.#prepareIn(worker, { call, source, ports: toPorts(this.#urls) });
      if (source === this.source) return this.#apply(worker, call);
      this.#options.say(worker, { type: "abandon", call });
      await this.#catchUp(worker);
    } catch {
      worker.child.kill("SIGKILL");
    }
  }
}
