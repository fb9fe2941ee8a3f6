/**
 * The fields of a request that decide its price: its tier, its region, tools with a fee for each
 * call, and amounts that its answer does not state.
 *
 * @module
 */
import type { MediaKind, UnitClass } from "../exchange/billing.ts";
import type { Operation } from "./table.ts";

type Fields = Readonly<Record<string, unknown>>;

/** A tool of the provider with a fee for each call. */
export interface PaidTool {
  readonly unit: UnitClass;
  /** The most calls that the request allows; `undefined` if it sets no maximum. */
  readonly most: number | undefined;
}

/** Facts of a request that decide its price. */
export interface RequestedTariff {
  /** The requested tier, as an answer names it; `undefined` if the provider chooses. */
  readonly tier: string | undefined;
  /** The requested region; `undefined` if none is requested. */
  readonly geo: string | undefined;
  /** Requested choices that a row of a price can name. */
  readonly asked: Readonly<Record<string, string>> | undefined;
  readonly tools: readonly PaidTool[];
  /** Kinds of output other than text that are requested. */
  readonly outputKinds: readonly MediaKind[];
  /** Characters of text to speak: an answer with sound states nothing. */
  readonly characters: number;
  /** Pictures to make: an answer that does not arrive states nothing. */
  readonly images: number;
  /**
   * Bytes of a recording, with the other fields of its request: some answers do not state its length.
   */
  readonly recordingBytes: number;
}

/** Tariff of most requests: no field decides about their price. */
export const STANDARD_TARIFF: RequestedTariff = {
  tier: undefined,
  geo: undefined,
  asked: undefined,
  tools: [],
  outputKinds: [],
  characters: 0,
  images: 0,
  recordingBytes: 0,
};

/** Fields whose values rows of prices can name. */
const ASKED = ["quality", "size", "resolution", "search_context_size"] as const;

/**
 * Kinds of tools with a fee, by the beginning of their type or by their key
 * (https://platform.openai.com/docs/pricing, https://docs.claude.com/en/docs/agents-and-tools).
 */
const PAID_TOOLS: readonly (readonly [start: string, unit: UnitClass])[] = [
  ["web_search", "webSearches"],
  ["google_search", "webSearches"],
  ["googleSearch", "webSearches"],
  ["google_maps", "webSearches"],
  ["googleMaps", "webSearches"],
  ["file_search", "fileSearches"],
  ["code_interpreter", "codeSessions"],
];

/** Form of a choice. A longer text could be a prompt, and is not recorded. */
const CHOICE = /^[\w.:-]{1,32}$/;
/** Name of a tier or region that is not of that form. It has no price. */
const UNNAMED = "(other)";

const isText = (value: unknown): value is string => typeof value === "string";
const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;

const fieldsOf = (value: unknown): Fields =>
  (typeof value === "object" && value !== null ? value : {}) as Fields;
const readName = (value: string): string => CHOICE.test(value) ? value : UNNAMED;

/** Tiers that answers name differently: the first is OpenAI's, the second is Anthropic's. */
const ANSWERED_TIERS: ReadonlyMap<string, string> = new Map([
  ["fast", "priority"],
  ["standard_only", "standard"],
]);

const GOOGLE_PREFIX = /^service_tier_/i;

/** Returns a requested tier as answers name it; `undefined` if the provider chooses. */
function nameTier(stated: unknown): string | undefined {
  // Bedrock's Converse states it in an object.
  const tier = typeof stated === "object" ? fieldsOf(stated).type : stated;
  if (!isText(tier)) return undefined;
  const name = GOOGLE_PREFIX.test(tier) ? tier.replace(GOOGLE_PREFIX, "").toLowerCase() : tier;
  return name === "auto" || name === "unspecified"
    ? undefined
    : ANSWERED_TIERS.get(name) ?? readName(name);
}

/**
 * Combines two statements of a tier. The provider reads only one of them, so two different tiers
 * have no price.
 */
const joinTiers = (one: string | undefined, other: string | undefined): string | undefined =>
  one === undefined || other === undefined || one === other ? one ?? other : UNNAMED;

