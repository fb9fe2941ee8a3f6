/**
 * Billing classes: how the usage of a call is divided for its price.
 *
 * @module
 */

/** Classes of tokens in the input of a model. Together they are its whole input. */
export const INPUT_CLASSES: readonly InputClass[] = [
  /** Text that was neither read from a cache nor written to one. */
  "input",
  "inputAudio",
  "inputImage",
  "inputVideo",
  /** Text, audio and images that were read from the provider's cache. */
  "cacheRead",
  "cacheReadAudio",
  "cacheReadImage",
  /** Tokens written to the cache for the provider's shorter time, or for an unstated time. */
  "cacheWrite",
  /** Tokens written to the cache for its longer time: 1 h at Anthropic, 12 h at OpenAI. */
  "cacheWriteLong",
];

/** Classes of tokens in the output of a model. Together they are its whole output. */
export const OUTPUT_CLASSES: readonly OutputClass[] = [
  "output",
  /** Output that the caller does not see. */
  "reasoning",
  "outputAudio",
  "outputImage",
  "outputVideo",
  "citation",
];

/** Classes that are not tokens: calls of tools, pages, characters of text, and milliseconds. */
export const UNIT_CLASSES: readonly UnitClass[] = [
  "webSearches",
  "fileSearches",
  "codeSessions",
  "requests",
  "searchUnits",
  "pages",
  "images",
  "characters",
  "audioMs",
  "videoMs",
  "sessionMs",
];

/** A kind of content other than text, as names of classes end. */
export type MediaKind = "Audio" | "Image" | "Video";
/** A class of tokens in the input. */
export type InputClass =
  | "input"
  | "inputAudio"
  | "inputImage"
  | "inputVideo"
  | "cacheRead"
  | "cacheReadAudio"
  | "cacheReadImage"
  | "cacheWrite"
  | "cacheWriteLong";
/** A class of tokens in the output. */
export type OutputClass =
  | "output"
  | "reasoning"
  | "outputAudio"
  | "outputImage"
  | "outputVideo"
  | "citation";
/** A class that is not tokens. */
export type UnitClass =
  | "webSearches"
  | "fileSearches"
  | "codeSessions"
  | "requests"
  | "searchUnits"
  | "pages"
  | "images"
  | "characters"
  | "audioMs"
  | "videoMs"
  | "sessionMs";
/** Name of a billing class. */
export type BillingClass = InputClass | OutputClass | UnitClass;
/** All classes. Each token is in exactly one of them. */
export const BILLING_CLASSES: readonly BillingClass[] = [
  ...INPUT_CLASSES,
  ...OUTPUT_CLASSES,
  ...UNIT_CLASSES,
];

/** Amounts by class: whole numbers. A class without an entry has none. */
export type ClassAmounts = Readonly<Partial<Record<BillingClass, number>>>;

/** The facts of an answer that choose a price among the prices of a model. */
export interface Tariff {
  /** The tier that served the call, as its provider names it; `undefined` for the standard one. */
  readonly tier?: string | undefined;
  /** The region that served the call; `undefined` where none is stated. */
  readonly geo?: string | undefined;
  /** Tokens of input of one model run, caches included: thresholds are compared with them. */
  readonly context: number;
  /** Choices of the caller that have a price, such as `quality` and `size` of an image. */
  readonly asked?: Readonly<Record<string, string>> | undefined;
}

/** The usage of one model in a call: most calls have one part. */
export interface UsagePart {
  /** The model, if it is not the model that the caller named. */
  readonly model?: string | undefined;
  /** Its amounts by class. */
  readonly classes: ClassAmounts;
  /** Facts that choose its price. */
  readonly tariff: Tariff;
}

/** Usage of one answer, as its provider stated it or as the gateway estimated it. */
export interface TokenUsage {
  /** The number of tokens that counts against limits and budgets. */
  readonly total: number;
  /** Tokens of the input, caches included. */
  readonly input?: number;
  /** Tokens of the output, reasoning included. */
  readonly output?: number;
  /** Tokens of the input that were read from the provider's cache. */
  readonly cached?: number;
  /** Tokens of the output that the caller does not see. */
  readonly reasoning?: number;
  /** Its billing classes, one part per model and model run; see {@link partsOf}. */
  readonly parts?: readonly UsagePart[];
  /** The cost that the provider states, exactly as it states it: a decimal in its currency. */
  readonly statedCost?: string;
}

/**
 * Returns the parts of some usage. If only sums are known, text is assumed, and tokens that are
 * neither input nor output are output: that is where providers leave them out.
 */
export function partsOf(usage: TokenUsage): readonly UsagePart[] {
  if (usage.parts !== undefined) return usage.parts;
  const { total, input = 0, cached = 0, reasoning = 0 } = usage;
  const output = Math.max(usage.output ?? 0, total - input);
  const cacheRead = Math.min(cached, input);
  const hidden = Math.min(reasoning, output);
  const classes = {
    input: input - cacheRead,
    cacheRead,
    output: output - hidden,
    reasoning: hidden,
  };
  return [{ classes, tariff: { context: input } }];
}

/**
 * Returns the index of the part that has the request of its call: the first part of the model that
 * the caller named.
 */
export function requestPartOf(parts: readonly UsagePart[]): number {
  return Math.max(0, parts.findIndex(({ model }) => model === undefined));
}

/** Adds the amounts of each class. */
export function addAmounts(one: ClassAmounts, other: ClassAmounts): ClassAmounts {
  const sums: Partial<Record<BillingClass, number>> = { ...one };
  for (const [name, amount] of Object.entries(other) as [BillingClass, number][]) {
    sums[name] = (sums[name] ?? 0) + amount;
  }
  return sums;
}

/** Returns the sum of some classes. */
export function sumOf(amounts: ClassAmounts, classes: readonly BillingClass[]): number {
  let sum = 0;
  for (const name of classes) sum += amounts[name] ?? 0;
  return sum;
}

/**
 * Limit of plausible token counts. A provider that states more is mistaken: no answer of a model
 * has so many.
 */
const MAX_TOKENS = 1e12;

const isPlausibleAmount = (amount: number): boolean => amount >= 0 && amount <= MAX_TOKENS;

/** Returns whether all numbers of a usage are plausible. */
export function isPlausible(usage: TokenUsage): boolean {
  const { total, input = 0, output = 0, cached = 0, reasoning = 0, parts } = usage;
  if (Math.max(total, input, output, cached, reasoning) > MAX_TOKENS) return false;
  return parts === undefined ||
    parts.every(({ classes }) => Object.values(classes).every(isPlausibleAmount));
}
