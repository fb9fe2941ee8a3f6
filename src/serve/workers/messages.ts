/**
 * Messages between a supervisor and its workers. Each end handles all of them in one `switch`: a
 * missing case is a compile error. Limits, runs, recordings and keys have kinds of messages of their
 * own.
 *
 * @module
 */
import type { ExchangePage, ExchangeQuery } from "../../observe/live/exchange_page.ts";
import type { LivePart } from "../../observe/live/live_report.ts";
import type { MetricSnapshot } from "../../observe/metrics/metric_registry.ts";
import type { RunMessage, RunReply } from "../../runs/run_server.ts";
import type { AwaitedCall } from "../../steps/awaited_call.ts";
import type { AwaitedName } from "../../usage/awaited_calls.ts";
import type { UsageBatch } from "../../usage/counts.ts";
import type { HistoryRow } from "../../usage/history/rows.ts";
import type { Source } from "../prepare.ts";
import type { RecordingQuestions, RecordingReplies } from "./recording_messages.ts";
import type { KeyMessage } from "./key_messages.ts";
import type { LimitBatch, LimitReplies } from "./limit_messages.ts";

/**
 * A message of a worker about awaited calls. `question`, here and in other messages, is the number
 * that the reply repeats.
 */
export type AwaitedMessage =
  | { readonly type: "putAwaited"; readonly name: AwaitedName; readonly awaited: AwaitedCall }
  | { readonly type: "takeAwaited"; readonly name: AwaitedName; readonly question: number };

/** The reply to `takeAwaited`. */
export interface TakenMessage {
  readonly type: "takenAwaited";
  readonly question: number;
  /** `null` for an unknown call. */
  readonly awaited: AwaitedCall | null;
}

/** A message from a worker to its supervisor. */
export type WorkerMessage =
  /** The worker has started and needs a configuration. */
  | { readonly type: "hello" }
  /** The worker serves with a configuration: the first one, or a newly applied one. */
  | { readonly type: "listening"; readonly urls: readonly string[]; readonly digest: string }
  /**
   * The worker has prepared a configuration and could listen on these addresses; or `refused`: it
   * can't use it.
   */
  | { readonly type: "prepared"; readonly question: number; readonly urls: readonly string[] }
  | { readonly type: "refused"; readonly question: number; readonly why: string }
  /** The number of open exchanges, and whether keys can be looked up. */
  | { readonly type: "health"; readonly openExchanges: number; readonly isReady: boolean }
  | {
    readonly type: "metrics";
    readonly question: number;
    readonly metrics: readonly MetricSnapshot[];
  }
  | { readonly type: "live"; readonly question: number; readonly part: LivePart }
  | { readonly type: "foundExchanges"; readonly question: number; readonly page: ExchangePage }
  | { readonly type: "limits"; readonly batch: LimitBatch }
  | { readonly type: "recordings"; readonly questions: RecordingQuestions }
  | { readonly type: "runs"; readonly question: number; readonly message: RunMessage }
  | { readonly type: "usage"; readonly batch: UsageBatch }
  | { readonly type: "history"; readonly rows: readonly HistoryRow[] }
  | AwaitedMessage
  | KeyMessage;

/** A configuration that several workers serve. */
export interface SharedSource {
  readonly source: Source;
  /**
   * The ports of the first worker, in the order of the addresses. Empty for the first worker, and
   * on Node.
   */
  readonly ports: readonly number[];
}

/** The configuration that a worker starts with. */
export interface StartSource extends SharedSource {
  /** True for the first worker. If it can't start, its supervisor ends too. */
  readonly isFirst: boolean;
}

/** The health of a worker. */
export interface WorkerHealth {
  readonly pid: number | undefined;
  readonly openExchanges: number;
  /** True if it can look keys up. */
  readonly isReady: boolean;
  /** Digest of its configuration. */
  readonly digest: string;
}

/** A message from the supervisor to a worker. */
export type SupervisorMessage =
  /** Replies to a batch that has questions. Batches are answered in order. */
  | { readonly type: "limits"; readonly states: LimitReplies }
  | { readonly type: "recordings"; readonly replies: RecordingReplies }
  | { readonly type: "runs"; readonly question: number; readonly reply: RunReply }
  | ({ readonly type: "configure" } & StartSource)
  /**
   * Another configuration to prepare. It is applied or abandoned after all workers have answered.
   */
  | ({ readonly type: "prepare"; readonly question: number } & SharedSource)
  | { readonly type: "apply"; readonly question: number }
  | { readonly type: "abandon"; readonly question: number }
  | { readonly type: "readMetrics"; readonly question: number }
  /** The supervisor has received the batch of usage with this number. */
  | { readonly type: "usageReceived"; readonly batch: number }
  | TakenMessage
  | {
    readonly type: "readLive";
    readonly question: number;
    readonly from: number;
    readonly to: number;
    readonly isBrief: boolean;
  }
  | { readonly type: "findExchanges"; readonly question: number; readonly query: ExchangeQuery }
  | KeyMessage
  | { readonly type: "close" };
