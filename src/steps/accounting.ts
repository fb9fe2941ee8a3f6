/**
 * The account of one call: the tokens and the money to reserve for it, and its use at the end,
 * stated by the provider or estimated.
 *
 * @module
 */
import { costOf, dearestOf, findPrice, type Price, type Prices } from "../config/prices.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Exchange, Settlement } from "../exchange/exchange.ts";
import type { TokenUsage } from "../exchange/record.ts";
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
import { bytesOf, type Call } from "./call.ts";
import { charge } from "./charge.ts";

/**
 * Prices count in units of 10^-12 of a currency, limits in units of 10^-9: the factor between them.
 */
const COST_UNIT = 1000n;
/** The most models of a provider with a remembered price. */
const MAX_PRICES = 1000;

/** A call whose tokens are counted. */
export interface CountedCall extends EstimatedCall {
  /**
   * The most output that it can have; `undefined` if neither the caller nor the operator set a
   * maximum. Tokens.
   */
  readonly mostOutput: number | undefined;
  /**
   * Tokens that {@link Accounting.open} has reserved for it; `undefined` without a limit on tokens.
   */
  reserved: EstimatedTokens | undefined;
}

/** Amounts to reserve for a call, and the amounts that it has used at its end. */
export interface Account {
  readonly reservation: Reservation;
  /** Converts the usage in the record of the call. */
  toAmounts(usage: TokenUsage | undefined): Amounts;
}

/** Estimates and prices of one gateway. */
export class Accounting {
  readonly #estimator = new TokenEstimator();
  readonly #tables: (provider: string) => readonly (Prices | undefined)[];
  readonly #currency: string;
  readonly #prices = new Map<string, Price | undefined>();

  /** @param tables Returns the prices of a provider's models, highest precedence first */
  constructor(tables: (provider: string) => readonly (Prices | undefined)[], currency: string) {
    this.#tables = tables;
    this.#currency = currency;
  }

  /** Completes the usage of a call when its exchange ends, and learns from it. */
  watch(counted: CountedCall, exchange: Exchange): void {
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
  open(subjects: readonly LimitSubject[], counted: CountedCall, call: Call): Account {
    const price = this.#priceFor(subjects, counted, call);
    const isStrict = subjects.some((subject) =>
      subject.limits.mode === "strict" && limitsAmounts(subject)
    );
    const expected = capByLimits(this.#estimator.expect(counted), subjects, price);
    const most = isStrict ? mostOf(counted, call) : undefined;
    // A caller that leaves its calls must not use more at the provider than a strict limit allows.
    counted.reserved = most === undefined ? expected : capByLimits(most, subjects, price);
    return {
      reservation: {
        expected: toAmounts(expected, price),
        most: most === undefined ? NO_AMOUNTS : toAmounts(most, price),
      },
      toAmounts: (usage) => usage === undefined ? NO_AMOUNTS : toAmounts(usage, price),
    };
  }

  /**
   * Finds the price of a call that counts against a budget of money: the price of the most
   * expensive model that it names.
   */
  #priceFor(
    subjects: readonly LimitSubject[],
    { provider, model }: CountedCall,
    { facts }: Call,
  ): Price | undefined {
    let isSpent = false;
    for (const { limits: { spend } } of subjects) {
      if (spend === undefined) continue;
      if (spend.currency !== this.#currency) {
        throw new GatewayError("key_not_understood", {
          detail: "its budget is in another currency than the prices",
        });
      }
      isSpent = true;
    }
    if (!isSpent) return undefined;
    const price = this.#priceOf(provider, model);
    if (facts.otherModels === undefined) return price;
    const { names, unnamedIn } = facts.otherModels;
    if (unnamedIn !== undefined) {
      throw new GatewayError("model_not_priced", {
        param: unnamedIn,
        detail: "this field can mean any model",
      });
    }
    return names.reduce(
      (dearest, name) => dearestOf(dearest, this.#priceOf(provider, name)),
      price,
    );
  }

  #priceOf(provider: string, model: string): Price {
    const name = `${provider}\n${model}`;
    if (!this.#prices.has(name)) {
      if (this.#prices.size >= MAX_PRICES) this.#prices.clear();
      this.#prices.set(name, findPrice(model, ...this.#tables(provider)));
    }
    const price = this.#prices.get(name);
    if (price === undefined) throw new GatewayError("model_not_priced");
    return price;
  }

  /**
   * Completes the facts with the charge of a call. If the answer is complete and its tokens were
   * stated, it improves later estimates.
   */
  #complete(counted: CountedCall, exchange: Exchange, { outcome, code }: Settlement): void {
    const { facts, outputTokens, answeredStatus } = exchange;
    const isWhole = outcome === "ok" || exchange.isReadOut;
    const { usage, isEstimated } = charge({
      isCalled: facts.calledMs !== undefined,
      status: answeredStatus,
      isWhole,
      code,
      isLive: facts.stream === true && !counted.isBackground,
      stated: facts.usage,
      counted: outputTokens,
    }, {
      reserved: () => counted.reserved ?? this.#estimator.expect(counted),
      used: (output) => this.#estimator.consumed(counted, output),
    });
    facts.usage = usage;
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
  price: Price | undefined,
): EstimatedTokens {
  const amounts = toAmounts(expected, price);
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
  { inputBytes, mostOutput: output }: CountedCall,
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

/**
 * Converts tokens to amounts of limits. Tokens that are neither input nor output cost as much as
 * input.
 */
function toAmounts(usage: Partial<TokenUsage>, price: Price | undefined): Amounts {
  const { input = 0, output = 0, cached = 0, total = input + output } = usage;
  if (price === undefined) return { tokens: total, spend: 0 };
  const cost = costOf(price, {
    input: input + Math.max(0, total - input - output),
    cached,
    output,
  });
  return { tokens: total, spend: Number((cost + COST_UNIT - 1n) / COST_UNIT) };
}
