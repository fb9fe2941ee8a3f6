/**
 * The usage of a call at its end: stated by the provider, or estimated. It is completed once, just
 * before the record of the exchange is made.
 *
 * @module
 */
import type { TimeoutCharge } from "../config/provider_charges.ts";
import { MAX_KEPT_BYTES } from "../dialects/dialect.ts";
import { isPlausible, type TokenUsage } from "../exchange/billing.ts";
import type { Exchange, ExchangeEnd } from "../exchange/exchange.ts";
import { isSuccess } from "../http/message.ts";
import type { Accounting } from "./accounting.ts";
import { decideCharge } from "./charge.ts";
import type { CountedCall } from "./counted_call.ts";
import { addRequestFacts } from "./request_usage.ts";

/** Tolerance for a timer that runs early by the clock. Milliseconds. */
const CLOCK_STEP_MS = 2;

/** Completes the usage of a call when its exchange ends, and learns from it. */
export function completeUsageAtEnd(
  counted: CountedCall,
  exchange: Exchange,
  accounting: Accounting,
): void {
  exchange.beforeSettled = createCompletion(counted, exchange, accounting);
}

/**
 * Creates the function that completes the usage. It is separate for speed: if a function expression
 * is assigned to a property directly, V8 allocates it in the old generation, and its whole exchange
 * then survives the collections of the young generation. A collection took 8 ms instead of 1 ms,
 * which cost a tenth of a plain call on Deno and a twentieth on Node (2026-11-23, `--trace-gc`, 3 starts by CPU).
 */
function createCompletion(
  counted: CountedCall,
  exchange: Exchange,
  accounting: Accounting,
): (end: ExchangeEnd) => void {
  return (end) => completeUsage(counted, exchange, end, accounting);
}

/**
 * Completes the facts with the charge of a call. If the answer is complete and its tokens were
 * stated, it improves later estimates.
 */
function completeUsage(
  counted: CountedCall,
  exchange: Exchange,
  { outcome, code }: ExchangeEnd,
  accounting: Accounting,
): void {
  const { facts, outputTokens, answeredStatus, answeringModel, servedTier } = exchange;
  const { estimator } = accounting;
  const isWhole = exchange.isAnswerComplete(outcome);
  const isRefused = answeredStatus !== undefined && !isSuccess(answeredStatus);
  const hasText = hasCountedText(exchange);
  const stated = facts.usage && isCredible(facts.usage, hasText) ? facts.usage : undefined;
  const { usage, isEstimated } = decideCharge({
    isCalled: facts.calledMs !== undefined,
    status: answeredStatus,
    isWhole,
    code,
    isLive: facts.stream === true && !counted.isBackground,
    stated,
    countedOutput: outputTokens,
    hasText,
  }, {
    timeouts: () => timeoutChargeOf(counted, exchange, accounting),
    reserved: () => counted.account?.reservedTokens ?? estimator.estimateExpected(counted),
    // Output that is never relayed, such as reasoning, must not exceed a strict limit.
    used(output) {
      if (counted.account?.isStrict !== true) return estimator.estimateUsed(counted, output);
      const most = counted.account.reservedTokens;
      return isRefused ? { ...most, output: 0 } : most;
    },
  });
  const isUnstated = isEstimated && stated?.input === undefined;
  const at = exchange.startedAt;
  const known = { isEstimated, isUnstated, isRefused, answeringModel, servedTier, at };
  facts.usage = usage && addRequestFacts(usage, counted, known, accounting);
  if (isEstimated) facts.isEstimated = true;
  else if (usage !== undefined && isWhole) estimator.learn(counted, usage, outputTokens);
}

/**
 * Returns whether an answer has text. Of a longer plain answer only the length is known. A provider
 * that states a cost can leave out the tokens.
 */
function hasCountedText({ facts, outputTokens = 0, bytesOut }: Exchange): boolean {
  const isOfText = facts.genAi === "chat" || facts.genAi === "text_completion";
  const isRead = facts.stream === true || bytesOut <= MAX_KEPT_BYTES;
  return isOfText && isRead && outputTokens > 0 && !Number(facts.usage?.statedCost ?? 0);
}

/**
 * Returns whether usage can be right. An absurd statement must not use up a limit that others share,
 * and a call with text is not free of tokens.
 */
const isCredible = (usage: TokenUsage, hasText: boolean): boolean =>
  isPlausible(usage) && (usage.total > 0 || !hasText);

/**
 * Returns the charge for a call whose answer did not begin in time. A caller that sets a shorter
 * deadline than the operator is charged the reservation, since the provider can finish its call.
 */
function timeoutChargeOf(
  counted: CountedCall,
  exchange: Exchange,
  { config }: Accounting,
): TimeoutCharge {
  const settings = config.providers[counted.provider];
  const { calledMs = 0 } = exchange.facts;
  const isOwnDeadline = settings !== undefined &&
    exchange.elapsed() - calledMs >= settings.deadlines.firstByteMs - CLOCK_STEP_MS;
  if (!isOwnDeadline || counted.account?.isStrict === true || counted.isBackground) {
    return "reservation";
  }
  return settings.chargeTimeouts ?? "input";
}
