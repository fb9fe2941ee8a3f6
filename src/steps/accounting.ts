/**
 * The account of one call: the tokens and the money to reserve for it, and its use at the end,
 * stated by the provider or estimated.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { PriceBook } from "../config/price_book.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { isPlausible, type TokenUsage } from "../exchange/billing.ts";
import type { Exchange, Settlement } from "../exchange/exchange.ts";
import { isJson } from "../inbound/body.ts";
import { parseView } from "../inbound/json_guard.ts";
import { type EstimatedCall, type EstimatedTokens, TokenEstimator } from "../limits/estimate.ts";
import { SETTLED_LIMITS } from "../limits/limit_kinds.ts";
import {
  type Amounts,
  limitsAmounts,
  type LimitSubject,
  NO_AMOUNTS,
  type Reservation,
  unitOf,
} from "../limits/limiter.ts";
import { findUncounted, isInputBounded, MAX_ADDED_TOKENS } from "../operations/request_size.ts";
import type { RequestedTariff } from "../operations/requested_tariff.ts";
import type { AwaitedCall } from "./awaited_call.ts";
import { bytesOf, type Call } from "./call.ts";
import { CallPrice, chargeUsage } from "./call_price.ts";
import { charge } from "./charge.ts";
import { mergeRequest, type RequestUsage } from "./request_usage.ts";

/** A call whose tokens are counted. */
export interface CountedCall extends EstimatedCall {
  /**
   * The most output that it can have; `undefined` if neither the caller nor the operator set a
   * maximum. Tokens.
   */
  readonly strictMaxOutput: number | undefined;
  /** Fields of its request that decide its price. */
  readonly tariff: RequestedTariff;
  /**
   * Tokens that {@link Accounting.open} has reserved for it; `undefined` without a limit on tokens.
   */
  reserved: EstimatedTokens | undefined;
  /** True if a limit is strict. Then output that is not stated can be as much as was reserved. */
  isStrict: boolean;
}

/** Amounts to reserve for a call, and the amounts that it has used at its end. */
export interface Account {
  readonly reservation: Reservation;
  /** Converts the usage in the record of the call. */
  toAmounts(usage: TokenUsage | undefined): Amounts;
}

/** The settings of a gateway that decide about costs. */
type PricedConfig = Pick<Config, "prices" | "currency" | "providers">;

/** Estimates and prices of one gateway. */
export class Accounting {
  readonly #estimator = new TokenEstimator();
  readonly #config: PricedConfig;
  readonly #book: PriceBook;

  constructor(config: PricedConfig) {
    this.#config = config;
    this.#book = new PriceBook(config);
  }

  /** Completes the usage of a call when its exchange ends, and learns from it. */
  completeAtEnd(counted: CountedCall, exchange: Exchange): void {
    exchange.beforeSettled = this.#completionOf(counted, exchange);
  }

