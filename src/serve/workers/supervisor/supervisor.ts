/**
 * Several processes on the same addresses, to use all cores. A supervisor starts them, restarts
 * dead ones, replaces them one by one, and counts limits for all of them. It serves no caller
 * itself.
 *
 * @module
 */
import type { ReportEvent } from "../../../exchange/reported_event.ts";
import { ConfigError } from "../../../config/config.ts";
import { GatewayError } from "../../../errors/gateway_error.ts";
import type { GatewayRequest, GatewayResponse } from "../../../http/message.ts";
import {
  type ExchangePage,
  type ExchangeQuery,
  mergePages,
} from "../../../observe/live/exchange_page.ts";
import { type LivePart, mergeParts } from "../../../observe/live/live_report.ts";
import { MetricRegistry, type MetricSnapshot } from "../../../observe/metrics/metric_registry.ts";
import { addFileMetrics } from "../../../observe/metrics/metric_sources.ts";
import { addEnded, mergeMetrics } from "../../../observe/metrics/metrics_text.ts";
import { RecordingServer } from "../../../durable/recording_server.ts";
import { RunServer } from "../../../runs/run_server.ts";
import { systemClock } from "../../../exchange/clock.ts";
import { type Change, prepareAll } from "../../change.ts";
import type { Prepared } from "../../prepare.ts";
import type { Serving } from "../../serving.ts";
import { WorkerChanges } from "./changes.ts";
import { callListener } from "./loopback.ts";
import { Poll } from "./poll.ts";
import { WorkerKeys } from "./worker_keys.ts";
import type { Engines } from "../../engines.ts";
import { send, toHealth, type Worker } from "./worker_process.ts";
import type { SupervisorMessage, WorkerHealth, WorkerMessage } from "../messages.ts";
import { addWorkerMetrics, localDecisionsOf, memoryOf } from "./worker_metrics.ts";
import { WorkerPool } from "./worker_pool.ts";

/** Options of the supervisor. */
export interface SupervisorOptions {
  /** The number of workers. */
  readonly count: number;
  /** Engines that all workers use, unless they share another engine such as Redis. */
  readonly engines: Pick<
    Engines,
    "limiter" | "recordings" | "runs" | "awaitedCalls" | "failedWrites"
  >;
  /** Receives one-line messages for the operator. */
  readonly report: ReportEvent;
}

/** Serves callers through workers. */
export class Supervisor implements Serving {
  readonly #options: SupervisorOptions;
  readonly #pool: WorkerPool;
  readonly #changes: WorkerChanges<Worker>;
  readonly #runs: RunServer;
  #current: Prepared | undefined;
  readonly #metricPoll = new Poll<void>();
  /** The counters and histograms of ended workers. */
  #endedMetrics: readonly MetricSnapshot[] = [];
  readonly #registry = new MetricRegistry();
  readonly #livePoll = new Poll<LivePart>();
  readonly #exchangePoll = new Poll<ExchangePage>();

