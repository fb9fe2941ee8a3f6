/**
 * Adds the facts of a request to the usage of its answer: those that decide its price, and that its
 * answer does not state.
 *
 * @module
 */
import type { Price } from "../config/prices.ts";
import { scaledOf } from "../config/scaled_price.ts";
import { partsOf, type TokenUsage, type UsagePart } from "../exchange/billing.ts";
import type { RequestedTariff } from "../operations/requested_tariff.ts";
import type { Accounting } from "./accounting.ts";

/** Facts of a request. */
interface RequestUsage {
  readonly tariff: RequestedTariff;
  /** Region of the provider, for answers that state none. */
  readonly region: string | undefined;
  /** Model as the caller named it; empty if none is named. */
  readonly model: string;
  /** Price of the model, for speech. */
  readonly price: Price | undefined;
  /** Returns whether a model that an answer names has a price. */
  readonly isPriced: (model: string) => boolean;
  /** True if the answer stated nothing, or not all. */
  readonly isEstimated: boolean;
  /** True if the answer stated nothing. The requested tier and region then count. */
  readonly isUnstated: boolean;
}

/** The call whose usage it is. */
interface UsingCall extends Pick<RequestUsage, "tariff" | "model"> {
  /** Name of the provider. */
  readonly provider: string;
}

/** Returns the usage with the facts of its request. */
export function addRequestFacts(
  usage: TokenUsage,
  { tariff, provider, model }: UsingCall,
  { isEstimated, isUnstated }: Pick<RequestUsage, "isEstimated" | "isUnstated">,
  { config, book }: Accounting,
): TokenUsage {
  const region = config.providers[provider]?.region;
  const price = tariff.characters > 0 ? book.find({ provider, model }) : undefined;
  const isPriced = (answering: string): boolean =>
    book.find({ provider, model: answering }) !== undefined;
  return merge(usage, { tariff, region, model, price, isPriced, isEstimated, isUnstated });
}

function merge(usage: TokenUsage, request: RequestUsage): TokenUsage {
  const { region, isUnstated } = request;
  const { asked, characters, tier, geo } = request.tariff;
  const isSpeech = characters > 0 && request.isEstimated;
  const isNamedTwice = isOfNamedModel(usage, request);
  const isRequested = isUnstated && (tier !== undefined || geo !== undefined);
  const isComplete = region === undefined && asked === undefined && !isSpeech && !isNamedTwice;
  if (isComplete && !isRequested) return usage;
  const stated = isSpeech ? partsOfSpeech(usage, request) : partsOf(usage);
  const parts = isNamedTwice ? withoutModel(stated) : stated;
  return { ...usage, parts: parts.map((part) => withTariff(part, request)) };
}

/** Ends of a model's name that only say which version answered, such as `-001`. */
const VERSION = /^[-@:](?:\d{3}|\d{4}-?\d{2}-?\d{2})$/;

/**
 * Returns whether the answer names the model that the caller named, in another way. A caller can
 * name a cheap model in a field that its provider ignores, so a different model with a price
 * counts.
 */
function isOfNamedModel({ parts }: TokenUsage, { model, isPriced }: RequestUsage): boolean {
  const answering = parts?.[0]?.model;
  if (model === "" || answering === undefined) return false;
  const isVersion = answering.startsWith(model) && VERSION.test(answering.slice(model.length));
  return answering === model || isVersion || !isPriced(answering);
}

/** Removes the model that answered, because the caller named it, from all parts that it made. */
function withoutModel(parts: readonly UsagePart[]): readonly UsagePart[] {
  const answering = parts[0]?.model;
  return parts.map((part) => part.model === answering ? { ...part, model: undefined } : part);
}

function withTariff(part: UsagePart, request: RequestUsage): UsagePart {
  const { tariff, model } = part;
  const { region, isUnstated } = request;
  const { asked } = request.tariff;
  const requested = isUnstated ? request.tariff : undefined;
  const tier = tariff.tier ?? requested?.tier;
  const geo = tariff.geo ?? requested?.geo ?? region;
  const choices = model === undefined && asked !== undefined
    ? { ...asked, ...tariff.asked }
    : tariff.asked;
  return {
    ...part,
    tariff: {
      ...tariff,
      ...(tier !== undefined && { tier }),
      ...(geo !== undefined && { geo }),
      ...(choices !== undefined && { asked: choices }),
    },
  };
}

/**
 * Returns the parts of speech whose answer states nothing: the characters of its text, unless the
 * model is priced by tokens. These are estimated.
 */
function partsOfSpeech(
  usage: TokenUsage,
  { price, tariff }: RequestUsage,
): readonly UsagePart[] {
  const { characters } = tariff;
  const isByCharacters = price === undefined ||
    scaledOf(price).rows.some(({ rates }) => rates.characters !== undefined);
  const { input = 0, output = 0 } = usage;
  return [{
    classes: isByCharacters ? { characters } : { input, outputAudio: output },
    tariff: { context: isByCharacters ? 0 : input },
  }];
}
