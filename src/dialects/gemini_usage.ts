/**
 * Usage as Gemini's interfaces state it (https://ai.google.dev/api/generate-content). In a stream
 * each event states running totals.
 *
 * @module
 */
import type { TokenUsage } from "../exchange/billing.ts";
import {
  countIn,
  divideInput,
  divideOutput,
  fieldOf,
  listIn,
  nameOf,
  readServedTier,
  toTariff,
  toUsage,
} from "./usage_classes.ts";

/** Maximum number of different searches that are counted in an answer. */
const MAX_SEARCHES = 1000;
/** The first generation with a fee for each search; earlier ones have one for each request. */
const SEARCH_GENERATION = 3;
const GENERATION = /gemini-(\d{1,3})/;
/** Lists of searches. */
const SEARCHES = ["webSearchQueries", "imageSearchQueries"] as const;

/** Reads the generation in the name of a model. */
function generationOf(model: unknown): number | undefined {
  const [, generation] = GENERATION.exec(String(model)) ?? [];
  return generation === undefined ? undefined : Number(generation);
}

/** Reads a count of a kind of content in a list of details. */
function countOfKind(usage: unknown, lists: readonly string[], kind: string): number | undefined {
  let sum: number | undefined;
  for (const list of lists) {
    for (const each of listIn(usage, list)) {
      if (fieldOf(each, "modality") !== kind) continue;
      sum = (sum ?? 0) + (countIn(each, "tokenCount") ?? countIn(each, "tokens") ?? 0);
    }
  }
  return sum;
}

/** Reads the tier: Vertex names it by the kind of traffic. */
function readTier(usage: unknown): string | undefined {
  const name = nameOf(fieldOf(usage, "trafficType")) ?? nameOf(fieldOf(usage, "serviceTier"));
  const tier = name?.toLowerCase().replace(/^(?:service_tier_|on_demand_)/, "");
  return tier === "unspecified" || tier === "traffic_type_unspecified"
    ? undefined
    : readServedTier(tier);
}

/** Names of the counts, and of the lists that divide them. */
interface Names {
  readonly prompt: string;
  readonly cached: string;
  readonly output: readonly string[];
  readonly thoughts: string;
  readonly tools: string;
  readonly total: string;
  readonly lists: {
    readonly input: readonly string[];
    readonly cached: readonly string[];
    readonly output: readonly string[];
  };
}

const METADATA: Names = {
  prompt: "promptTokenCount",
  cached: "cachedContentTokenCount",
  output: ["candidatesTokenCount", "responseTokenCount"],
  thoughts: "thoughtsTokenCount",
  tools: "toolUsePromptTokenCount",
  total: "totalTokenCount",
  lists: {
    input: ["promptTokensDetails", "toolUsePromptTokensDetails"],
    cached: ["cacheTokensDetails"],
    output: ["candidatesTokensDetails", "responseTokensDetails"],
  },
};
const INTERACTION: Names = {
  prompt: "total_input_tokens",
  cached: "total_cached_tokens",
  output: ["total_output_tokens"],
  thoughts: "total_thought_tokens",
  tools: "total_tool_use_tokens",
  total: "total_tokens",
  lists: {
    input: ["input_tokens_by_modality", "tool_use_tokens_by_modality"],
    cached: ["cached_tokens_by_modality"],
    output: ["output_tokens_by_modality"],
  },
};

function readNamed(usage: unknown, names: Names, webSearches: number): TokenUsage | undefined {
  const prompt = countIn(usage, names.prompt);
  if (prompt === undefined) return undefined;
  const { lists } = names;
  const tools = countIn(usage, names.tools) ?? 0;
  const shown = names.output.map((name) => countIn(usage, name)).find((count) => count) ?? 0;
  const thoughts = countIn(usage, names.thoughts);
  const sum = prompt + tools + shown + (thoughts ?? 0);
  const rest = Math.max(0, (countIn(usage, names.total) ?? 0) - sum);
  const reasoning = thoughts === undefined && rest === 0 ? undefined : (thoughts ?? 0) + rest;
  const input = prompt + tools; // tools of the provider read their results as input
  const output = shown + (reasoning ?? 0);
  const cached = countIn(usage, names.cached);
  const ofKind = (list: readonly string[], kind: string) => countOfKind(usage, list, kind);
  const part = {
    classes: {
      ...divideInput(input, {
        audio: ofKind(lists.input, "AUDIO"),
        image: ofKind(lists.input, "IMAGE"),
        video: ofKind(lists.input, "VIDEO"),
        cached,
        cachedAudio: ofKind(lists.cached, "AUDIO"),
        cachedImage: ofKind(lists.cached, "IMAGE"),
      }),
      ...divideOutput(output, {
        reasoning,
        audio: ofKind(lists.output, "AUDIO"),
        image: ofKind(lists.output, "IMAGE"),
        video: ofKind(lists.output, "VIDEO"),
      }),
      ...(webSearches > 0 && { webSearches }),
    },
    tariff: toTariff({ tier: readTier(usage), context: prompt }),
  };
  const sums = {
    total: input + output,
    input,
    output,
    ...(cached !== undefined && { cached: Math.min(cached, input) }),
    ...(reasoning !== undefined && { reasoning }),
  };
  return toUsage(sums, [part]);
}

/** Reads the usage of an interaction, which Gemini's newer interface states. */
export function readInteraction(usage: unknown): TokenUsage | undefined {
  let searches = 0;
  for (const each of listIn(usage, "grounding_tool_count")) {
    const isBilled = /search|maps/.test(String(fieldOf(each, "type")));
    if (isBilled) searches += countIn(each, "count") ?? 0;
  }
  return readNamed(usage, INTERACTION, searches);
}

/** Collects the usage of one answer of Gemini from its events. */
export class GeminiUsage {
  #usage: unknown;
  #generation: number;
  readonly #searches = new Set<string>();
  /** True if an answer uses Google Maps. No answer states the number of its searches there. */
  #usesMaps = false;

  /** @param model Model that the caller named, for answers that name none */
  constructor(model: string) {
    this.#generation = generationOf(model) ?? 0;
  }

  /** Reads an event, or a plain answer. */
  add(data: unknown): void {
    const usage = fieldOf(data, "usageMetadata");
    if (typeof usage === "object" && usage !== null) this.#usage = usage;
    this.#generation = generationOf(fieldOf(data, "modelVersion")) ?? this.#generation;
    for (const candidate of listIn(data, "candidates")) {
      const grounding = fieldOf(candidate, "groundingMetadata");
      for (const list of SEARCHES) {
        for (const query of listIn(grounding, list)) this.#addSearch(list, query);
      }
      const isOfMaps = (chunk: unknown): boolean => fieldOf(chunk, "maps") !== undefined;
      this.#usesMaps ||= listIn(grounding, "groundingChunks").some(isOfMaps);
    }
  }

  #addSearch(list: string, query: unknown): void {
    const isCounted = typeof query === "string" && query !== "" &&
      this.#searches.size < MAX_SEARCHES;
    if (isCounted) this.#searches.add(`${list} ${query}`);
  }

  /** The usage so far. */
  get usage(): TokenUsage | undefined {
    if (this.#usage === undefined) return undefined;
    const { size } = this.#searches;
    const searches = this.#generation >= SEARCH_GENERATION ? size : Math.min(size, 1);
    return readNamed(this.#usage, METADATA, searches + Number(this.#usesMaps));
  }
}
