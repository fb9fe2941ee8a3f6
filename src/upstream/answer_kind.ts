/**
 * Kind of a provider's answer, decided once from its status and its content type, and the reading
 * of its tokens.
 *
 * @module
 */
import type { Dialect } from "../dialects/dialect.ts";
import { OPAQUE, PLAIN_TEXT } from "../dialects/opaque.ts";
import { readBedrockHeaders } from "../dialects/other_usage.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import type { Exchange } from "../exchange/exchange.ts";
import { isSuccess } from "../http/message.ts";
import type { RelayOptions } from "./relay.ts";
import type { UpstreamResponse } from "./transport.ts";

/** Content types of answers that state no tokens. */
const BINARY = /^(?:audio|image|video)\//;

/** Kind of an answer. */
export interface AnswerKind {
  readonly isSuccess: boolean;
  /** True for a stream of events. */
  readonly isEvents: boolean;
  /** True if the tokens that it states or contains count. */
  readonly countsTokens: boolean;
  /** Usage that its headers state. Its body has precedence. */
  readonly stated: TokenUsage | undefined;
  /** Dialect in which it is read. */
  readonly dialect: Dialect;
}

/** Decides the kind of an answer to an operation. */
export function toAnswerKind(
  { status, headers }: UpstreamResponse,
  { cost, dialect }: { readonly cost: string; readonly dialect: Dialect },
): AnswerKind {
  const type = (headers.get("content-type") ?? "").toLowerCase();
  const isEvents = type.startsWith("text/event-stream");
  const isPlainText = !isEvents && type.startsWith("text/");
  const countsTokens = (cost === "tokens" || cost === "earlier") && isSuccess(status) &&
    !BINARY.test(type);
  return {
    isSuccess: isSuccess(status),
    isEvents,
    countsTokens,
    stated: countsTokens && dialect === OPAQUE ? readBedrockHeaders(headers) : undefined,
    dialect: isPlainText ? PLAIN_TEXT : dialect, // a text can repeat the caller's words
  };
}

/** Notes the tokens of a complete answer. */
export function noteTokens(whole: Uint8Array, kind: AnswerKind, exchange: Exchange): void {
  if (!kind.countsTokens) return;
  const usage = kind.dialect.readUsage(whole) ?? kind.stated;
  if (usage !== undefined) exchange.facts.usage = usage;
  else {
    exchange.outputTokens = kind.dialect.countOutput(whole);
    exchange.answerId = kind.dialect.readLaterId?.(whole);
  }
}

/**
 * Creates the scanner or meter that watches a relayed answer. @param choices The number of answers
 * that were requested
 */
export function createScannerOrMeter(
  kind: AnswerKind,
  choices: number,
): Pick<RelayOptions, "scanner" | "meter" | "countsTokens"> {
  const { isSuccess, isEvents, countsTokens, dialect } = kind;
  return {
    scanner: isEvents && isSuccess ? dialect.createScanner(choices) : undefined,
    meter: countsTokens && !isEvents ? dialect.createMeter() : undefined,
    countsTokens,
  };
}
