/**
 * Adds the facts of a request to the usage of its answer: those that decide its price, and that its
 * answer does not state.
 *
 * @module
 */
import { dearestChoices } from "../config/bound_cost.ts";
import type { Price } from "../config/prices.ts";
import { scaledOf } from "../config/scaled_price.ts";
import {
  type BillingClass,
  partsOf,
  type TokenUsage,
  type UsagePart,
} from "../exchange/billing.ts";
import type { RequestedTariff } from "../operations/requested_tariff.ts";
import type { Accounting } from "./accounting.ts";

/** Facts of a request. */
interface RequestUsage {
  readonly tariff: RequestedTariff;
  /** Region of the provider, for answers that state none. */
  readonly region: string | undefined;
  /** Model as the caller named it; empty if none is named. */
  readonly model: string;
  /** Price of the model, for sound and pictures. */
  readonly price: Price | undefined;
  /** Returns whether a model that an answer names has a price. */
  readonly isPriced: (model: string) => boolean;
  /** True if the answer stated nothing, or not all. */
  readonly isEstimated: boolean;
  /** True if the answer stated nothing. The requested tier and region then count. */
  readonly isUnstated: boolean;
  /** True for a refusal: it has an input only. */
  readonly isRefused: boolean;
  /** The model that answered, if the request names it in addition to the first. */
  readonly otherModel: string | undefined;
  /** Tier that the headers of the answer stated. */
  readonly servedTier?: string | undefined;
  /** Time for dated prices of an estimate, milliseconds since 1970. */
  readonly at?: number;
}

/** Facts of an answer. */
interface AnswerFacts
  extends Pick<RequestUsage, "isEstimated" | "isUnstated" | "isRefused" | "servedTier" | "at"> {
  /** The model that the answer names. */
  readonly answeringModel?: string | undefined;
}

/** The call whose usage it is. */
interface UsingCall extends Pick<RequestUsage, "tariff" | "model"> {
  /** Name of the provider. */
  readonly provider: string;
  /** Models that its request names in addition to `model`. */
  readonly otherModels?: readonly string[] | undefined;
}

/** Returns the usage with the facts of its request. */
export function addRequestFacts(
  usage: TokenUsage,
  { tariff, provider, model, otherModels = [] }: UsingCall,
  { answeringModel: answering, ...facts }: AnswerFacts,
  { config, book }: Accounting,
): TokenUsage {
  const region = config.providers[provider]?.region;
  const { characters, images, recordingBytes } = tariff;
  const isOfMedia = characters > 0 || images > 0 || recordingBytes > 0;
  const price = isOfMedia ? book.find({ provider, model }) : undefined;
  const isPriced = (answering: string): boolean =>
    book.find({ provider, model: answering }) !== undefined;
  const otherModel =
    answering === undefined || usage.parts?.some((part) => part.model === answering)
      ? undefined
      : findOtherModel(answering, model, otherModels);
  return merge(usage, { tariff, region, model, price, isPriced, otherModel, ...facts });
}

function merge(usage: TokenUsage, request: RequestUsage): TokenUsage {
  const { region, isUnstated, otherModel, servedTier } = request;
  const { asked, tier, geo } = request.tariff;
  const media = mediaOf(request);
  const isNamedTwice = isOfNamedModel(usage, request);
  const isRequested = isUnstated && (tier !== undefined || geo !== undefined);
  const isOwn = otherModel === undefined;
  const isComplete = isOwn && region === undefined && asked === undefined &&
    servedTier === undefined && media === undefined && !isNamedTwice;
  if (isComplete && !isRequested) return usage;
  const stated = media === undefined ? partsOf(usage) : partsOfMedia(usage, media, request);
  const parts = isNamedTwice ? withoutModel(stated) : stated;
  return { ...usage, parts: parts.map((part) => withTariff(part, request)) };
}

/** Ends of a model's name that only say which version answered, such as `-001`. */
const VERSION = /^[-@:](?:\d{3}|\d{4}-?\d{2}-?\d{2})$/;

/** Returns whether an answer names a model, or one of its versions. */
const isSameModel = (answering: string, model: string): boolean =>
  answering === model ||
  (answering.startsWith(model) && VERSION.test(answering.slice(model.length)));