  /**
   * Makes the function that completes the usage. It is a method for speed: if a function expression
   * is assigned to a property directly, V8 allocates it in the old generation, and its whole
   * exchange then survives the collections of the young generation. These took 8 ms instead of 1
   * ms, a tenth of a plain call on Deno and a twentieth on Node (2026-11-23, `--trace-gc`, 3 starts
   * by CPU).
   */
  #completionOf(counted: CountedCall, exchange: Exchange): (settlement: Settlement) => void {
    return (settlement) => this.#complete(counted, exchange, settlement);
  }

  /**
   * Opens the account of a call whose tokens are limited.
   *
   * @throws {GatewayError} `model_not_priced` under a budget of money; `request_exceeds_limit` if a
   * limit is strict and the maximum use of the call is unknown; `key_not_understood` for a budget
   * in another currency
   */
  open(
    subjects: readonly LimitSubject[],
    counted: CountedCall,
    { call, at }: { readonly call: Call; readonly at: number },
  ): Account {
    const price = this.#isSpent(subjects) ? this.#priceOf(counted, call, at) : undefined;
    const isStrict = subjects.some((subject) =>
      subject.limits.mode === "strict" && limitsAmounts(subject)
    );
    counted.isStrict = isStrict;
    const expected = capByLimits(this.#estimator.expect(counted), subjects, price);
    const most = isStrict ? mostOf(counted, call) : undefined;
    if (most !== undefined) price?.assertBounded(most);
    // A caller that leaves its calls must not use more at the provider than a strict limit allows.
    counted.reserved = most === undefined ? expected : capByLimits(most, subjects, price);
    return {
      reservation: {
        expected: toReserved(expected, price),
        most: most === undefined ? NO_AMOUNTS : toReserved(most, price),
      },
      toAmounts: (usage) =>
        usage === undefined
          ? NO_AMOUNTS
          : { tokens: usage.total, spend: price?.charge(usage) ?? 0 },
    };
  }

  /**
   * Returns whether a call counts against a budget of money.
   *
   * @throws {GatewayError} `key_not_understood` for a budget in another currency
   */
  #isSpent(subjects: readonly LimitSubject[]): boolean {
    let isSpent = false;
    for (const { limits: { spend } } of subjects) {
      if (spend === undefined) continue;
      if (spend.currency !== this.#config.currency) {
        throw new GatewayError("key_not_understood", {
          detail: "its budget is in another currency than the prices",
        });
      }
      isSpent = true;
    }
    return isSpent;
  }

  #priceOf({ provider, model }: CountedCall, call: Call, at: number): CallPrice {
    const settings = this.#config.providers[provider];
    if (settings === undefined) throw new Error(`Cannot price a call: no provider ${provider}`);
    return new CallPrice({ book: this.#book, provider, settings, model, call, at });
  }

  /** Adds the facts of a request to usage that its provider stated later. */
  completeStated(usage: TokenUsage, call: AwaitedCall): TokenUsage {
    return this.#merge(usage, call, { isEstimated: false, isUnstated: false });
  }

  /** Returns the amounts that limits count for the usage of a call whose request is over. */
  toAmounts(usage: TokenUsage, { provider, model, startedAt, subjects }: AwaitedCall): Amounts {
    const settings = this.#config.providers[provider];
    const price = this.#book.find({ provider, model });
    const isPriced = settings !== undefined && price !== undefined && this.#isSpent(subjects);
    const spend = isPriced
      ? chargeUsage(usage, { book: this.#book, provider, settings, price, at: startedAt })
      : 0;
    return { tokens: usage.total, spend };
  }

  /** Adds the facts of a request to its usage. */
  #merge(
    usage: TokenUsage,
    { tariff, provider, model }: Pick<CountedCall, "tariff" | "provider" | "model">,
    { isEstimated, isUnstated }: Pick<RequestUsage, "isEstimated" | "isUnstated">,
  ): TokenUsage {
    const region = this.#config.providers[provider]?.region;
    const price = tariff.characters > 0 ? this.#book.find({ provider, model }) : undefined;
    const isPriced = (answering: string): boolean =>
      this.#book.find({ provider, model: answering }) !== undefined;
    return mergeRequest(usage, {
      tariff,
      region,
      model,
      price,
      isPriced,
      isEstimated,
      isUnstated,
    });
  }

  /** Estimates the tokens of a call whose output was relayed, but not stated. */
  #usedTokens(counted: CountedCall, output: number): EstimatedTokens {
    // Output that is never relayed, such as reasoning, must not exceed a strict limit.
    if (counted.isStrict && counted.reserved !== undefined) return counted.reserved;
    return this.#estimator.consumed(counted, output);
  }

  /**
   * Completes the facts with the charge of a call. If the answer is complete and its tokens were
   * stated, it improves later estimates.
   */
  #complete(counted: CountedCall, exchange: Exchange, { outcome, code }: Settlement): void {
    const { facts, outputTokens, answeredStatus } = exchange;
    const isWhole = outcome === "ok" || exchange.isCompleteWithoutCaller;
    // An absurd statement must not use up a limit that others share.
    const stated = facts.usage && isPlausible(facts.usage) ? facts.usage : undefined;
    const { usage, isEstimated } = charge({
      isCalled: facts.calledMs !== undefined,
      status: answeredStatus,
      isWhole,
      code,
      isLive: facts.stream === true && !counted.isBackground,
      stated,
      countedOutput: outputTokens,
    }, {
      reserved: () => counted.reserved ?? this.#estimator.expect(counted),
      used: (output) => this.#usedTokens(counted, output),
    });
    const isUnstated = isEstimated && stated?.input === undefined;
    facts.usage = usage && this.#merge(usage, counted, { isEstimated, isUnstated });
    if (isEstimated) facts.isEstimated = true;
    else if (usage !== undefined && isWhole) this.#estimator.learn(counted, usage, outputTokens);
  }
}

/**
 * Caps the tokens of a call at the size of its smallest limit, so that a caller's statement cannot
 * reserve more of a shared limit than that. Limits that only observe refuse nothing, so they cap
 * nothing.
 */
function capByLimits(
  expected: EstimatedTokens,
  subjects: readonly LimitSubject[],
  price: CallPrice | undefined,
): EstimatedTokens {
  const amounts = toReserved(expected, price);
  let share = 1;
  for (const { limits } of subjects) {
    if (limits.mode === "observe") continue;
    for (const name of SETTLED_LIMITS) {
      const most = limits[name]?.limit ?? Infinity;
      const amount = amounts[unitOf(name)];
      if (amount > most) share = Math.min(share, most / amount);
    }
  }
  if (share === 1) return expected;
  return { input: Math.floor(expected.input * share), output: Math.floor(expected.output * share) };
}

/**
 * Returns the most tokens that a call can use. Each byte of its body can be a token, and the
 * provider adds some.
 */
function mostOf(
  { inputBytes, strictMaxOutput: output }: CountedCall,
  call: Call,
): EstimatedTokens {
  // Runs first, because it also refuses numbers that providers read differently.
  const isInputBounded = isBodyBounded(call);
  if (output === undefined) {
    throw new GatewayError("request_exceeds_limit", {
      detail:
        "the limit is strict, so the request has to state the maximum of tokens in the answer",
    });
  }
  if (!isInputBounded) {
    throw new GatewayError("request_exceeds_limit", {
      detail: "the limit is strict, so all of the input has to be in the request",
    });
  }
  return { input: inputBytes + MAX_ADDED_TOKENS, output };
}

/**
 * Checks that a request cannot cost more tokens of input than its body has bytes, see
 * {@link isInputBounded}. It parses the body once more, so call it only for strict limits.
 *
 * @returns Whether the input is bounded; false for a body that is not JSON
 * @throws {GatewayError} `invalid_body` for a number of tokens or answers that is not a whole
 * number
 */
function isBodyBounded({ body, contentType }: Call): boolean {
  const bytes = bytesOf(body);
  if (bytes.length === 0 || !isJson(contentType)) return false;
  const fields = parseView(bytes) as Readonly<Record<string, unknown>>;
  const uncounted = findUncounted(fields);
  if (uncounted !== undefined) {
    throw new GatewayError("invalid_body", {
      param: uncounted,
      detail: "expected a whole number: a limit is strict",
    });
  }
  return isInputBounded(fields, bytes);
}

/** Returns the amounts to reserve for some tokens. */
function toReserved(tokens: EstimatedTokens, price: CallPrice | undefined): Amounts {
  return { tokens: tokens.input + tokens.output, spend: price?.reserve(tokens) ?? 0 };
}
