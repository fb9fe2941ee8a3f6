/**
 * The prices of a configuration, by provider and model.
 *
 * @module
 */
import { partsOf, requestPartOf, type TokenUsage } from "../exchange/billing.ts";
import { addCallCosts, type CallCost, costByClass, NO_COST, parseCost } from "./cost.ts";
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

/** Lists the tables of prices in a configuration, each with its path. */
export function listPriceTables(
  { prices, providers }: PriceSettings,
): (readonly [path: readonly string[], table: Prices])[] {
  const own = Object.entries(providers).map(([name, provider]) =>
    [["providers", name, "prices"], provider.prices ?? {}] as const
  );
  return [[["prices"], prices], ...own];
}

function hasPrices(table: Prices | undefined): boolean {
  return table !== undefined && Object.keys(table).length > 0;
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

  /** True if costs are known: a model has a price, or a provider's statements are used. */
  get hasCosts(): boolean {
    const { prices, providers } = this.#settings;
    if (hasPrices(prices)) return true;
    for (const provider of Object.values(providers)) {
      if (provider.statesCost === true || hasPrices(provider.prices)) return true;
    }
    return false;
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
   * Computes the cost of a call, by class: the amount that its provider states, if the provider is
   * configured so, else the sum over its parts.
   *
   * @param at Time for dated prices, milliseconds since 1970
   */
  costOf(usage: TokenUsage, called: PricedModel, at: number): CallCost {
    const { provider, model } = called;
    const { statedCost } = usage;
    if (statedCost !== undefined && this.#isStated(called)) {
      const amount = parseCost(statedCost);
      return { amount, classes: amount > 0n ? { stated: amount } : {} };
    }
    const parts = partsOf(usage);
    const requested = requestPartOf(parts);
    let sum: CallCost | undefined;
    for (const [index, part] of parts.entries()) {
      const price = this.find({ provider, model: part.model ?? model });
      const classes = index === requested ? { ...part.classes, requests: 1 } : part.classes;
      const cost = costByClass(price, { ...part, classes }, at);
      sum = sum === undefined ? cost : addCallCosts(sum, cost);
    }
    return sum ?? { ...NO_COST, classes: {} };
  }

  /** True if a provider's statements of costs have precedence over prices. */
  #isStated({ provider }: PricedModel): boolean {
    const { providers } = this.#settings;
    return Object.hasOwn(providers, provider) && providers[provider]?.statesCost === true;
  }
}
