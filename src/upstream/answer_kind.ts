/**
 * Kind of a provider's answer, decided once from its status and its content type, and the reading
 * of its tokens.
 *
 * @module
 */
import type { ContextEnds, Dialect } from "../dialects/dialect.ts";
import { refusalsOf } from "../dialects/billed_refusal.ts";
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
  /** Tier that its headers state. The tier in its body has precedence. */
  readonly headerTier: string | undefined;
  /** Dialect in which it is read. */
  readonly dialect: Dialect;
  /** Where prices of its provider can change. */
  readonly contextEnds: ContextEnds;
}

/** Parts of an operation that decide the kind of its answers. */
interface Answered {
  readonly cost: string;
  readonly stream?: string;
  readonly dialect: Dialect;
}

/** Returns the dialect of an answer. An error of an operation that streams is no list. */
function dialectOf(type: string, status: number, { stream, dialect }: Answered): Dialect {
  const { list } = dialect;
  if (list?.streamType === undefined || stream !== "always" || !isSuccess(status)) return dialect;
  return type.startsWith(list.streamType) ? list : dialect;
}

/** Decides the kind of an answer to an operation. */
export function toAnswerKind(
  { status, headers }: UpstreamResponse,
  operation: Answered,
  { contextEnds, isAzure }: Pick<AnswerKind, "contextEnds"> & { readonly isAzure: boolean },
): AnswerKind {
  const { cost } = operation;
  const refusals = cost === "earlier" ? undefined : refusalsOf(status, isAzure);
  const type = (headers.get("content-type") ?? "").toLowerCase();
  const dialect = dialectOf(type, status, operation);
  const { streamType = "text/event-stream", keepAlive = COMMENT } = dialect;
  const isEvents = type.startsWith(streamType);
  // A text can repeat the caller's words. The results of an earlier call are found by their id.
  const isPlainText = !isEvents && type.startsWith("text/") && cost !== "earlier";
  const canCost = isSuccess(status) || refusals !== undefined;
  const countsTokens = canCost && STATED_COSTS.has(cost) && !BINARY.test(type);
  return {
    isSuccess: isSuccess(status),
    isEvents,
    keepAlive: isEvents ? keepAlive : "",
    countsTokens,
    headerUsage: countsTokens && isSuccess(status) ? dialect.readHeaderUsage?.(headers) : undefined,
    headerTier: dialect.readHeaderTier?.(headers),
    dialect: refusals ?? (isPlainText ? PLAIN_TEXT : dialect),
    contextEnds,
  };
}

/** Notes the tokens of a complete answer. */
export function noteTokens(whole: Uint8Array, kind: AnswerKind, exchange: Exchange): void {
  if (!kind.countsTokens) return;
  const { dialect, headerUsage, contextEnds } = kind;
  const usage = dialect.readUsage(whole, exchange.facts.model, contextEnds) ?? headerUsage;
  if (usage !== undefined) exchange.facts.usage = usage;
  else exchange.laterId = dialect.readLaterId?.(whole);
  if (usage === undefined || usage.output === 0) {
    exchange.outputTokens = dialect.countOutput(whole);
  }
}

/** Facts of a request that its answers can leave out. */
interface Requested {
  /** The number of answers that were requested. */
  readonly answers: number;
  readonly model: string | undefined;
}

/** Creates the scanner or meter that watches a relayed answer. */
export function createScannerOrMeter(
  { isSuccess, isEvents, countsTokens, dialect, contextEnds }: AnswerKind,
  { answers, model }: Requested,
): Pick<RelayOptions, "scanner" | "meter"> {
  return {
    scanner: isEvents && isSuccess ? dialect.createScanner(answers, model) : undefined,
    meter: countsTokens && !isEvents ? dialect.createMeter(model, contextEnds) : undefined,
  };
}
