/**
 * The worker's half of `serve --workers`: its messages to the supervisor, and limits that are
 * counted there.
 *
 * @module
 */
import cluster from "node:cluster";
import process from "node:process";
import type { RecordingStore } from "../../durable/recording_store.ts";
import type { KeySiblings } from "../../keys/key_siblings.ts";
import type { Limiter } from "../../limits/limiter.ts";
import type { ExchangePage, ExchangeQuery } from "../../observe/live/exchange_page.ts";
import type { LivePart } from "../../observe/live/live_report.ts";
import { systemClock } from "../../exchange/clock.ts";
import type { UsageBatch, UsageStore } from "../../usage/counts.ts";
import type { MetricSnapshot } from "../../observe/metrics/metric_registry.ts";
import { ConfigError } from "../../config/config.ts";
import type { ListeningChange } from "../listener_set.ts";
import type { Source } from "../prepare.ts";
import type { RecordingAnswers, RecordingCalls } from "./recording_messages.ts";
import { type KeyMessage, SupervisedKeys } from "./supervised_keys.ts";
import { SupervisedLimiter } from "./supervised_limiter.ts";
import { SupervisedRecordings } from "./supervised_recordings.ts";
import { SupervisedUsage } from "./supervised_usage.ts";
import type { LimitBatch, LimitStates } from "./worker_leases.ts";

/** Variable that marks a process as a worker. */
export const WORKER_VARIABLE = "_SALLYPORT_WORKER";

/** A message from a worker to its supervisor. */
export type WorkerMessage =
  /** The worker has started and needs a configuration. */
  | { readonly type: "hello" }
  /** The worker serves with a configuration: the first one, or one that it was told to apply. */
  | { readonly type: "listening"; readonly urls: readonly string[]; readonly digest: string }
  /**
   * The worker has prepared a configuration and could listen on these addresses; or `refused`: it
   * can't use it.
   */
  | { readonly type: "prepared"; readonly call: number; readonly urls: readonly string[] }
  | { readonly type: "refused"; readonly call: number; readonly why: string }
  /** The number of open exchanges, and whether keys can be looked up. */
  | { readonly type: "open"; readonly open: number; readonly isReady: boolean }
  | { readonly type: "counts"; readonly call: number; readonly counts: readonly MetricSnapshot[] }
  | { readonly type: "live"; readonly call: number; readonly part: LivePart }
  | { readonly type: "found"; readonly call: number; readonly page: ExchangePage }
  | { readonly type: "limits"; readonly batch: LimitBatch }
  | { readonly type: "recordings"; readonly calls: RecordingCalls }
  | { readonly type: "usage"; readonly batch: UsageBatch }
  | KeyMessage;

/** A configuration that several workers serve. */
export interface SharedSource {
  readonly source: Source;
  /**
   * The ports that the first worker got, in the order of the addresses; empty for that one, and on
   * Node.
   */
  readonly ports: readonly number[];
}

/** The health of a worker. */
export interface WorkerHealth {
  readonly pid: number | undefined;
  readonly openExchanges: number;
  /** True when it can look keys up. */
  readonly isReady: boolean;
  /** Digest of its configuration. */
  readonly digest: string;
}

/** A message from the supervisor to a worker. */
export type SupervisorMessage =
  /** Answers to a batch that asks something. Batches are answered in their order. */
  | { readonly type: "limits"; readonly states: LimitStates }
  | { readonly type: "recordings"; readonly answers: RecordingAnswers }
  | ({ readonly type: "configure" } & SharedSource)
  /**
   * Another configuration to prepare, which is applied or abandoned when all workers have answered.
   */
  | ({ readonly type: "prepare"; readonly call: number } & SharedSource)
  | { readonly type: "apply"; readonly call: number }
  | { readonly type: "abandon"; readonly call: number }
  | { readonly type: "count"; readonly call: number }
  /** The supervisor has received the batch of usage with this number. */
  | { readonly type: "counted"; readonly batch: number }
  | {
    readonly type: "watch";
    readonly call: number;
    readonly from: number;
    readonly to: number;
    readonly isBrief: boolean;
  }
  | { readonly type: "find"; readonly call: number; readonly query: ExchangeQuery }
  | KeyMessage
  | { readonly type: "close" };

