/**
 * The price of one call that counts against a budget of money: the amount to reserve for it, and
 * the charge for its usage. Both are by the prices of the time when it began.
 *
 * @module
 */
import { type Bound, type BoundCost, findBoundCost } from "../config/bound_cost.ts";
import { budgetCostOf, isUnit, parseCost, toNano } from "../config/cost.ts";
import type { PriceBook } from "../config/price_book.ts";
import type { Price } from "../config/prices.ts";
import type { ProviderConfig } from "../config/provider.ts";
import { scaledOf } from "../config/scaled_price.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import {
  type BillingClass,
  type ClassAmounts,
  type MediaKind,
  partsOf,
  requestPartOf,
  type TokenUsage,
} from "../exchange/billing.ts";
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
/** Advice to callers that cannot change their calls. */
const TO_ALLOW = ". The gateway's operator can allow such calls with the mode enforce";
/** Classes that no field of a request limits. */
const UNLIMITED: readonly BillingClass[] = ["citation"];
/** Classes that speech is billed by, in place of text. */
const SPEECH: readonly BillingClass[] = ["characters", "outputAudio"];

/**
 * Refuses a call if its answer can state an amount in place of tokens, and the amount has no price:
 * the call would cost nothing.
 *
 * @throws {GatewayError} `model_not_priced`
 */
function assertUnitsPriced(price: Price, parts: CallPriceParts): void {
  const units = statableUnits(parts);
  if (units.length === 0 || units.some((name) => hasRate(price, name))) return;
  throw new GatewayError("model_not_priced", { detail: `its price has no ${units.join(" or ")}` });
}

/** Returns whether a price has a rate for a class, under any conditions. */
const hasRate = (price: Price, name: BillingClass): boolean =>
  scaledOf(price).rows.some(({ rates }) => rates[name] !== undefined);

/** Facts of a request that decide its dearest price. */
type BoundFacts = Omit<Bound, "input" | "output">;

/** Lists the kinds of output. A model that makes pictures can make some without being asked. */
function possibleKinds({ outputKinds = [] }: BoundFacts, price: Price): readonly MediaKind[] {
  const isUnasked = hasRate(price, "outputImage") && !outputKinds.includes("Image");
  return isUnasked ? [...outputKinds, "Image"] : outputKinds;
}

const dearestOf = (bounds: readonly BoundCost[]): number =>
  Math.max(...bounds.map(({ amount }) => toNano(amount)));

/** Makes the refusal of a call whose cost has no bound. */
const unboundedCost = (why: string, param?: string): GatewayError =>
  new GatewayError("request_exceeds_limit", {
    detail: `the limit is strict, and ${why}`,
    ...(param !== undefined && { param }),
  });

/** Lists the classes that the answer of a call can state in place of text. */
function statableUnits({ units, call }: CallPriceParts): readonly BillingClass[] {
  if (units === undefined) return [];
  const { anyOf, fields } = units;
  return fields === undefined || hasField(call, fields) ? anyOf : [];
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
  #facts: BoundFacts | undefined;

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
    return dearestOf(this.#bounds(tokens, ({ outputKinds }) => outputKinds));
  }

  /**
   * Returns the most money that the call can cost with some tokens, also with output that it does
   * not ask for.
   *
   * @returns Units of 10^-9 of the currency
   */
  priceMost(tokens: EstimatedTokens): number {
    return dearestOf(this.#bounds(tokens, possibleKinds));
  }

  /**
   * Finds a reason why the cost of a call has no bound.
   *
   * @returns The refusal under a strict limit of money: `request_exceeds_limit` for a tool without a
   * maximum of calls, or an answer that can state any amount; `model_not_priced` if the call can
   * meet a tariff without a price. `undefined` if its cost has a bound
   */
  findUnbounded(
    tokens: EstimatedTokens,
    { statesAny }: Pick<Operation, "statesAny">,
  ): GatewayError | undefined {
    const { call, settings } = this.#parts;
    if (statesAny === true) {
      return unboundedCost(`an answer of this operation can state any amount${TO_ALLOW}`);
    }
    const { tools } = call.facts.tariff;
    if (settings.maxCalls === undefined && tools.some(({ most }) => most === undefined)) {
      return unboundedCost("a tool with a fee needs a maximum of calls", "tools");
    }
    const unit = this.#findUnboundedUnit();
    if (unit !== undefined) {
      return unboundedCost(`nothing in the request limits its ${unit}${TO_ALLOW}`);
    }
    const [missing] = this.#bounds(tokens, possibleKinds).flatMap((bound) => bound.missing ?? []);
    return missing === undefined ? undefined : new GatewayError("model_not_priced", {
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

  /** Finds a unit with a price, of which the answer can state any number. */
  #findUnboundedUnit(): BillingClass | undefined {
    const { units = {} } = this.#boundFacts;
    const statable = statableUnits(this.#parts).filter(isUnit);
    return [...statable, ...UNLIMITED].find((name) =>
      units[name] === undefined && this.#prices.some((price) => hasRate(price, name))
    );
  }

  #find(model: string): Price {
    const price = this.#parts.book.find({ provider: this.#parts.provider, model });
    if (price === undefined) throw new GatewayError("model_not_priced");
    return price;
  }

  /** @param toKinds Returns the kinds of output that can be charged by a price */
  #bounds(
    tokens: EstimatedTokens,
    toKinds: (facts: BoundFacts, price: Price) => readonly MediaKind[] | undefined,
  ): BoundCost[] {
    const facts = this.#boundFacts;
    return this.#prices.map((price) => {
      const outputKinds = toKinds(facts, price);
      const bound = { ...facts, ...tokens, ...(outputKinds && { outputKinds }) };
      return findBoundCost(price, bound, this.#parts.at);
    });
  }

  /** The facts of the request that decide its dearest price. They are read once. */
  get #boundFacts(): BoundFacts {
    return this.#facts ??= this.#readFacts();
  }

  #readFacts(): BoundFacts {
    const { call, settings } = this.#parts;
    const { tier, geo, asked, tools, outputKinds, characters, images } = call.facts.tariff;
    const body = utf8.decode(bytesOf(call.body));
    const inputKinds: MediaKind[] = images > 0 ? ["Image"] : [];
    if (AUDIO.test(body)) inputKinds.push("Audio");
    const units: Record<string, number> = {
      ...(characters > 0 && { characters }),
      ...(images > 0 && { images }),
    };
    if (this.#parts.units?.anyOf.includes("searchUnits")) {
      units.searchUnits = mostSearchUnits(bytesOf(call.body));
    }
    for (const { unit, most = settings.maxCalls ?? 0 } of tools) {
      units[unit] = (units[unit] ?? 0) + most;
    }
    return {
      hasLongWrites: LONG_CACHE.test(body),
      inputKinds,
      outputKinds,
      tiers: tier === undefined ? [undefined, ...settings.tiers ?? []] : [tier, undefined],
      geos: geo === undefined ? [settings.region] : [geo, settings.region],
      asked,
      units: units as ClassAmounts,
      inPlaceOfText: characters > 0 ? SPEECH : statableUnits(this.#parts),
    };
  }
}