/** Reads the requested tier. `speed` has precedence at Anthropic. */
function readTier({ service_tier: tier, serviceTier, speed }: Fields): string | undefined {
  return speed === "fast" ? "fast" : joinTiers(nameTier(tier), nameTier(serviceTier));
}

/** Adds the tier that a header requests. */
export function withTier(tariff: RequestedTariff, stated: string): RequestedTariff {
  return { ...tariff, tier: joinTiers(nameTier(stated), tariff.tier) };
}

function readTools(tools: unknown, mostCalls: unknown): PaidTool[] {
  if (!Array.isArray(tools)) return [];
  return tools.flatMap((each: unknown) => {
    const tool = fieldsOf(each); // a text has a key for each of its characters
    const names = isText(tool.type) ? [tool.type] : Object.keys(tool);
    const paid = PAID_TOOLS.find(([start]) => names.some((name) => name.startsWith(start)));
    if (paid === undefined) return [];
    const most = [tool.max_uses, mostCalls].find(isCount);
    return [{ unit: paid[1], most }];
  });
}

/** Reads the choices that a row of a price can name. Those of a search can be in its options. */
function readChoices(fields: Fields, search: unknown): RequestedTariff["asked"] {
  const searched = typeof search === "object" && search !== null ? search as Fields : {};
  const choices: [name: string, choice: string][] = [];
  for (const name of ASKED) {
    const value = fields[name] ?? searched[name];
    if (isText(value) && CHOICE.test(value)) choices.push([name, value]);
  }
  return choices.length === 0 ? undefined : Object.fromEntries(choices);
}

const MEDIA_KINDS: ReadonlyMap<string, MediaKind> = new Map([
  ["audio", "Audio"],
  ["image", "Image"],
  ["video", "Video"],
]);

/** Reads the requested kinds of output. Google names them in capital letters. */
function readOutputKinds(fields: Fields): readonly MediaKind[] {
  const lists = [
    fields.modalities,
    fieldsOf(fields.generationConfig).responseModalities,
    fieldsOf(fields.generation_config).response_modalities,
  ];
  const kinds = lists.flat().filter(isText).map((name) => MEDIA_KINDS.get(name.toLowerCase()));
  return [...new Set(kinds)].filter((kind) => kind !== undefined);
}

/** Returns the number of pictures that a request asks for. */
function countImages({ n }: Fields): number {
  return isCount(n) ? Math.max(1, n) : 1;
}

/** Returns the number of Unicode characters, without a list of them: a text can have millions. */
function countCharacters(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** Counts the characters to speak: at most all of a body, if a provider reads them elsewhere. */
const countSpoken = (input: unknown, byteLength: number): number =>
  isText(input) ? countCharacters(input) : byteLength;

/** Fields that can decide the price. Most requests have none of them. */
const DECIDING = [
  ...["service_tier", "serviceTier", "speed", "tools", "web_search_options", "quality", "size"],
  ...["inference_geo", "modalities", "generationConfig", "generation_config"],
];

/** Reads the fields that decide the price. @param byteLength Length of the body */
export function readRequestedTariff(
  fields: Fields,
  { group, units }: Partial<Pick<Operation, "group" | "units">> = {},
  byteLength: number = 0,
): RequestedTariff {
  const { web_search_options: search, inference_geo: geo, input } = fields;
  const isImage = group === "images";
  const isRecording = group === "audio" && units !== undefined;
  const isSpeech = group === "audio" && !isRecording;
  const isMedia = isImage || isSpeech || isRecording;
  if (!isMedia && DECIDING.every((name) => fields[name] === undefined)) {
    return STANDARD_TARIFF;
  }
  const tools = readTools(fields.tools, fields.max_tool_calls);
  if (search !== undefined) tools.push({ unit: "webSearches", most: undefined });
  return {
    tier: readTier(fields),
    geo: isText(geo) ? readName(geo) : undefined,
    asked: readChoices(fields, search),
    tools,
    outputKinds: isImage ? ["Image"] : isSpeech ? ["Audio"] : readOutputKinds(fields),
    characters: isSpeech ? countSpoken(input, byteLength) : 0,
    images: isImage ? countImages(fields) : 0,
    recordingBytes: isRecording ? byteLength : 0,
  };
}