  readonly #keys = new WorkerKeys<Worker>({
    serving: () => this.#serving,
    send: (worker, message) => this.#send(worker, message),
  });

  constructor(options: SupervisorOptions) {
    const { engines, report, count } = options;
    const { limiter, recordings } = engines;
    this.#options = options;
    this.#runs = new RunServer(engines.runs, systemClock);
    const pool = this.#pool = new WorkerPool({
      shared: { limiter, recordings: new RecordingServer(recordings, systemClock) },
      onMessage: (worker, message) => this.#handle(worker, message),
      onEnded: (worker) => this.#forget(worker),
      drainLimitMs: () => this.#current?.config.drain.limitMs ?? 0,
      report,
    });
    this.#changes = new WorkerChanges<Worker>({
      all: () => pool.all,
      move: (worker, event) => pool.move(worker, event),
      replace: (worker, why) => pool.replace(worker, why),
      send: (worker, message) => this.#send(worker, message),
      clock: systemClock,
    });
    addFileMetrics(this.#registry, engines.failedWrites);
    addWorkerMetrics(this.#registry, {
      serving: () => this.#serving.length,
      wanted: () => count,
      deaths: () => pool.deaths,
      recordingBytes: () => recordings.bytes || undefined,
    });
  }

  /** The addresses that the workers listen on. */
  get urls(): readonly string[] {
    return this.#serving[0]?.urls ?? [];
  }

  /** Number of open exchanges, as last reported by the workers. */
  get openExchanges(): number {
    return this.#pool.all.reduce((sum, { openExchanges }) => sum + openExchanges, 0);
  }

  /** True while it is ready for new requests. */
  get isReady(): boolean {
    return !this.#pool.isClosing && this.#serving.length > 0;
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
    return this.#pool.all.reduce((sum, { metrics }) => sum + memoryOf(metrics), 0);
  }

  /** Number of limit decisions that all workers made without Redis, as last reported. */
  get localDecisions(): number {
    const all = [this.#endedMetrics, ...this.#pool.all.map(({ metrics }) => metrics)];
    return all.reduce((sum, metrics) => sum + localDecisionsOf(metrics), 0);
  }

  /**
   * Reads the metrics of all workers, including ended ones. If a worker does not answer in time,
   * its last report is used: a falling total would look like a restart of the whole program.
   */
  async readMetrics(): Promise<readonly MetricSnapshot[]> {
    const asked = this.#pool.all.filter(({ urls, child }) => urls.length > 0 && child.connected);
    await this.#metricPoll.ask(
      asked,
      (worker, question) => this.#send(worker, { type: "readMetrics", question }),
    );
    const metrics = this.#pool.all.map((worker) => worker.metrics);
    return mergeMetrics([...metrics, this.#endedMetrics, this.#registry.snapshot()]);
  }

  /**
   * Collects the exchanges of all workers that settled from the second `from` up to, but not
   * including, `to`. Workers that do not answer in time are omitted. Seconds since 1970.
   */
  async readLive(from: number, to: number, isBrief = false): Promise<LivePart> {
    const ask = (worker: Worker, question: number) =>
      this.#send(worker, { type: "readLive", question, from, to, isBrief });
    return mergeParts(await this.#livePoll.ask(this.#serving, ask));
  }

  /**
   * Finds exchanges of all workers. Workers that have ended or do not answer in time are omitted.
   */
  async findExchanges(query: ExchangeQuery): Promise<ExchangePage> {
    const ask = (worker: Worker, question: number) =>
      this.#send(worker, { type: "findExchanges", question, query });
    return mergePages(await this.#exchangePoll.ask(this.#serving, ask), query.limit);
  }

  /** Answers a call of the playground through one of the workers. */
  handle(request: GatewayRequest): Promise<GatewayResponse> {
    const [url] = this.urls;
    if (url === undefined) return Promise.reject(new GatewayError("unreachable"));
    return callListener(url, request);
  }

  /**
   * Asks all workers to prepare another configuration.
   *
   * @throws {ConfigError} If one of them can't use it. All workers then keep the previous
   * configuration
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
   * Starts all workers.
   *
   * @throws {ConfigError} If the first one does not start
   */
  async start(): Promise<void> {
    const failure = await this.#pool.start(this.#options.count);
    if (failure === undefined) return;
    throw new ConfigError([{
      path: "workers",
      message: `the first worker could not start: ${failure}`,
    }]);
  }

  /** Reports not ready. After the configured delay, asks all workers to end and waits for them. */
  async close(delayMs: number = this.#current?.config.drain.delayMs ?? 0): Promise<void> {
    this.#pool.beginClose();
    await new Promise((resolve) => setTimeout(resolve, this.#serving.length > 0 ? delayMs : 0));
    await this.#pool.close();
  }

  /** Closes the engines of the configuration. */
  async release(): Promise<void> {
    await this.#current?.assembly.close();
  }

  get #serving(): readonly Worker[] {
    return this.#pool.accepting;
  }

  #send(worker: Worker, message: SupervisorMessage): void {
    send(worker.child, message);
  }

  /** Releases the leases of an ended worker, and keeps its counts. */
  #forget({ metrics, leases, recordings }: Worker): void {
    this.#endedMetrics = addEnded(this.#endedMetrics, metrics);
    leases.releaseAll();
    recordings.releaseAll();
  }

  #handle(worker: Worker, message: WorkerMessage): void {
    switch (message.type) {
      case "hello":
        return this.#changes.configure(worker);
      case "listening":
        worker.urls = message.urls;
        worker.digest = message.digest;
        return this.#changes.listening(worker);
      case "prepared":
      case "refused":
        return this.#changes.receive(message);
      case "health":
        worker.openExchanges = message.openExchanges;
        worker.isReady = message.isReady;
        return;
      case "usage":
        // A batch can arrive twice.
        if (message.batch.number > worker.lastUsageBatch) {
          this.#current?.assembly.usage.add(message.batch.rows);
        }
        worker.lastUsageBatch = Math.max(worker.lastUsageBatch, message.batch.number);
        return this.#send(worker, { type: "usageReceived", batch: message.batch.number });
      case "history":
        return this.#current?.assembly.history.add(message.rows);
      case "metrics":
        worker.metrics = message.metrics;
        return this.#metricPoll.receive(message.question);
      case "live":
        return this.#livePoll.receive(message.question, message.part);
      case "foundExchanges":
        return this.#exchangePoll.receive(message.question, message.page);
      case "recordings":
        // The leases of an ended worker would never be renewed.
        return worker.state.name === "ended"
          ? undefined
          : worker.recordings.handle(message.questions);
      case "runs":
        return void this.#runs.handle(message.message).then((reply) =>
          this.#send(worker, { type: "runs", question: message.question, reply })
        );
      case "putAwaited":
        return void this.#options.engines.awaitedCalls.put(message.name, message.awaited);
      case "takeAwaited": {
        const awaited = this.#options.engines.awaitedCalls.take(message.name) ?? null;
        return this.#send(worker, { type: "takenAwaited", question: message.question, awaited });
      }
      case "findKeys":
      case "foundKeys":
        return this.#keys.handle(worker, message);
      case "limits":
        return this.#countLimits(worker, message);
      default:
        return message satisfies never;
    }
  }

  /** Counts limits, unless their worker has ended: its leases would never be released. */
  #countLimits(worker: Worker, { batch }: WorkerMessage & { type: "limits" }): void {
    if (worker.state.name === "ended") return;
    const states = worker.leases.handle(batch);
    if (batch.questions.length > 0) this.#send(worker, { type: "limits", states });
  }
}
