/**
 * Several processes on the same addresses, to use all cores: a supervisor starts them, starts a dead one again,
 * replaces them one by one, and counts limits for all of them. It serves no caller itself.
 *
 * @module
 */
import { ConfigError } from "../../config/config.ts";
import type { GatewayRequest, GatewayResponse } from "../../http/message.ts";
import { type ExchangePage, type ExchangeQuery, mergePages } from "../../observe/live/exchange_page.ts";
import { type LivePart, mergeParts } from "../../observe/live/live_report.ts";
import type { MemoryLimiter } from "../../limits/memory_limiter.ts";
import { MetricRegistry, type MetricSnapshot } from "../../observe/metrics/metric_registry.ts";
import { addEnded, mergeMetrics } from "../../observe/metrics/metrics_text.ts";
import { SharedRecordings } from "../../durable/shared_recordings.ts";
import type { MemoryRecordings } from "../../durable/recording_store_memory.ts";
import { systemClock } from "../../exchange/clock.ts";
import { type Change, prepareAll } from "../change.ts";
import type { Prepared } from "../prepare.ts";
import type { Serving } from "../serving.ts";
import { WorkerChanges } from "./changes.ts";
import { callListener } from "./loopback.ts";
import { Poll } from "./poll.ts";
import { spawnWorker } from "./spawn.ts";
import { WorkerKeys } from "./supervised_keys.ts";
import { createWorker, say, toHealth, type Worker } from "./supervised_worker.ts";
import type { SupervisorMessage, WorkerHealth, WorkerMessage } from "./worker.ts";
import { addWorkerMetrics, localDecisionsOf, memoryOf } from "./worker_metrics.ts";

/** Options of the supervisor. */
export interface SuperviseOptions {
  /** The number of workers. */
  readonly count: number;
  /** Counts limits for all workers, where these do not share another engine such as Redis. */
  readonly limiter: MemoryLimiter;
  /** Keeps recordings for all workers, where these do not share another engine. */
  readonly recordings: MemoryRecordings;
  /** Receives one-line messages for the operator. */
  readonly report: (text: string) => void;
}

/** The age below which a worker that dies is started again only after a pause, which grows. Milliseconds. */
const YOUNG_MS = 5000;
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 10_000;
/** The time after the drain's limit at which a worker that has not ended is killed. Milliseconds. */
const GRACE_MS = 5000;

