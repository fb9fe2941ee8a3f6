/**
 * Usage in the form of OpenAI's interfaces, which many other providers have too, with fields of
 * their own.
 *
 * @module
 */
import type { ClassAmounts, Tariff, TokenUsage } from "../exchange/billing.ts";
import { readStatedCost } from "./stated_cost.ts";
import {
  countIn,
  countOf,
  divideInput,
  divideOutput,
  fieldOf,
  type InputDetails,
  isCount,
  isText,
  nameOf,
  readServedTier,
  type TokenSums,
  toMs,
  toTariff,
  toUnits,
  toUsage,
} from "./usage_classes.ts";

/** The parts of an answer that its usage depends on, outside of its object of usage. */
export interface UsageContext {
  /** Text from which it was parsed. */
  readonly json?: string | undefined;
  /** Tier that served it. */
  readonly tier?: unknown;
  /** True if the total can contain input that is not stated, as in embeddings. */
  readonly isInputOnly?: boolean;
  /** Class of output whose kind is not stated. Default: text. */
  readonly outputKind?: "image" | "audio";
  /** Choices that decide about the price. */
  readonly asked?: Tariff["asked"];
  /** Calls of tools and other units. */
  readonly units?: ClassAmounts | undefined;
}

/** Reads the object with details of a count. Transcriptions and realtime have it in the singular. */
const detailsOf = (usage: unknown, name: string): unknown =>
  fieldOf(usage, `${name}_details`) ??
    fieldOf(usage, `${name.replace("_tokens", "_token")}_details`);

/** Name of Anthropic's count, which others also state for OpenAI's clients. */
const WRITTEN = "cache_creation_input_tokens";
/** Reads what was written to the cache, as LiteLLM and Portkey state it. */
const writtenIn = (usage: unknown): number | undefined => countIn(usage, WRITTEN);

/** Returns whether the rest of the total is the tokens of the cache, as at Portkey. */
function isCache(rest: number, usage: unknown): boolean {
  return rest === (countIn(usage, "cache_read_input_tokens") ?? 0) + (writtenIn(usage) ?? 0);
}

/** Reads the details of the input, also from fields that only one provider has. */
function readInputDetails(usage: unknown, details: unknown): InputDetails {
  const cached = countIn(details, "cached_tokens") ??
    countIn(usage, "prompt_cache_hit_tokens") ?? // DeepSeek
    countIn(usage, "cached_tokens"); // Moonshot
  if (details === undefined || details === null) return { cached, written: writtenIn(usage) };
  const splits = fieldOf(details, "cached_tokens_details");
  const times = fieldOf(details, "cache_write_tokens_details");
  const long = countIn(times, "ttl_12h_tokens");
  const short = countIn(times, "ttl_30m_tokens");
  const split = long === undefined && short === undefined ? undefined : (long ?? 0) + (short ?? 0);
  return {
    audio: countIn(details, "audio_tokens"),
    image: countIn(details, "image_tokens"),
    video: countIn(details, "video_tokens"),
    cached,
    cachedAudio: countIn(splits, "audio_tokens"),
    cachedImage: countIn(splits, "image_tokens"),
    written: countIn(details, "cache_write_tokens") ?? split ??
      countIn(details, WRITTEN) ?? // Alibaba
      writtenIn(usage),
    writtenLong: long,
  };
}

/** Tokens of output outside of the stated counts. */
interface OutsideOutput {
  readonly reasoning: number | undefined;
  readonly citation: number | undefined;
}

/** Reads output that Perplexity states next to the total. */
function readOutside(usage: unknown): OutsideOutput | undefined {
  const citation = countIn(usage, "citation_tokens");
  if (citation === undefined) return undefined;
  return { citation, reasoning: countIn(usage, "reasoning_tokens") };
}

/**
 * Returns the reasoning. Tokens in the total that are neither input nor output are output: all of
 * the reasoning at xAI, and hidden thoughts at providers that state no details.
 */
function reasoningOf(details: unknown, rest: number): number | undefined {
  const stated = countIn(details, "reasoning_tokens");
  const isHidden = rest > 0 && (details === undefined || details === null);
  return isHidden ? rest : stated;
}

/** Mistral's length of the sound in a prompt. Tokens of sound are then only in the total. */
const HEARD = "prompt_audio_seconds";

/** Units that only one provider states in its usage. */
function readUnits(usage: unknown, units: ClassAmounts | undefined): ClassAmounts | undefined {
  const searches = countIn(usage, "num_search_queries") ?? // Perplexity
    countIn(fieldOf(usage, "server_tool_use"), "web_search_requests"); // OpenRouter, LiteLLM
  const audioMs = toMs(fieldOf(usage, HEARD)); // Mistral
  if (searches === undefined && audioMs === undefined) return units;
  return {
    ...(searches && { webSearches: searches }),
    ...(audioMs && { audioMs }),
    ...units,
  };
}