/**
 * Finds the model that answered among the other models of a request. One of them can be a version of
 * the first, at another price.
 *
 * @returns Its name in the request; `undefined` for the first
 */
function findOtherModel(
  answering: string,
  model: string,
  others: readonly string[],
): string | undefined {
  if (answering !== model && others.includes(answering)) return answering;
  if (isSameModel(answering, model)) return undefined;
  return others.find((other) => isSameModel(answering, other));
}

/**
 * Returns whether the answer names the model that the caller named, in another way. A caller can
 * name a cheap model in a field that its provider ignores, so a different model with a price
 * counts.
 */
function isOfNamedModel({ parts }: TokenUsage, { model, isPriced }: RequestUsage): boolean {
  const answering = parts?.[0]?.model;
  if (model === "" || answering === undefined) return false;
  return isSameModel(answering, model) || !isPriced(answering);
}

/** Removes the model that answered, because the caller named it, from all parts that it made. */
function withoutModel(parts: readonly UsagePart[]): readonly UsagePart[] {
  const answering = parts[0]?.model;
  return parts.map((part) => part.model === answering ? { ...part, model: undefined } : part);
}

function withTariff(part: UsagePart, request: RequestUsage): UsagePart {
  const { tariff, model } = part;
  const { region, isUnstated, servedTier } = request;
  const { asked } = request.tariff;
  const requested = isUnstated ? request.tariff : undefined;
  const tier = tariff.tier ?? servedTier ?? requested?.tier;
  const geo = tariff.geo ?? requested?.geo ?? region;
  const choices = model === undefined && asked !== undefined
    ? { ...asked, ...tariff.asked }
    : tariff.asked;
  const answering = model ?? request.otherModel;
  return {
    ...part,
    ...(answering !== undefined && { model: answering }),
    tariff: {
      ...tariff,
      ...(tier !== undefined && { tier }),
      ...(geo !== undefined && { geo }),
      ...(choices !== undefined && { asked: choices }),
    },
  };
}

/** Bytes of a millisecond of a recording, as of speech in a compressed file (32 kbit/s). */
const BYTES_PER_MS = 4;
/** The shortest recording that Groq bills (https://console.groq.com/docs/speech-to-text). */
const MIN_RECORDING_MS = 10_000;

/** An amount that the answer does not state, and its kind. */
interface Media {
  readonly unit: "characters" | "images" | "audioMs";
  readonly amount: number;
  /** The classes of input and output, if the model is priced by tokens. */
  readonly tokenClasses: readonly [input: BillingClass, output: BillingClass];
}

/** Returns the sound or the pictures of a call whose answer states nothing. These are estimated. */
function mediaOf({ tariff, isEstimated, isUnstated, isRefused }: RequestUsage): Media | undefined {
  const { characters, images, recordingBytes } = tariff;
  if (characters > 0 && isEstimated) {
    return { unit: "characters", amount: characters, tokenClasses: ["input", "outputAudio"] };
  }
  if (images > 0 && isUnstated && !isRefused) {
    return { unit: "images", amount: images, tokenClasses: ["input", "outputImage"] };
  }
  if (recordingBytes > 0 && isUnstated) {
    const amount = Math.max(MIN_RECORDING_MS, Math.ceil(recordingBytes / BYTES_PER_MS));
    return { unit: "audioMs", amount, tokenClasses: ["inputAudio", "output"] };
  }
  return undefined;
}

/** Returns the parts of sound or pictures: by their unit, unless the model is priced by tokens. */
function partsOfMedia(
  { input = 0, output = 0 }: TokenUsage,
  { unit, amount, tokenClasses }: Media,
  { price, tariff: requested, at = 0 }: RequestUsage,
): readonly UsagePart[] {
  const isByUnits = price === undefined ||
    scaledOf(price).rows.some(({ rates }) => rates[unit] !== undefined);
  const [inputClass, outputClass] = tokenClasses;
  const classes = isByUnits ? { [unit]: amount } : { [inputClass]: input, [outputClass]: output };
  const tariff = { context: isByUnits ? 0 : input, asked: requested.asked };
  const asked = price && dearestChoices(price, { classes, tariff }, at);
  return [{ classes, tariff: { ...tariff, asked } }];
}