/** The supervisor: serves callers through workers. */
export class Workers implements Serving {
  readonly #options: SuperviseOptions;
  /** Limits and recordings of all workers. */
  readonly #shared: Parameters<typeof createWorker>[2];
  readonly #workers = new Set<Worker>();
  #ports: readonly string[] = [];
  #pauseMs = FIRST_PAUSE_MS;
  #isClosing = false;
  /** True once a worker has served: then the configuration is good, and workers that end are started again. */
  #hasServed = false;
  #current: Prepared | undefined;
  #deaths = 0;
  readonly #counting = new Poll<void>();
  /** The counters and histograms of workers that have ended. */
  #ended: readonly MetricSnapshot[] = [];
  readonly #registry = new MetricRegistry();
  readonly #watching = new Poll<LivePart>();
  readonly #finding = new Poll<ExchangePage>();
  readonly #changes = new WorkerChanges<Worker>({
    serving: () => this.#serving,
    say: (worker, message) => this.#say(worker, message),
  });

  readonly #keys = new WorkerKeys<Worker>({
    serving: () => this.#serving,
    say: (worker, message) => this.#say(worker, message),
  });

  /** @param options Options of the supervisor */
  constructor(options: SuperviseOptions) {
    this.#options = options;
    const { limiter, recordings } = options;
    this.#shared = { limiter, recordings: new SharedRecordings(recordings, systemClock) };
    addWorkerMetrics(this.#registry, {
      serving: () => this.#serving.length,
      wanted: () => options.count,
      deaths: () => this.#deaths,
      recordingBytes: () => recordings.bytes || undefined,
    });
  }

  /** The addresses that the workers listen on. */
  get urls(): readonly string[] {
    return this.#serving[0]?.urls ?? [];
  }

  /** The number of open exchanges, as last reported by the workers. */
  get openExchanges(): number {
    return Array.from(this.#workers).reduce((sum, { open }) => sum + open, 0);
  }

  /** True while it is ready for new requests. */
  get isReady(): boolean {
    return !this.#isClosing && this.#serving.length > 0;
  }

  /** True until a worker can look keys up. */
  get isStarting(): boolean {
    return !this.#serving.some(({ isReady }) => isReady);
  }

  /** Each worker's process id, open exchanges, readiness, and the digest of its configuration. */
  get health(): readonly WorkerHealth[] {
    return this.#serving.map(toHealth);
  }

  get workers(): Serving["workers"] {
    return { serving: this.#serving.length, wanted: this.#options.count };
  }

  /** Memory of all workers, as last reported. */
  get memoryBytes(): number {
    return Array.from(this.#workers).reduce((sum, { counts }) => sum + memoryOf(counts), 0);
  }

  /** Limits that all workers have decided without Redis, as last reported. */
  get localDecisions(): number {
    const all = [this.#ended, ...Array.from(this.#workers, ({ counts }) => counts)];
    return all.reduce((sum, counts) => sum + localDecisionsOf(counts), 0);
  }

  /**
   * Reads the metrics of all workers, including those that have ended. For one that does not answer in time, its last
   * report is used: a total that falls would look like a restart of the whole program.
   */
  async snapshot(): Promise<readonly MetricSnapshot[]> {
    const asked = Array.from(this.#workers).filter(({ urls, child }) => urls.length > 0 && child.connected);
    await this.#counting.ask(asked, (worker, call) => this.#say(worker, { type: "count", call }));
    const counts = Array.from(this.#workers, ({ counts }) => counts);
    return mergeMetrics([...counts, this.#ended, this.#registry.snapshot()]);
  }

  /**
   * Collects the exchanges that settled at all workers from the second `from` up to, but not including, `to`. A worker
   * that does not answer in time is left out. Seconds since 1970.
   */
  async look(from: number, to: number, isBrief = false): Promise<LivePart> {
    const ask = (worker: Worker, call: number) => this.#say(worker, { type: "watch", call, from, to, isBrief });
    return mergeParts(await this.#watching.ask(this.#serving, ask));
  }

  /** Finds exchanges at all workers. One that does not answer in time, or has ended, is left out. */
  async find(query: ExchangeQuery): Promise<ExchangePage> {
    const ask = (worker: Worker, call: number) => this.#say(worker, { type: "find", call, query });
    return mergePages(await this.#finding.ask(this.#serving, ask), query.limit);
  }

  /** Answers a call of the playground through one of the workers. */
  handle(request: GatewayRequest): Promise<GatewayResponse> {
    return callListener(this.urls[0] ?? "", request);
  }

  /**
   * Makes all workers prepare another configuration.
   *
   * @param prepared The configuration
   * @returns The change
   * @throws {ConfigError} When one of them can't use it: then all go on as before
   */
  prepare(prepared: Prepared): Promise<Change> {
    const { assembly, source } = prepared;
    const own = {
      apply: () => {
        const before = this.#current;
        this.#current = prepared;
        void assembly.begin().then(() => before?.assembly.close());
      },
      abandon: () => assembly.close(),
    };
    return prepareAll(() => Promise.resolve(own), () => this.#changes.prepare(source));
  }

  /**
   * Starts all workers: first one alone, for the others take over its ports.
   *
   * @throws {ConfigError} When the first one does not start
   */
  async start(): Promise<void> {
    try {
      await this.#startOne();
      await Promise.all(Array.from({ length: this.#options.count - 1 }, () => this.#startOne()));
    } catch {
      this.kill();
      throw new ConfigError([{ path: "workers", message: "the first worker could not start: it says why above" }]);
    }
  }

  /** Reports that it is not ready, and after the configured delay tells all workers to end and waits for them. */
  async close(): Promise<void> {
    const { delayMs, limitMs } = this.#current?.config.drain ?? { delayMs: 0, limitMs: 0 };
    this.#isClosing = true;
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    const workers = Array.from(this.#workers);
    const timer = setTimeout(() => this.kill(), limitMs + GRACE_MS);
    for (const worker of workers) {
      worker.isLeaving = true;
      this.#say(worker, { type: "close" });
    }
    await Promise.all(workers.map(({ ended }) => ended));
    clearTimeout(timer);
  }

  /** Closes the engines of the configuration. */
  async release(): Promise<void> {
    await this.#current?.assembly.close();
  }

  /** Kills all workers at once. */
  kill(): void {
    for (const { child } of this.#workers) child.kill("SIGKILL");
  }

  get #serving(): Worker[] {
    return Array.from(this.#workers).filter(({ urls, isLeaving }) => urls.length > 0 && !isLeaving);
  }

  #say({ child }: Worker, message: SupervisorMessage): void {
    say(child, message);
  }

  /** Starts a worker. Resolves when it serves or has ended; rejects when it ended and no worker has ever served. */
  #startOne(): Promise<void> {
    const child = spawnWorker(this.#ports);
    return new Promise((resolve, reject) => {
      const ended = new Promise<void>((settle) =>
        child.once("exit", (code, signal) => {
          this.#workers.delete(worker);
          this.#ended = addEnded(this.#ended, worker.counts);
          worker.leases.leave();
          worker.recordings.leave();
          settle();
          if (worker.isLeaving || this.#isClosing) return resolve();
          if (!this.#hasServed) return reject(new Error(`a worker ended with ${code ?? signal} before it listened`));
          resolve(); // if it never served, it is not waited for: others do, and it is started again
          this.#deaths++;
          this.#options.report(`worker ${child.pid} ended with ${code ?? signal} and is started again`);
          this.#startAgain(worker);
        })
      );
      const worker = createWorker(child, ended, this.#shared);
      this.#workers.add(worker);
      child.on("error", () => {});
      child.on("message", (message) => {
        this.#heard(worker, message as WorkerMessage);
        if (worker.urls.length > 0) resolve();
      });
    });
  }

  #startAgain({ startedAt }: Worker): void {
    const isYoung = performance.now() - startedAt < YOUNG_MS;
    this.#pauseMs = isYoung ? Math.min(this.#pauseMs * 2, MAX_PAUSE_MS) : FIRST_PAUSE_MS;
    setTimeout(() => {
      if (!this.#isClosing) void this.#startOne();
    }, isYoung ? this.#pauseMs : 0);
  }

  #heard(worker: Worker, message: WorkerMessage): void {
    switch (message.type) {
      case "hello":
        return this.#changes.configure(worker);
      case "listening":
        this.#hasServed = true;
        worker.urls = message.urls;
        worker.digest = message.digest;
        if (this.#changes.hasLatest(worker)) this.#ports = message.urls.map((url) => new URL(url).port);
        return;
      case "prepared":
      case "refused":
        return this.#changes.answered(worker, message);
      case "open":
        worker.open = message.open;
        worker.isReady = message.isReady;
        return;
      case "usage":
        // The same one may come twice.
        if (message.batch.number > worker.batch) this.#current?.assembly.usage.add(message.batch.rows);
        worker.batch = Math.max(worker.batch, message.batch.number);
        return this.#say(worker, { type: "counted", batch: message.batch.number });
      case "counts":
        worker.counts = message.counts;
        return this.#counting.answered(message.call);
      case "live":
        return this.#watching.answered(message.call, message.part);
      case "found":
        return this.#finding.answered(message.call, message.page);
      case "recordings":
        // Nobody would renew the leases of a worker that has ended.
        return this.#workers.has(worker) ? worker.recordings.handle(message.calls) : undefined;
      case "findKey":
      case "foundKey":
        return this.#keys.heard(worker, message);
      case "limits":
        return this.#count(worker, message);
    }
  }

  /** Counts limits, unless their worker has ended: then nobody would release what it acquires. */
  #count(worker: Worker, { batch }: WorkerMessage & { type: "limits" }): void {
    if (!this.#workers.has(worker)) return;
    const states = worker.leases.handle(batch);
    if (batch.questions.length > 0) this.#say(worker, { type: "limits", states });
  }
}
