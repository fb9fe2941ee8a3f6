/**
 * A worker's connection to its supervisor: messages, changes of the configuration, and engines in
 * the supervisor.
 *
 * @module
 */
import cluster from "node:cluster";
import process from "node:process";
import type { RecordingStore } from "../../../durable/recording_store.ts";
import type { ExchangePage, ExchangeQuery } from "../../../observe/live/exchange_page.ts";
import type { LivePart } from "../../../observe/live/live_report.ts";
import { systemClock } from "../../../exchange/clock.ts";
import type { MetricSnapshot } from "../../../observe/metrics/metric_registry.ts";
import { ConfigError } from "../../../config/config.ts";
import type { ListeningChange } from "../../listener_set.ts";
import type { RunRegistry } from "../../../runs/run_registry.ts";
import type { Source } from "../../prepare.ts";
import type { StartSource, SupervisorMessage, WorkerMessage } from "../messages.ts";
import { AwaitedCallsClient } from "./awaited_calls_client.ts";
import { HistoryClient } from "./history_client.ts";
import { KeysClient } from "./keys_client.ts";
import { LimiterClient } from "./limiter_client.ts";
import { RecordingsClient } from "./recordings_client.ts";
import { RunsClient } from "./runs_client.ts";
import { UsageClient } from "./usage_client.ts";

/** Variable that marks a process as a worker. */
export const WORKER_VARIABLE = "_SALLYPORT_WORKER";

/** Interval at which a worker reports its number of open exchanges. Milliseconds. */
const HEALTH_MS = 500;

/**
 * Interval at which a worker reports its metrics. A dead worker loses at most this. Milliseconds.
 */
const METRICS_MS = 1000;

/** The longest time that an ending worker waits until its last metrics are sent. Milliseconds. */
const LAST_WORD_MS = 500;

/** Sends a message to the supervisor. @param onSent Called when it was sent, or has failed */
function send(message: WorkerMessage, onSent = (): void => {}): void {
  // If the supervisor is gone, the worker is about to end too.
  if (process.connected) process.send?.(message, undefined, undefined, () => onSent());
}

/** Functions that read the data of a worker's reports. */
export interface WorkerReadings {
  openExchanges(): number;
  /** True if keys can be looked up. */
  isReady(): boolean;
  metrics(): readonly MetricSnapshot[];
  /**
   * Reports the exchanges that settled from the second `from` up to, but not including, `to`.
   * Seconds since 1970.
   */
  readLive(from: number, to: number, isBrief: boolean): Promise<LivePart>;
  /** Finds stored exchanges. */
  findExchanges(query: ExchangeQuery): Promise<ExchangePage>;
}

/** Prepares a configuration, with the ports of the first worker. */
export type PrepareInWorker = (
  source: Source,
  ports: readonly number[],
) => Promise<ListeningChange>;

/** A configuration that is prepared or being prepared. */
interface Pending {
  readonly question: number;
  /** The change; `undefined` if the configuration was refused. */
  readonly change: Promise<ListeningChange | undefined>;
  readonly digest: string;
}

/**
 * Changes of the configuration that the supervisor asks for. One at a time, because each begins
 * with the addresses that the previous one left open.
 */
class RequestedChanges {
  readonly #prepare: PrepareInWorker;
  #pending: Pending | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(prepare: PrepareInWorker) {
    this.#prepare = prepare;
  }

  /** Prepares a configuration, and tells the supervisor whether this worker can use it. */
  begin({ question, source, ports }: SupervisorMessage & { type: "prepare" }): void {
    const change = this.#last.then(() => this.#prepare(source, ports)).then((prepared) => {
      send({ type: "prepared", question, urls: prepared.urls });
      return prepared;
    }, (error) => {
      const why = error instanceof ConfigError ? error.message : String(error);
      send({ type: "refused", question, why });
      return undefined;
    });
    this.#pending = { question, change, digest: source.digest };
    this.#last = change;
  }

  /** Ends the change that a question has started, unless it has ended. */
  end({ type, question }: SupervisorMessage & { type: "apply" | "abandon" }): void {
    if (this.#pending?.question === question) this.#end(type);
  }

  /** Abandons the change that is not yet applied. */
  abandon(): void {
    this.#end("abandon");
  }

  #end(type: "apply" | "abandon"): void {
    if (this.#pending === undefined) return;
    const { change, digest } = this.#pending;
    this.#pending = undefined;
    this.#last = change.then((prepared) => {
      if (prepared === undefined) return;
      // Its ports are closed at once, its connections when they become idle.
      if (type === "abandon") return void prepared.abandon();
      prepared.apply();
      send({ type: "listening", urls: prepared.urls, digest });
    });
  }
}

/** Reports the state of a worker at intervals, and on request of the supervisor. */
class WorkerReports {
  readonly #readings: WorkerReadings;
  readonly #timers: readonly NodeJS.Timeout[];
  #reported = { openExchanges: 0, isReady: false };

  constructor(readings: WorkerReadings) {
    this.#readings = readings;
    this.#reportHealth();
    this.#timers = [
      setInterval(() => this.#reportHealth(), HEALTH_MS),
      setInterval(() => this.sendMetrics(0), METRICS_MS),
    ];
  }

