/**
 * The prices of a configuration, by provider and model.
 *
 * @module
 */
import {
  addAmounts,
  type ClassAmounts,
  partsOf,
  requestPartOf,
  type TokenUsage,
} from "../exchange/billing.ts";
import { addCosts, type Cost, costOf, NO_COST, parseCost } from "./cost.ts";
import { findPrice, type Price, type Prices } from "./prices.ts";
import type { ProviderConfig } from "./provider.ts";

/** The most models whose price is remembered. */
const MAX_PRICES = 1000;

/** The settings that state prices. */
export interface PriceSettings {
  /** Prices for all providers. */
  readonly prices: Prices;
  readonly providers: Readonly<Record<string, Pick<ProviderConfig, "prices" | "statesCost">>>;
}

/** The provider that answered a call, and the model that the caller named. */
export interface PricedModel {
  readonly provider: string;
  readonly model: string;
}

/** Finds prices, each once. */
export class PriceBook {
  readonly #settings: PriceSettings;
  readonly #found = new Map<string, Price | undefined>();

  constructor(settings: PriceSettings) {
    this.#settings = settings;
  }

  /** True if no model has a price. */
  get isEmpty(): boolean {
    const { prices, providers } = this.#settings;
    const tables = [prices, ...Object.values(providers).map((each) => each.prices ?? {})];
    return tables.every((table) => Object.keys(table).length === 0);
  }

  /** Finds the price of a model. The provider's own prices have precedence. */
  find({ provider, model }: PricedModel): Price | undefined {
    const name = `${provider}\n${model}`;
    if (!this.#found.has(name)) {
      if (this.#found.size >= MAX_PRICES) this.#found.clear();
      const { prices, providers } = this.#settings;
      const own = Object.hasOwn(providers, provider) ? providers[provider]?.prices : undefined;
      this.#found.set(name, findPrice(model, own, prices));
    }
    return this.#found.get(name);
  }

  /**
   * Computes the cost of a call: the amount that its provider states, if the provider is configured
   * so, else the sum over its parts.
   *
   * @param at Time for dated prices, milliseconds since 1970
   */
  costOf(usage: TokenUsage, called: PricedModel, at: number): Cost {
    const { provider, model } = called;
    const { statedCost } = usage;
    if (statedCost !== undefined && this.#isStated(called)) {
      return { amount: parseCost(statedCost) };
    }
    const parts = partsOf(usage);
    const requested = requestPartOf(parts);
    let sum: Cost | undefined;
    for (const [index, part] of parts.entries()) {
      const price = this.find({ provider, model: part.model ?? model });
      const classes = index === requested ? { ...part.classes, requests: 1 } : part.classes;
      const cost = costOf(price, { ...part, classes }, at);
      sum = sum === undefined ? cost : addCosts(sum, cost);
    }
    return sum ?? NO_COST;
  }

  /**
   * Returns the amounts of a call that have no price; `undefined` if all have one.
   *
   * @param at Time for dated prices, milliseconds since 1970
   */
  unpricedOf(usage: TokenUsage, called: PricedModel, at: number): ClassAmounts | undefined {
    if (usage.statedCost !== undefined && this.#isStated(called)) return undefined;
    const { provider, model } = called;
    let sum: ClassAmounts | undefined;
    for (const part of partsOf(usage)) {
      const cost = costOf(this.find({ provider, model: part.model ?? model }), part, at);
      const unpriced = cost.amount === undefined ? part.classes : cost.unpriced;
      if (unpriced !== undefined) sum = addAmounts(sum ?? {}, unpriced);
    }
    return sum;
  }

  /** True if a provider's statements of costs have precedence over prices. */
  #isStated({ provider }: PricedModel): boolean {
    const { providers } = this.#settings;
    return Object.hasOwn(providers, provider) && providers[provider]?.statesCost === true;
  }
}