/** Interval at which a worker reports its number of open exchanges. Milliseconds. */
const REPORT_MS = 500;

/**
 * Interval at which a worker reports its metrics: one that is killed loses no more. Milliseconds.
 */
const COUNTS_MS = 1000;

/**
 * The longest time for which a worker that ends waits until its last metrics are sent.
 * Milliseconds.
 */
const LAST_WORD_MS = 500;

function say(message: WorkerMessage): void {
  // The supervisor may be gone: then the worker is about to end too.
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
}

/** Functions that read the state of a worker, for its reports. */
export interface WorkerState {
  open(): number;
  /** Tells whether keys can be looked up. */
  isReady(): boolean;
  counts(): readonly MetricSnapshot[];
  /**
   * Reports the exchanges that settled from the second `from` up to, but not including, `to`.
   * Seconds since 1970.
   */
  look(from: number, to: number, isBrief: boolean): Promise<LivePart>;
  /** Finds exchanges that are kept. */
  find(query: ExchangeQuery): Promise<ExchangePage>;
}

/** Prepares a configuration, with the ports that the first worker got. */
export type PrepareInWorker = (
  source: Source,
  ports: readonly number[],
) => Promise<ListeningChange>;

/** A configuration that is prepared or being prepared. */
interface Pending {
  readonly call: number;
  /** The change; `undefined` where the configuration was refused. */
  readonly change: Promise<ListeningChange | undefined>;
  readonly digest: string;
}

const listening = (urls: readonly string[], digest: string): void =>
  say({ type: "listening", urls, digest });

/** Asks the supervisor for the first configuration. */
function askForSource(): Promise<SharedSource> {
  return new Promise((resolve) => {
    process.on("message", (message: SupervisorMessage) => {
      if (message.type === "configure") resolve(message);
    });
    say({ type: "hello" });
  });
}

/**
 * Follows changes of the configuration that the supervisor asks for: one at a time, since each
 * begins with the addresses that the one before has left open.
 *
 * @param prepare Prepares a configuration
 * @returns A function that abandons the change that is not applied yet
 */
function followReloads(prepare: PrepareInWorker): () => void {
  let pending: Pending | undefined;
  let last: Promise<unknown> = Promise.resolve();
  const begin = ({ call, source, ports }: SupervisorMessage & { type: "prepare" }) => {
    const change = last.then(() => prepare(source, ports)).then((prepared) => {
      say({ type: "prepared", call, urls: prepared.urls });
      return prepared;
    }, (error) => {
      say({
        type: "refused",
        call,
        why: error instanceof ConfigError ? error.message : String(error),
      });
      return undefined;
    });
    pending = { call, change, digest: source.digest };
    last = change;
  };
  const end = (type: "apply" | "abandon") => {
    if (pending === undefined) return;
    const { change, digest } = pending;
    pending = undefined;
    last = change.then((prepared) => {
      if (prepared === undefined) return;
      if (type === "abandon") return void prepared.abandon(); // its ports are closed at once, its connections when idle
      prepared.apply();
      listening(prepared.urls, digest);
    });
  };
  process.on("message", (message: SupervisorMessage) => {
    if (message.type === "prepare") begin(message);
    if (message.type !== "apply" && message.type !== "abandon") return;
    if (pending?.call === message.call) end(message.type);
  });
  return () => end("abandon");
}