  sendMetrics(question: number): void {
    send({ type: "metrics", question, metrics: this.#readings.metrics() });
  }

  async sendLive(message: SupervisorMessage & { type: "readLive" }): Promise<void> {
    const { question, from, to, isBrief } = message;
    send({ type: "live", question, part: await this.#readings.readLive(from, to, isBrief) });
  }

  async sendExchanges(
    { question, query }: SupervisorMessage & { type: "findExchanges" },
  ): Promise<void> {
    send({ type: "foundExchanges", question, page: await this.#readings.findExchanges(query) });
  }

  /** Stops the regular reports. */
  stop(): void {
    for (const timer of this.#timers) clearInterval(timer);
  }

  #reportHealth(): void {
    const before = this.#reported;
    const readings = this.#readings;
    const now = this.#reported = {
      openExchanges: readings.openExchanges(),
      isReady: readings.isReady(),
    };
    const isSame = now.openExchanges === before.openExchanges && now.isReady === before.isReady;
    if (!isSame) send({ type: "health", ...now });
  }
}

/** A worker's connection to its supervisor. */
export class SupervisorConnection {
  readonly limiter: LimiterClient = new LimiterClient((batch) => send({ type: "limits", batch }));
  readonly usage: UsageClient = new UsageClient((batch) => send({ type: "usage", batch }));
  readonly history: HistoryClient = new HistoryClient((rows) => send({ type: "history", rows }));
  readonly awaitedCalls: AwaitedCallsClient = new AwaitedCallsClient(send);
  /** The other workers that know keys. */
  readonly keys: KeysClient = new KeysClient(send);
  /** The first configuration. */
  readonly source: Promise<StartSource>;
  /** Resolves when the supervisor asks the worker to end, or is gone. */
  readonly endAsked: Promise<void>;
  readonly #recordings = new RecordingsClient((questions) =>
    send({ type: "recordings", questions })
  );
  readonly #runs = new RunsClient((question, message) => send({ type: "runs", question, message }));
  readonly #watch: NodeJS.Timeout;
  #setSource = (_source: StartSource): void => {};
  #askEnd = (): void => {};
  #changes: RequestedChanges | undefined;
  #reports: WorkerReports | undefined;
  #isLost = false;

  constructor() {
    this.source = new Promise((resolve) => this.#setSource = resolve);
    this.endAsked = new Promise((resolve) => this.#askEnd = resolve);
    process.on("message", (message: SupervisorMessage) => this.#handle(message));
    send({ type: "hello" });
    process.on("disconnect", () => this.#lost());
    const { ppid } = process;
    // Deno does not always report that the supervisor is gone. The parent's id changes when the
    // parent ends.
    this.#watch = setInterval(() => process.ppid !== ppid && this.#lost(), HEALTH_MS);
    if (!process.connected) this.#lost(); // the supervisor ended while this process started
  }

  get recordings(): RecordingStore {
    return this.#recordings.store;
  }

  get runs(): RunRegistry {
    return this.#runs.runs;
  }

  /** Reports its addresses and its configuration. From then on the worker counts as serving. */
  listening(urls: readonly string[], digest: string): void {
    send({ type: "listening", urls, digest });
  }

  /**
   * Sets the function that prepares another configuration.
   *
   * @returns A function that abandons the change that is not yet applied
   */
  onPrepare(prepare: PrepareInWorker): () => void {
    const changes = this.#changes = new RequestedChanges(prepare);
    return () => changes.abandon();
  }

  /**
   * Reports the number of open exchanges and its readiness at intervals, and metrics and settled
   * exchanges on request.
   *
   * @returns A function that stops the regular reports
   */
  report(readings: WorkerReadings): () => void {
    const reports = this.#reports = new WorkerReports(readings);
    return () => reports.stop();
  }

  /** Reports the final metrics before the worker ends. */
  async reportLast(metrics: readonly MetricSnapshot[]): Promise<void> {
    this.limiter.flush();
    await new Promise<void>((resolve) => {
      if (this.#isLost || !process.connected) return resolve();
      // The end of the supervisor is not always reported at once.
      systemClock.timer(LAST_WORD_MS, resolve);
      send({ type: "metrics", question: 0, metrics }, resolve);
    });
  }

  #lost(): void {
    clearInterval(this.#watch);
    this.#isLost = true;
    this.usage.supervisorIsGone();
    this.limiter.close();
    this.#recordings.close();
    this.#runs.close();
    this.#askEnd();
  }

  #handle(message: SupervisorMessage): void {
    switch (message.type) {
      case "configure":
        return this.#setSource(message);
      case "prepare":
        return this.#changes?.begin(message);
      case "apply":
      case "abandon":
        return this.#changes?.end(message);
      case "limits":
        return this.limiter.receive(message.states);
      case "recordings":
        return this.#recordings.receive(message.replies);
      case "runs":
        return this.#runs.receive(message.question, message.reply);
      case "findKeys":
      case "foundKeys":
        return this.keys.handle(message);
      case "usageReceived":
        return this.usage.received(message.batch);
      case "takenAwaited":
        return this.awaitedCalls.taken(message);
      case "readMetrics":
        return this.#reports?.sendMetrics(message.question);
      case "readLive":
        return void this.#reports?.sendLive(message);
      case "findExchanges":
        return void this.#reports?.sendExchanges(message);
      case "close":
        clearInterval(this.#watch);
        return this.#askEnd();
      default:
        return message satisfies never;
    }
  }
}

/**
 * Connects a worker with its supervisor.
 *
 * @returns The connection; `undefined` if the process is not a worker
 */
export function connectToSupervisor(): SupervisorConnection | undefined {
  if (process.send === undefined) return undefined; // first, because Deno needs no permission for it
  if (process.env[WORKER_VARIABLE] === undefined) return undefined;
  // Node's cluster would end this process with its supervisor, and all streams with it.
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
  // A terminal sends signals to all processes of a group. The supervisor decides when to leave.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
  return new SupervisorConnection();
}
