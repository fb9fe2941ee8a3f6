/**
 * The account of one call: the tokens and the money to reserve for it, and what it has used in the end, by the provider's
 * statement or else by an estimate.
 *
 * @module
 */
import { costOf, dearestOf, findPrice, type Price, type Prices } from "../config/prices.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { UNANSWERED } from "../errors/upstream_errors.ts";
import type { Exchange, Settlement } from "../exchange/exchange.ts";
import type { TokenUsage } from "../exchange/record.ts";
import { type EstimatedCall, type EstimatedTokens, TokenEstimator } from "../limits/estimate.ts";
import { type Amounts, limitsAmounts, type LimitSubject, NO_AMOUNTS, type Reservation } from "../limits/limiter.ts";
import type { OtherModels } from "../operations/other_models.ts";
import { MAX_ADDED_TOKENS } from "../operations/request_size.ts";

/** Units of 10^-12 of a currency in one of 10^-9, in which limits count money. */
const COST_UNIT = 1000n;
/** The most models of a provider whose price is remembered. */
const MAX_PRICES = 1000;

/**
 * Share of what was relayed that a stream must have stated before it broke off, to be taken at its word. Some state
 * their output with each event; others begin with a token, and state the rest at the end.
 */
const MIN_STATED = 0.5;

/** A call whose tokens are limited. */
export interface LimitedCall extends EstimatedCall {
  /** Models that the body names in addition to `model`; `undefined` where it names none. */
  readonly otherModels: OtherModels | undefined;
  /** The most output that one answer of the provider has; `undefined` where the operator set none. Tokens. */
  readonly outputBound: number | undefined;
  /** Returns whether all of its input stands in the body. */
  isInputBounded(): boolean;
}

/** Amounts to reserve for a call, and those that it has used in the end. */
export interface Account {
  readonly reservation: Reservation;
  /** Converts the usage of its record. */
  toAmounts(usage: TokenUsage | undefined): Amounts;
}

/** Estimates and prices of one gateway. */
export class Accounting {
  readonly #estimator = new TokenEstimator();
  readonly #tables: (provider: string) => readonly (Prices | undefined)[];
  readonly #currency: string;
  readonly #prices = new Map<string, Price | undefined>();

  /**
   * @param tables Returns the prices of a provider's models, those that take precedence first
   * @param currency Currency of all prices
   */
  constructor(tables: (provider: string) => readonly (Prices | undefined)[], currency: string) {
    this.#tables = tables;
    this.#currency = currency;
  }

  /**
   * Completes the usage of a call when its exchange ends, and learns from it.
   *
   * @param call The call
   * @param exchange Its exchange
   */
  watch(call: EstimatedCall, exchange: Exchange): void {
    exchange.beforeSettled = this.#completionOf(call, exchange);
  }

  /**
   * Makes the function that completes the usage. V8 allocates a function that is written as the value of an assignment to
   * a property in the old generation, and all of its exchange then survives the collections of the young one: they took
   * 8 ms in place of 1, a tenth of a plain call on Deno and a twentieth on Node (2026-11-23, `--trace-gc`, 3 starts by CPU).
   */
  #completionOf(call: EstimatedCall, exchange: Exchange): (settlement: Settlement) => void {
    return (settlement) => this.#complete(call, exchange, settlement);
  }

  /**
   * Opens the account of a call whose tokens are limited.
   *
   * @param subjects Subjects that it counts against
   * @param call The call
   * @returns Its account
   * @throws {GatewayError} `model_not_priced` under a budget of money; `request_exceeds_limit` if a limit is strict, and
   * nobody can tell what the call could use at most; `key_not_understood` for a budget in another currency
   */
  open(subjects: readonly LimitSubject[], call: LimitedCall): Account {
    const price = this.#priceFor(subjects, call);
    const isStrict = subjects.some((subject) => subject.limits.mode === "strict" && limitsAmounts(subject));
    const expected = toAmounts(this.#estimator.expect(call), price);
    return {
      reservation: { expected, most: isStrict ? toAmounts(mostOf(call), price) : NO_AMOUNTS },
      toAmounts: (usage) => usage === undefined ? NO_AMOUNTS : toAmounts(usage, price),
    };
  }

  /** Finds the price of a call if it counts against a budget of money: the dearest of the models that it names. */
  #priceFor(subjects: readonly LimitSubject[], { provider, model, otherModels }: LimitedCall): Price | undefined {
    let isSpent = false;
    for (const { limits: { spend } } of subjects) {
      if (spend === undefined) continue;
      if (spend.currency !== this.#currency) {
        throw new GatewayError("key_not_understood", { detail: "its budget is in another currency than the prices" });
      }
      isSpent = true;
    }
    if (!isSpent) return undefined;
    const price = this.#priceOf(provider, model);
    if (otherModels === undefined) return price;
    const { names, unnamedIn } = otherModels;
    if (unnamedIn !== undefined) {
      throw new GatewayError("model_not_priced", { param: unnamedIn, detail: "this field can stand for any model" });
    }
    return names.reduce((dearest, name) => dearestOf(dearest, this.#priceOf(provider, name)), price);
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
   * Completes the facts of usage. What a provider stated counts. An answer that states nothing, or broke off before it
   * stated its output, counts as what was sent and relayed of it. A call that nobody waited for counts as expected: the
   * provider may go on with it, and bill it.
   */
  #complete(call: EstimatedCall, { facts, outputTokens }: Exchange, { outcome, code }: Settlement): void {
    const { usage, calledMs, stream } = facts;
    if (usage !== undefined && outcome === "ok") return this.#estimator.learn(call, usage, outputTokens);
    if (usage?.output !== undefined && usage.output >= (outputTokens ?? 0) * MIN_STATED) return;
    const isUnanswered = outputTokens === undefined && (calledMs === undefined || UNANSWERED.has(code));
    if (isUnanswered) return;
    const isRelayed = outputTokens !== undefined && (outcome === "ok" || (stream === true && !call.isBackground));
    const estimate = isRelayed ? this.#estimator.consumed(call, outputTokens) : this.#estimator.expect(call);
    const { input = estimate.input } = usage ?? {};
    facts.usage = { ...usage, input, output: estimate.output, total: input + estimate.output };
    facts.isEstimated = true;
  }
}

/** Returns the tokens that a call could use at most: every byte of its body may be one, and the provider adds some. */
function mostOf(call: LimitedCall): EstimatedTokens {
  const isInputBounded = call.isInputBounded();
  const { maxOutput, outputBound } = call;
  const output = Math.min(maxOutput ?? Infinity, outputBound ?? Infinity);
  if (output === Infinity) {
    throw new GatewayError("request_exceeds_limit", {
      detail: "the limit is strict, so the request has to say how many tokens the answer may have",
    });
  }
  if (!isInputBounded) {
    throw new GatewayError("request_exceeds_limit", {
      detail: "the limit is strict, so all of the input has to stand in the request",
    });
  }
  return { input: call.inputBytes + MAX_ADDED_TOKENS, output };
}

/** Converts tokens to what limits count; those that are neither input nor output cost as input. */
function toAmounts(
  { input = 0, output = 0, cached = 0, total = input + output }: Partial<TokenUsage>,
  price: Price | undefined,
): Amounts {
  if (price === undefined) return { tokens: total, spend: 0 };
  const cost = costOf(price, { input: input + Math.max(0, total - input - output), cached, output });
  return { tokens: total, spend: Number((cost + COST_UNIT - 1n) / COST_UNIT) };
}
