/**
 * The price of one call that counts against a budget of money: the amount to reserve for it, and
 * the charge for its usage. Both are by the prices of the time when it began.
 *
 * @module
 */
import { type Bound, type BoundCost, findBoundCost } from "../config/bound_cost.ts";
import { budgetCostOf, parseCost, toNano } from "../config/cost.ts";
import type { PriceBook } from "../config/price_book.ts";
import type { Price } from "../config/prices.ts";
import type { ProviderConfig } from "../config/provider.ts";
import { scaledOf } from "../config/scaled_price.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { type ClassAmounts, partsOf, requestPartOf, type TokenUsage } from "../exchange/billing.ts";
import { parseView } from "../inbound/json_guard.ts";
import type { EstimatedTokens } from "../limits/estimate.ts";
import { mostSearchUnits } from "./search_units.ts";
import type { Operation } from "../operations/table.ts";
import { bytesOf, type Call } from "./call.ts";

/** The settings of a provider that decide about costs. */
type PricedProvider = Pick<ProviderConfig, "region" | "statesCost" | "tiers" | "maxCalls">;

/** Dependencies of {@link CallPrice}. */
export interface CallPriceParts {
  readonly book: PriceBook;
  /** Name and settings of the provider. */
  readonly provider: string;
  readonly settings: PricedProvider;
  /** Model as the caller named it. */
  readonly model: string;
  /** Amounts that the answer can state in place of tokens. */
  readonly units: Operation["units"];
  readonly call: Call;
  /** Time when the call began, milliseconds since 1970. */
  readonly at: number;
}

const utf8 = new TextDecoder();
/**
 * Marks of a request for the cache's longer time, and of sound in a body. Both can be hidden by
 * escapes of ASCII, which no library writes.
 */
const LONG_CACHE = /"(?:ttl|prompt_cache_retention)"|\\u00[2-7]/;
const AUDIO = /"input_audio"|"audio\/|\\u00[2-7]/;

/**
 * Refuses a call if its answer can state an amount in place of tokens, and the amount has no price:
 * the call would cost nothing.
 *
 * @throws {GatewayError} `model_not_priced`
 */
function assertUnitsPriced(price: Price, { units, call }: CallPriceParts): void {
  if (units === undefined) return;
  const { anyOf, fields } = units;
  const isPriced = scaledOf(price).rows.some(({ rates }) =>
    anyOf.some((name) => rates[name] !== undefined)
  );
  if (isPriced || (fields !== undefined && !hasField(call, fields))) return;
  throw new GatewayError("model_not_priced", { detail: `its price has no ${anyOf.join(" or ")}` });
}

/** Returns whether the JSON body of a call has one of some fields. */
function hasField({ body }: Call, names: readonly string[]): boolean {
  const fields = parseView(bytesOf(body)) as Readonly<Record<string, unknown>>;
  return names.some((name) => (fields[name] ?? null) !== null);
}

/** Facts of a call that decide the charge for its usage. */
interface ChargedCall extends Pick<CallPriceParts, "book" | "provider" | "settings" | "at"> {
  /** Price of the model that the caller named. */
  readonly price: Price;
}

/**
 * Returns the charge for usage. Where a price is missing, the dearest one of the model counts.
 *
 * @returns Units of 10^-9 of the currency
 */
export function moneyOf(
  usage: TokenUsage,
  { book, provider, settings, price, at }: ChargedCall,
): number {
  if (settings.statesCost === true && usage.statedCost !== undefined) {
    return toNano(parseCost(usage.statedCost));
  }
  const parts = partsOf(usage);
  const requested = requestPartOf(parts);
  let cost = 0n;
  for (const [index, part] of parts.entries()) {
    const partPrice = part.model === undefined
      ? price
      : book.find({ provider, model: part.model }) ?? price;
    const classes = index === requested ? { ...part.classes, requests: 1 } : part.classes;
    cost += budgetCostOf(partPrice, { ...part, classes }, at);
  }
  return toNano(cost);
}

