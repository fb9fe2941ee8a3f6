/**
 * A call whose tokens are counted, and its account: the amounts that are reserved for it, and the
 * amounts that it has used at its end.
 *
 * @module
 */
import type { ErrorCode } from "../errors/codes.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import type { EstimatedCall, EstimatedTokens } from "../limits/estimate.ts";
import type { Amounts, Reservation } from "../limits/limiter.ts";
import type { RequestedTariff } from "../operations/requested_tariff.ts";
import type { Operation } from "../operations/table.ts";
import { narrower } from "../runs/run_registry.ts";
import type { Call } from "./call.ts";
import type { Flow } from "./flow.ts";

/** A call whose tokens are counted. */
export interface CountedCall extends EstimatedCall {
  /**
   * The most output that it can have; `undefined` if neither the caller nor the operator set a
   * maximum. Tokens.
   */
  readonly strictMaxOutput: number | undefined;
  /** Models that its request names in addition to `model`. */
  readonly otherModels: readonly string[];
  /** Fields of its request that decide its price. */
  readonly tariff: RequestedTariff;
  /** Amounts that its answer can state in place of tokens. */
  readonly units: Operation["units"];
  /** True if nothing limits what its answer can state. */
  readonly statesAny: Operation["statesAny"];
  /** Its account, once it is open; `undefined` if nothing is reserved for it. */
  account: TokenAccount | undefined;
}

/** Amounts to reserve for a call, and the amounts that it has used at its end. */
export interface Account {
  readonly reservation: Reservation;
  /** True if the money of the amounts is known. */
  readonly isPriced: boolean;
  /**
   * Code of the refusal in a run with a budget of money, because a limit is strict and nothing limits
   * the cost of the call.
   */
  readonly unbounded?: ErrorCode | undefined;
  /** Converts the usage in the record of the call. */
  toAmounts(usage: TokenUsage | undefined): Amounts;
}

/** The account of a call whose tokens are counted. */
export interface TokenAccount extends Account {
  readonly reservedTokens: EstimatedTokens;
  /** True if a limit is strict. Then output that is not stated can be as much as was reserved. */
  readonly isStrict: boolean;
}

/**
 * The most output to reserve if the provider has no maximum: twice the largest of any model in
 * 2026. Without this bound, a caller could state any number, leave, and exhaust a limit that it
 * shares. Tokens.
 */
const MAX_BELIEVED_OUTPUT = 262_144;

/**
 * The most input to reserve if the provider has no maximum: the largest context of a hosted model
 * in 2026 (xAI's Grok 4.20, https://docs.x.ai/docs/models). Without this bound, a caller could send
 * any text, leave before the provider refuses it, and exhaust a limit that it shares. Tokens.
 */
const MAX_BELIEVED_INPUT = 2_000_000;

const NO_MODELS: readonly string[] = [];

/** Multiplies a maximum by the number of answers, for which a caller can state any number. */
const multiplyMax = (max: number | undefined, answers: number): number | undefined =>
  max === undefined ? undefined : Math.min(Math.ceil(max * answers), Number.MAX_SAFE_INTEGER);

/** Returns the facts of a call from which its tokens are counted. */
export function toCountedCall({ facts }: Call, { provider, operation, key }: Flow): CountedCall {
  const { generated, prompts, inputBytes, isInputWhole, isBackground } = facts;
  const callerMax = operation.genAi === "embeddings" ? 0 : multiplyMax(facts.maxOutput, generated);
  const providerMaxOutput = multiplyMax(provider.maxOutput, generated);
  const strictMaxOutput = narrower(callerMax, providerMaxOutput);
  // Estimates believe the caller up to this maximum. Strict limits use `strictMaxOutput`.
  const believedMax = Math.max(MAX_BELIEVED_OUTPUT, provider.maxOutput ?? 0);
  return {
    provider: provider.name,
    model: facts.model ?? "",
    keyId: key.id,
    inputBytes,
    maxInput: (provider.maxInput ?? MAX_BELIEVED_INPUT) * prompts,
    isInputWhole,
    isBackground,
    otherModels: facts.otherModels?.names ?? NO_MODELS,
    tariff: facts.tariff,
    units: operation.units,
    statesAny: operation.statesAny,
    maxOutput: callerMax === undefined ? undefined : narrower(strictMaxOutput, believedMax),
    providerMaxOutput,
    strictMaxOutput,
    account: undefined,
  };
}
