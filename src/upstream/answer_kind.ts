/**
 * Kind of a provider's answer, decided once from its status and its content type, and the reading
 * of its tokens.
 *
 * @module
 */
import type { Dialect } from "../dialects/dialect.ts";
import { PLAIN_TEXT } from "../dialects/opaque.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import type { Exchange } from "../exchange/exchange.ts";
import { isSuccess } from "../http/message.ts";
import type { RelayOptions } from "./relay.ts";
import type { UpstreamResponse } from "./transport.ts";

/** Costs that answers state: their own, or that of an earlier call. Or they state an id for later. */
const STATED_COSTS: ReadonlySet<string> = new Set(["tokens", "earlier", "later"]);
/** A line that starts with a colon is a comment (WHATWG HTML §9.2.6 suggests this use). */
const COMMENT = ": keep-alive\n\n";
/** Content types of answers that state no tokens. */
const BINARY = /^(?:audio|image|video)\//;

/** Kind of an answer. */
export interface AnswerKind {
  readonly isSuccess: boolean;
  /** True for a stream in the form of its interface, such as a stream of events. */
  readonly isEvents: boolean;
  /** Text that keeps it open while it is silent; empty for none. */
  readonly keepAlive: string;
  /** True if the tokens that it states or contains count. */
  readonly countsTokens: boolean;
  /** Usage that its headers state. Its body has precedence. */
  readonly headerUsage: TokenUsage | undefined;
  /** Dialect in which it is read. */
  readonly dialect: Dialect;
}

/** Decides the kind of an answer to an operation. */
export function toAnswerKind(
  { status, headers }: UpstreamResponse,
  { cost, dialect }: { readonly cost: string; readonly dialect: Dialect },
): AnswerKind {
  const type = (headers.get("content-type") ?? "").toLowerCase();
  const { streamType = "text/event-stream", keepAlive = COMMENT } = dialect;
  const isEvents = type.startsWith(streamType);
  // A text can repeat the caller's words. The results of an earlier call are found by their id.
  const isPlainText = !isEvents && type.startsWith("text/") && cost !== "earlier";
  const countsTokens = STATED_COSTS.has(cost) && isSuccess(status) && !BINARY.test(type);
  return {
    isSuccess: isSuccess(status),
    isEvents,
    keepAlive: isEvents ? keepAlive : "",
    countsTokens,
    headerUsage: countsTokens ? dialect.readHeaderUsage?.(headers) : undefined,
    dialect: isPlainText ? PLAIN_TEXT : dialect,
  };
}

/** Notes the tokens of a complete answer. */
export function noteTokens(whole: Uint8Array, kind: AnswerKind, exchange: Exchange): void {
  if (!kind.countsTokens) return;
  const usage = kind.dialect.readUsage(whole) ?? kind.headerUsage;
  if (usage !== undefined) exchange.facts.usage = usage;
  else {
    exchange.outputTokens = kind.dialect.countOutput(whole);
    exchange.laterId = kind.dialect.readLaterId?.(whole);
  }
}

/**
 * Creates the scanner or meter that watches a relayed answer. @param answers The number of answers
 * that were requested
 */
export function createScannerOrMeter(
  { isSuccess, isEvents, countsTokens, dialect }: AnswerKind,
  answers: number,
): Pick<RelayOptions, "scanner" | "meter"> {
  return {
    scanner: isEvents && isSuccess ? dialect.createScanner(answers) : undefined,
    meter: countsTokens && !isEvents ? dialect.createMeter() : undefined,
  };
}
