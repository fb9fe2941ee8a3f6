/**
 * The charge of a call at its end. Nothing else decides it: other steps only note facts.
 *
 * @module
 */
import type { ErrorCode } from "../errors/gateway_error.ts";
import { UNANSWERED } from "../errors/upstream_errors.ts";
import type { TokenUsage } from "../exchange/record.ts";
import { isSuccess } from "../http/message.ts";
import type { EstimatedTokens } from "../limits/estimate.ts";

/**
 * Share of what was relayed that a stream must have stated before it broke off, to be taken at its
 * word. Some state their output with each event; others begin with a token, and state the rest at
 * the end.
 */
const MIN_STATED = 0.5;

/** Facts of a call at its end. */
export interface CallEnd {
  /** True once the gateway began to call the provider. */
  readonly isCalled: boolean;
  /** Status of the provider's answer; `undefined` if none began. */
  readonly status: number | undefined;
  /** True if the answer came to its end. */
  readonly isWhole: boolean;
  /** The gateway's error, if one ended the call. */
  readonly code: ErrorCode | undefined;
  /** True for a stream that the provider makes only while somebody reads it. */
  readonly isLive: boolean;
  /** Tokens that the provider stated so far. */
  readonly stated: TokenUsage | undefined;
  /**
   * Tokens of output that were counted in the answer; `undefined` while its output is still to
   * come.
   */
  readonly counted: number | undefined;
}

/** Estimates of a call, each made only where it is needed. */
export interface CallEstimates {
  /** Tokens that were reserved for the call: the most that its end without a statement costs. */
  reserved(): EstimatedTokens;
  /** Tokens that the call has used, by the output that was counted. */
  used(counted: number): EstimatedTokens;
}

/** The charge of a call. */
export interface Charge {
  /** Tokens; `undefined` if the call costs nothing. */
  readonly usage: TokenUsage | undefined;
  /** True if the tokens, or some of them, are an estimate. */
  readonly isEstimated: boolean;
}

/** Status of an answer whose work the provider does later (RFC 9110 §15.3.3). */
const ACCEPTED = 202;

const FREE: Charge = { usage: undefined, isEstimated: false };

/**
 * Decides what a call is charged. The first row that fits decides:
 *
 * | the call                                                  | is charged                       |
 * | --------------------------------------------------------- | -------------------------------- |
 * | was never sent                                            | nothing                          |
 * | got another status than 2xx, however that answer ended    | nothing                          |
 * | got no answer: the connection to the provider broke       | nothing                          |
 * | was answered whole, and its tokens were stated            | the tokens that were stated      |
 * | broke off or was left early, after its tokens were stated | the tokens that were stated      |
 * | was answered whole, and no tokens were stated             | the input, and the output so far |
 * | is a stream that broke off or was left early              | the input, and the output so far |
 * | was left before an answer, or during a plain one          | the tokens that were reserved    |
 * | is finished later, in the background or after a 202       | the tokens that were reserved    |
 *
 * In the last two rows the provider may go on with the call, and bill it. A statement counts for a
 * call that did not end whole only if it covers at least half of the output that was relayed. Input
 * that was stated is charged as stated in every row. Input and output that were not stated are
 * estimates, see {@link CallEstimates}.
 */
export function charge(end: CallEnd, estimates: CallEstimates): Charge {
  const { status, stated, counted, isWhole } = end;
  const isRefused = status !== undefined && !isSuccess(status);
  const isUnanswered = counted === undefined && stated === undefined && UNANSWERED.has(end.code);
  const isFree = !end.isCalled || isRefused || isUnanswered;
  if (isFree) return FREE;
  const isStated = stated !== undefined && (isWhole || coversRelayed(stated, counted));
  if (isStated) return { usage: stated, isEstimated: false };
  const isRelayed = counted !== undefined && status !== ACCEPTED && (isWhole || end.isLive);
  const estimate = isRelayed ? estimates.used(counted) : estimates.reserved();
  const { input = estimate.input } = stated ?? {};
  const usage = { ...stated, input, output: estimate.output, total: input + estimate.output };
  return { usage, isEstimated: true };
}

/** Returns whether a stream stated its output up to about where it broke off. */
function coversRelayed({ output = 0 }: TokenUsage, counted = 0): boolean {
  return output >= counted * MIN_STATED;
}