/** Reports the state of a worker, see {@link Supervised}. */
function report({ open: countOpen, isReady, counts, look, find }: WorkerState): () => void {
  let reported = { open: 0, isReady: false };
  const reportOpen = () => {
    const now = { open: countOpen(), isReady: isReady() };
    if (now.open !== reported.open || now.isReady !== reported.isReady) {
      say({ type: "open", ...now });
    }
    reported = now;
  };
  reportOpen();
  const timer = setInterval(reportOpen, REPORT_MS);
  const pushing = setInterval(() => say({ type: "counts", call: 0, counts: counts() }), COUNTS_MS);
  process.on("message", (message: SupervisorMessage) => {
    if (message.type === "count") say({ type: "counts", call: message.call, counts: counts() });
    if (message.type === "find") {
      void find(message.query).then((page) => say({ type: "found", call: message.call, page }));
    }
    if (message.type !== "watch") return;
    const { call, from, to, isBrief } = message;
    void look(from, to, isBrief).then((part) => say({ type: "live", call, part }));
  });
  return () => {
    clearInterval(timer);
    clearInterval(pushing);
  };
}

/** A worker's connection to its supervisor. */
export interface Supervised {
  readonly limiter: Limiter;
  readonly usage: UsageStore;
  readonly recordings: RecordingStore;
  /** The other workers, which know keys. */
  readonly keys: KeySiblings;
  /** The first configuration. */
  readonly source: Promise<SharedSource>;
  /**
   * Reports the addresses that it listens on and its configuration. From then on it counts as
   * serving.
   */
  listening(urls: readonly string[], digest: string): void;
  /**
   * Sets the function that prepares another configuration.
   *
   * @returns A function that abandons the change that is not applied yet
   */
  onPrepare(prepare: PrepareInWorker): () => void;
  /**
   * Reports the number of open exchanges and its readiness regularly, and metrics and settled
   * exchanges on request.
   *
   * @returns A function that stops the regular reports
   */
  report(state: WorkerState): () => void;
  /** Reports the final metrics before the worker ends. */
  reportLast(counts: readonly MetricSnapshot[]): Promise<void>;
  /** Resolves when the supervisor tells it to end, or is gone. */
  readonly leave: Promise<void>;
}

/**
 * Connects a worker with its supervisor.
 *
 * @returns The connection; `undefined` for a process that is no worker
 */
export function connectToSupervisor(): Supervised | undefined {
  if (process.send === undefined) return undefined; // the question that needs no permission of Deno's comes first
  if (process.env[WORKER_VARIABLE] === undefined) return undefined;
  // Node's cluster would end this process with its supervisor, and all streams with it.
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
  const limits = new SupervisedLimiter((batch) => say({ type: "limits", batch }));
  const usage = new SupervisedUsage((batch) => say({ type: "usage", batch }));
  const recordings = new SupervisedRecordings((calls) => say({ type: "recordings", calls }));
  const keys = new SupervisedKeys(say);
  // The terminal signals all processes of a group; when to leave is the supervisor's to say.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
  const source = askForSource();
  const { ppid } = process;
  const leave = new Promise<void>((resolve) => {
    const lost = () => {
      limits.close();
      recordings.close();
      resolve();
    };
    process.on("disconnect", lost);
    // Deno does not always tell that the other end is gone; a process without its parent is given
    // another one.
    const watch = setInterval(() => process.ppid !== ppid && lost(), REPORT_MS);
    if (!process.connected) lost(); // it has gone while this process was starting
    process.on("message", (message: SupervisorMessage) => {
      if (message.type === "limits") return limits.answered(message.states);
      if (message.type === "recordings") return recordings.answered(message.answers);
      if (message.type === "findKeys" || message.type === "foundKeys") return keys.heard(message);
      if (message.type === "counted") return usage.received(message.batch);
      if (message.type !== "close") return;
      clearInterval(watch);
      resolve();
    });
  });
  return {
    limiter: limits,
    usage,
    recordings: recordings.store,
    keys,
    source,
    listening,
    onPrepare: followReloads,
    report,
    async reportLast(counts) {
      limits.flush();
      await new Promise<void>((resolve) => {
        if (!process.connected) return resolve();
        systemClock.timer(LAST_WORD_MS, resolve); // a supervisor that has just gone does not always say so
        process.send?.({ type: "counts", call: 0, counts }, undefined, undefined, () => resolve());
      });
    },
    leave,
  };
}