/** Reads the choices that an object of usage repeats. */
function askedOf(usage: unknown, { asked }: UsageContext): Tariff["asked"] {
  const context = nameOf(fieldOf(usage, "search_context_size")); // Perplexity
  return context === undefined ? asked : { ...asked, search_context_size: context };
}

/** The counts of an object of usage, as far as they are stated. */
interface Counts {
  readonly total: number;
  readonly input: number | undefined;
  readonly output: number | undefined;
  /** Tokens of the total that are neither input nor output. */
  readonly rest: number;
  /** Tokens of the input that are billed by their time. */
  readonly heard?: number;
}

function readCounts(
  usage: unknown,
  [inputName, outputName]: readonly [string, string],
  isInputOnly: boolean,
): Counts | undefined {
  const input = countIn(usage, inputName);
  const output = countIn(usage, outputName);
  const stated = fieldOf(usage, "total_tokens");
  const isSum = input !== undefined && output !== undefined;
  if (!isCount(stated) && !isSum) return undefined;
  const sum = (input ?? 0) + (output ?? 0);
  const total = isCount(stated) ? Math.max(stated, sum) : sum;
  const rest = Math.max(0, total - (input ?? 0) - (output ?? 0));
  if (rest === 0) return { total, input, output, rest };
  if (fieldOf(usage, HEARD) !== undefined) {
    return { total, input: (input ?? 0) + rest, output, rest: 0, heard: rest };
  }
  if (isCache(rest, usage)) {
    return { total, input: (input ?? 0) + rest, output, rest: 0 };
  }
  // Some embeddings state an output of 0.
  if (isInputOnly && !output) return { total, input: total, output, rest: 0 };
  // Output that is not stated, or whose number is no count, is not known to be hidden.
  if (output === undefined) return { total, input, output: rest, rest: 0 };
  return { total, input, output: output + rest, rest };
}

/**
 * Reads an object of usage, with details next to each of the two counts.
 *
 * @param names Names of the counts of the input and the output, such as `prompt_tokens` and
 * `completion_tokens`
 * @returns Its tokens; `undefined` if none are stated, or if the numbers are not counts
 */
export function readTokens(
  usage: unknown,
  names: readonly [input: string, output: string],
  context: UsageContext = {},
): TokenUsage | undefined {
  const counts = readCounts(usage, names, context.isInputOnly === true);
  const units = readUnits(usage, context.units);
  if (counts === undefined) return units?.audioMs === undefined ? undefined : toUnits(units);
  const { total, input = 0, output = 0, rest, heard = 0 } = counts;
  const given = readInputDetails(usage, detailsOf(usage, names[0]));
  const made = detailsOf(usage, names[1]);
  const outside = readOutside(usage);
  const hidden = (outside?.citation ?? 0) + (outside?.reasoning ?? 0);
  const reasoning = outside?.reasoning ?? reasoningOf(made, rest);
  const cached = given.cached === undefined ? undefined : Math.min(given.cached, input);
  const whole = output + hidden;
  const sums: TokenSums = {
    total: total + hidden,
    ...(counts.input !== undefined && { input }),
    ...((counts.output !== undefined || hidden > 0) && { output: whole }),
    ...(cached !== undefined && { cached }),
    ...(reasoning !== undefined && { reasoning: Math.min(reasoning, whole) }),
  };
  const details = {
    reasoning,
    audio: countIn(made, "audio_tokens") ?? kindOf("audio", whole, made, context),
    image: countIn(made, "image_tokens") ?? kindOf("image", whole, made, context),
    video: countIn(made, "video_tokens"),
    citation: outside?.citation,
  };
  const tier = readServedTier(context.tier);
  const asked = askedOf(usage, context);
  const statedCost = readStatedCost(usage, context.json ?? "");
  const isStandard = tier === undefined && asked === undefined && units === undefined;
  // For speed: most answers end here, 1 µs earlier, 2.7 % of a plain call on Bun (2026-11-26).
  if (isStandard && isText(given, details) && statedCost === undefined) return sums;
  const classes = {
    ...divideInput(input - heard, given),
    ...divideOutput(whole, details),
    ...units,
  };
  const tariff = toTariff({ tier, context: input, asked });
  return toUsage(sums, [{ classes, tariff }], statedCost);
}

/** Returns the output of a kind that an answer does not divide. */
function kindOf(
  kind: UsageContext["outputKind"],
  output: number,
  details: unknown,
  { outputKind }: UsageContext,
): number | undefined {
  const isWhole = outputKind === kind && (details === undefined || details === null);
  return isWhole ? countOf(output) : undefined;
}
