/**
 * The fields of a request that decide its price: its tier, its region, tools with a fee for each
 * call, and amounts that its answer does not state.
 *
 * @module
 */
import type { UnitClass } from "../exchange/billing.ts";

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
  /** True if sound is requested as output. */
  readonly hasAudioOutput: boolean;
  /** Characters of text to speak: an answer with sound states nothing. */
  readonly characters: number;
}

/** Tariff of most requests: no field decides about their price. */
export const STANDARD_TARIFF: RequestedTariff = {
  tier: undefined,
  geo: undefined,
  asked: undefined,
  tools: [],
  hasAudioOutput: false,
  characters: 0,
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

const readName = (value: string): string => CHOICE.test(value) ? value : UNNAMED;

/** Tiers that answers name differently: the first is OpenAI's, the second is Anthropic's. */
const ANSWERED_TIERS: ReadonlyMap<string, string> = new Map([
  ["fast", "priority"],
  ["standard_only", "standard"],
]);

/** Returns the requested tier as answers name it. `speed` has precedence at Anthropic. */
function readTier({ service_tier: tier, speed }: Fields): string | undefined {
  if (speed === "fast") return "fast";
  if (!isText(tier) || tier === "auto") return undefined;
  return ANSWERED_TIERS.get(tier) ?? readName(tier);
}

function readTools(tools: unknown, mostCalls: unknown): PaidTool[] {
  if (!Array.isArray(tools)) return [];
  return tools.flatMap((tool: Fields | null) => {
    const names = isText(tool?.type) ? [tool.type] : Object.keys(tool ?? {});
    const paid = PAID_TOOLS.find(([start]) => names.some((name) => name.startsWith(start)));
    if (paid === undefined) return [];
    const most = [tool?.max_uses, mostCalls].find(isCount);
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

/** Reads the fields that decide the price. @param isSpeech True for text to speak */
export function readRequestedTariff(fields: Fields, isSpeech = false): RequestedTariff {
  const { web_search_options: search, inference_geo: geo, modalities, input, quality } = fields;
  const hasNoTier = fields.service_tier === undefined && fields.speed === undefined;
  const hasNoTool = fields.tools === undefined && search === undefined;
  const hasNoChoice = quality === undefined && fields.size === undefined;
  const isPlain = geo === undefined && modalities === undefined && !isSpeech;
  if (hasNoTier && hasNoTool && hasNoChoice && isPlain) return STANDARD_TARIFF;
  const tools = readTools(fields.tools, fields.max_tool_calls);
  if (search !== undefined) tools.push({ unit: "webSearches", most: undefined });
  return {
    tier: readTier(fields),
    geo: isText(geo) ? readName(geo) : undefined,
    asked: readChoices(fields, search),
    tools,
    hasAudioOutput: Array.isArray(modalities) && modalities.includes("audio"),
    characters: isSpeech && isText(input) ? Array.from(input).length : 0,
  };
}