/** The price of one call. */
export class CallPrice {
  readonly #parts: CallPriceParts;
  readonly #price: Price;
  /** Prices of all models that the call names. */
  readonly #prices: readonly Price[];
  #facts: Omit<Bound, "input" | "output"> | undefined;

  /**
   * @throws {GatewayError} `model_not_priced` for a model without a price, or without a price of an
   * amount that the answer can state in place of tokens
   */
  constructor(parts: CallPriceParts) {
    this.#parts = parts;
    const { otherModels } = parts.call.facts;
    if (otherModels?.unnamedIn !== undefined) {
      throw new GatewayError("model_not_priced", {
        param: otherModels.unnamedIn,
        detail: "this field can mean any model",
      });
    }
    this.#price = this.#find(parts.model);
    if (parts.settings.statesCost !== true) assertUnitsPriced(this.#price, parts);
    const others = otherModels?.names.map((name) => this.#find(name)) ?? [];
    this.#prices = [this.#price, ...others];
  }

  /**
   * Returns the money to reserve for some tokens, by the dearest prices that the call can meet.
   *
   * @returns Units of 10^-9 of the currency
   */
  priceReservation(tokens: EstimatedTokens): number {
    return Math.max(...this.#bounds(tokens).map(({ amount }) => toNano(amount)));
  }

  /**
   * Refuses a call whose cost has no bound, because a limit is strict.
   *
   * @throws {GatewayError} `request_exceeds_limit` for a tool without a maximum of calls;
   * `model_not_priced` if the call can meet a tariff without a price
   */
  assertBounded(tokens: EstimatedTokens): void {
    const { call, settings } = this.#parts;
    const { tools } = call.facts.tariff;
    if (settings.maxCalls === undefined && tools.some(({ most }) => most === undefined)) {
      throw new GatewayError("request_exceeds_limit", {
        param: "tools",
        detail: "the limit is strict, so a tool with a fee has to have a maximum of calls",
      });
    }
    const missing = this.#bounds(tokens).find((bound) => bound.missing !== undefined)?.missing;
    if (missing === undefined) return;
    throw new GatewayError("model_not_priced", {
      detail: `the limit is strict, and the price of this call has no ${missing}`,
    });
  }

  /**
   * Returns the charge for usage. Where a price is missing, the dearest one of the model counts.
   *
   * @returns Units of 10^-9 of the currency
   */
  priceUsage(usage: TokenUsage): number {
    return moneyOf(usage, { ...this.#parts, price: this.#price });
  }

  #find(model: string): Price {
    const price = this.#parts.book.find({ provider: this.#parts.provider, model });
    if (price === undefined) throw new GatewayError("model_not_priced");
    return price;
  }

  #bounds(tokens: EstimatedTokens): BoundCost[] {
    const bound = { ...this.#boundFacts, ...tokens };
    return this.#prices.map((price) => findBoundCost(price, bound, this.#parts.at));
  }

  /** The facts of the request that decide its dearest price. They are read once. */
  get #boundFacts(): Omit<Bound, "input" | "output"> {
    return this.#facts ??= this.#readFacts();
  }

  #readFacts(): Omit<Bound, "input" | "output"> {
    const { call, settings } = this.#parts;
    const { tier, geo, asked, tools, hasAudioOutput, characters } = call.facts.tariff;
    const body = utf8.decode(bytesOf(call.body));
    const units: Record<string, number> = { characters };
    if (this.#parts.units?.anyOf.includes("searchUnits")) {
      units.searchUnits = mostSearchUnits(bytesOf(call.body));
    }
    for (const { unit, most = settings.maxCalls ?? 0 } of tools) {
      units[unit] = (units[unit] ?? 0) + most;
    }
    return {
      hasLongWrites: LONG_CACHE.test(body),
      modalities: hasAudioOutput || AUDIO.test(body) ? ["Audio"] : [],
      tiers: tier === undefined ? [undefined, ...settings.tiers ?? []] : [tier, undefined],
      geos: geo === undefined ? [settings.region] : [geo, settings.region],
      asked,
      units: units as ClassAmounts,
    };
  }
}
