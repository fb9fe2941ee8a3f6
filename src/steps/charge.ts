/**
 * The charge of a call at its end. Only this module decides it. Other steps only note facts.
 *
 * @module
 */
import type { TimeoutCharge } from "../config/provider_charges.ts";
import type { ErrorCode } from "../errors/codes.ts";
import { UNANSWERED } from "../errors/upstream_errors.ts";
import {
  OUTPUT_CLASSES,
  partsOf,
  sumOf,
  type TokenUsage,
  type UsagePart,
} from "../exchange/billing.ts";
import { isSuccess } from "../http/message.ts";
import type { EstimatedTokens } from "../limits/estimate.ts";

/**
 * Share of the relayed output that a broken stream must have stated for its statement to count.
 * Some streams state their output with each event. Others begin with one token, and state the rest
 * at the end.
 */
const MIN_STATED = 0.5;

/** Facts of a call at its end. */
export interface CallEnd {
  /** True once the gateway has begun to call the provider. */
  readonly isCalled: boolean;
  /** Status of the provider's answer; `undefined` if none began. */
  readonly status: number | undefined;
  /** True if the answer reached its end. */
  readonly isWhole: boolean;
  /** The gateway's error, if one ended the call. */
  readonly code: ErrorCode | undefined;
  /** True for a stream that the provider generates only while it is read. */
  readonly isLive: boolean;
  /** Tokens that the provider has stated so far. */
  readonly stated: TokenUsage | undefined;
  /**
   * Tokens of output that were counted in the answer; `undefined` if no answer began, if the
   * provider makes the output later, or for a refusal without a cost.
   */
  readonly countedOutput: number | undefined;
  /** True if text was relayed, so that a statement of no output is wrong. */
  readonly hasText: boolean;
}

/** Estimates of a call, and the setting for timeouts. Each is made only if it is needed. */
export interface CallEstimates {
  /** Charge for a call whose answer did not begin before the operator's deadline. */
  timeouts(): TimeoutCharge;
  /** Tokens that were reserved for the call: the highest charge for a call without a statement. */
  reserved(): EstimatedTokens;
  /** Tokens that the call has used, estimated from the counted output. */
  used(counted: number): EstimatedTokens;
}

/** The charge of a call. */
export interface Charge {
  /** Tokens; `undefined` if the call costs nothing. */
  readonly usage: TokenUsage | undefined;
  /** True if the tokens, or some of them, are an estimate. */
  readonly isEstimated: boolean;
}

/** Errors of a provider that does not answer in time. */
const LATE: ReadonlySet<ErrorCode | undefined> = new Set<ErrorCode | undefined>([
  "upstream_first_byte_timeout",
  "upstream_timeout",
]);
/** Status of an answer for work that the provider does later (RFC 9110 §15.3.3). */
const ACCEPTED = 202;

const OUTPUTS: ReadonlySet<string> = new Set(OUTPUT_CLASSES);
const FREE: Charge = { usage: undefined, isEstimated: false };

/**
 * Decides the charge of a call. The first row that fits applies. The rows are those of "Charge" in
 * `docs/keys-and-limits.md`.
 *
 * |   | the call                                                     | is charged                 |
 * | - | ------------------------------------------------------------ | -------------------------- |
 * | 1 | was never sent, or its connection broke before an answer     | nothing                    |
 * | 2 | got another status than 2xx, however that answer ended (*)   | nothing                    |
 * | 3 | got a 2xx, and its tokens were stated                        | the stated tokens          |
 * | 4 | is finished later: in the background, or after a 202         | the reserved tokens        |
 * | 5 | was answered whole                                           | input and output so far    |
 * | 6 | is a stream that broke off or was left                       | input and output so far    |
 * | 7 | ran into its provider's deadline before an answer            | by `chargeTimeouts`        |
 * | 8 | was left, or ended early, before an answer or in a plain one | the reserved tokens        |
 *
 * (*) A refusal whose input Azure bills counts as answered (row 5), see `billed_refusal.ts`.
 *
 * In rows 4, 7 and 8 the provider can continue the call, and bill it. For an incomplete answer, a
 * statement counts only if it covers at least half of the relayed output. A statement of no output
 * next to text does not count. Stated input is charged as stated in every row. Input and output that
 * were not stated are estimated, see {@link CallEstimates}.
 */
export function decideCharge(end: CallEnd, estimates: CallEstimates): Charge {
  const { status, stated, countedOutput, isWhole } = end;
  const isRefused = status !== undefined && !isSuccess(status) && countedOutput === undefined;
  const isUnanswered = status === undefined && UNANSWERED.has(end.code);
  const isLate = status === undefined && LATE.has(end.code);
  const isFreeTimeout = isLate && estimates.timeouts() === "nothing";
  const isFree = !end.isCalled || isRefused || isUnanswered || isFreeTimeout; // rows 1, 2, 7
  if (isFree) return FREE;
  const isTrusted = isWhole && (stated?.output !== 0 || !end.hasText);
  const isStated = stated !== undefined && (isTrusted || coversRelayed(stated, countedOutput));
  if (isStated) return { usage: stated, isEstimated: false }; // row 3
  const isOutputUnknown = countedOutput === undefined || status === ACCEPTED; // rows 4, 7, 8
  const isRelayed = !isOutputUnknown && (isWhole || end.isLive); // rows 5, 6
  const estimate = isRelayed ? estimates.used(countedOutput) : estimates.reserved();
  const { input = estimate.input } = stated ?? {};
  const output = isLate && estimates.timeouts() === "input" ? 0 : estimate.output;
  const { statedCost: _, ...sums } = stated ?? { total: 0 }; // it is the cost of the beginning only
  const usage = {
    ...sums,
    input,
    output,
    total: input + output,
    parts: estimateParts(stated, { input, output }),
  };
  return { usage, isEstimated: true };
}

/** Returns the parts of estimated usage: the stated classes of the input, and text as output. */
function estimateParts(
  stated: TokenUsage | undefined,
  { input, output }: EstimatedTokens,
): readonly UsagePart[] {
  const [first, ...others] = stated?.input === undefined ? [] : partsOf(stated);
  if (first === undefined) return [{ classes: { input, output }, tariff: { context: input } }];
  const kept = Object.entries(first.classes).filter(([name]) => !OUTPUTS.has(name));
  const made = others.reduce((sum, part) => sum + sumOf(part.classes, OUTPUT_CLASSES), 0);
  const classes = { ...Object.fromEntries(kept), output: Math.max(0, output - made) };
  return [{ ...first, classes }, ...others];
}

/** Returns whether the stated output covers enough of a broken stream. */
function coversRelayed({ output = 0 }: TokenUsage, counted = 0): boolean {
  return output >= counted * MIN_STATED;
}
