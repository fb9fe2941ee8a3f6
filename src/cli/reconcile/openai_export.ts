/**
 * OpenAI's answers of `/v1/organization/costs` and `/v1/organization/usage/…`: a bucket for each
 * day, with results by model and line item.
 *
 * @module
 */
import type { BillingClass, ClassAmounts } from "../../exchange/billing.ts";
import { isObject } from "../prices/findings.ts";
import { toPlain } from "../table.ts";
import { TOOLS } from "./gateway_usage.ts";
import {
  assertCurrency,
  type CostKind,
  countOf,
  type Entry,
  mistakeAt,
  type Place,
  type PlacedEntry,
  type Position,
  type ProviderCost,
  type ProviderExport,
  type ProviderUsage,
  readMoney,
  textsOf,
  withoutDate,
} from "./provider_export.ts";

/** Start of the year 10,000, whose text is longer. Seconds since 1970. */
const END_S = 253_402_300_800;

/** Kinds by the text of a line item, the first match first. */
const KINDS: readonly [kind: CostKind, pattern: RegExp][] = [
  ["tax", /\b(?:tax|vat|gst)\b/i],
  ["credits", /\b(?:credit|discount|refund)s?\b/i],
  ["storage", /\b(?:storage|vector stores?)\b/i],
  ["containers", /\b(?:code interpreter|containers?)\b/i],
  ["tools", /\b(?:web search|file search|tool calls?)\b/i],
];
/** A line item of a model, such as `gpt-6.2-sol-2026-10-01, cached input`. */
const OF_MODEL = /^([\w.:-]+), (.*\b(?:input|output|cached|cache|tokens?|audio|image|text)\b.*)/i;

/** Classes by the text of a line item after the model, and with audio. The first match counts. */
const CLASSES: readonly [pattern: RegExp, name: BillingClass, ofAudio: BillingClass][] = [
  [/\boutput\b/i, "output", "outputAudio"],
  [/\bcach.*\bwrit/i, "cacheWrite", "cacheWrite"],
  [/\bcache/i, "cacheRead", "cacheReadAudio"],
  [/\binput\b/i, "input", "inputAudio"],
];

/** Returns the class that a line item states. */
function classOf(text: string): BillingClass | undefined {
  const found = CLASSES.find(([pattern]) => pattern.test(text));
  return found?.[/\baudio\b/i.test(text) ? 2 : 1];
}

/** Finds the kind of a line item, and its model and class if it is of one. */
function readLine(line: string): Pick<ProviderCost, "kind" | "name" | "ofClass"> {
  const [, model, text = ""] = OF_MODEL.exec(line) ?? [];
  if (model !== undefined) {
    return { kind: "model", name: withoutDate(model), ofClass: classOf(text) };
  }
  const [kind] = KINDS.find(([, pattern]) => pattern.test(line)) ?? ["other" as const];
  return { kind, name: line };
}

/** Endpoints of usage that state tokens. */
const OF_TOKENS: readonly unknown[] = ["completions", "embeddings", "moderations"];
/** Endpoints that state one count: the count, its class, and the amount of the class in one. */
const COUNTS: ReadonlyMap<unknown, readonly [count: string, name: BillingClass, times: number]> =
  new Map([
    ["file_searches", ["num_requests", "fileSearches", 1]],
    ["code_interpreter_sessions", ["num_sessions", "codeSessions", 1]],
    ["web_searches", ["num_requests", "webSearches", 1]],
    ["images", ["images", "images", 1]],
    ["audio_speeches", ["characters", "characters", 1]],
    ["audio_transcriptions", ["seconds", "audioMs", 1000]],
  ]);
/** The endpoint of storage, which no call states. */
const OF_STORAGE = "vector_stores";

/**
 * Returns the classes of a result.
 *
 * @throws {CommandLineError} For a result of an unknown endpoint, whose counts would be lost
 */
function toClasses(result: Entry, place: Place): ClassAmounts {
  const { object } = result;
  const [, endpoint] = /^organization\.usage\.(\w+)\.result$/.exec(String(object)) ?? [];
  if (OF_TOKENS.includes(endpoint)) return toTokens(result);
  if (endpoint === OF_STORAGE) return {};
  const found = COUNTS.get(endpoint);
  if (found === undefined) {
    const name = typeof object === "string" ? toPlain(object) : "none";
    throw mistakeAt(place, `it has a result of an unknown object: ${name}`);
  }
  const [count, name, times] = found;
  return { [name]: Math.round(countOf(result[count]) * times) };
}

/** Returns the name of a result: of its model, or of tools that are counted for all models. */
function nameOf({ model }: Entry, classes: ClassAmounts): string {
  if (typeof model === "string") return withoutDate(model);
  const tools = TOOLS.find(({ counted }) => counted.some((name) => name in classes));
  return tools?.name ?? "(without a model)";
}

/** Returns the classes of audio that a result states. Other counts include them. */
function toAudio(result: Entry): ClassAmounts {
  const all = [
    ["inputAudio", result.input_audio_tokens],
    ["cacheReadAudio", result.input_cached_audio_tokens],
    ["outputAudio", result.output_audio_tokens],
  ];
  return Object.fromEntries(all.filter(([, count]) => typeof count === "number"));
}

function toTokens(result: Entry): ClassAmounts {
  const audio = toAudio(result);
  const cached = countOf(result.input_cached_tokens);
  const long = countOf(result.input_cache_write_12h_tokens);
  const short = typeof result.input_cache_write_30m_tokens === "number"
    ? result.input_cache_write_30m_tokens
    : Math.max(0, countOf(result.input_cache_write_tokens) - long);
  const fresh = typeof result.input_uncached_tokens === "number"
    ? result.input_uncached_tokens
    : countOf(result.input_tokens) - cached - short - long;
  return {
    ...audio,
    input: fresh - (audio.inputAudio ?? 0),
    cacheRead: cached - (audio.cacheReadAudio ?? 0),
    cacheWrite: short,
    cacheWriteLong: long,
    output: countOf(result.output_tokens) - (audio.outputAudio ?? 0),
  };
}

function toCost({ day, place }: Position, result: Entry, currency: string): ProviderCost {
  const { amount, line_item: line, project_id: project, api_key_id: key } = result;
  const { value = 0, currency: stated = currency } = isObject(amount) ? amount : {};
  assertCurrency(stated, currency, place);
  const money = readMoney(value, place);
  const read = readLine(typeof line === "string" ? line : "costs without a line item");
  const kind = money < 0n ? "credits" : read.kind;
  return { ...read, day, kind, owners: textsOf(key, project), list: money, amount: money };
}

/** @throws {CommandLineError} If a bucket does not say when it begins */
function readDay({ entry, place }: PlacedEntry): string {
  const { start_time: start } = entry;
  if (Number.isInteger(start) && Number(start) >= 0 && Number(start) < END_S) {
    return new Date(Number(start) * 1000).toISOString().slice(0, 10);
  }
  throw mistakeAt(`${place}.start_time`, "expected seconds since 1970, such as 1795564800");
}

/** Lists the results of a bucket. */
function listResults({ entry, place }: PlacedEntry): PlacedEntry[] {
  const { results } = entry;
  if (!Array.isArray(results)) throw mistakeAt(`${place}.results`, "expected an array");
  return results.map((result: unknown, index) => {
    const own = `${place}.results[${index}]`;
    if (!isObject(result)) throw mistakeAt(own, "expected an object");
    return { entry: result, place: own };
  });
}

/** Reads the buckets of all endpoints. */
export function readOpenaiExport(
  buckets: readonly PlacedEntry[],
  currency: string,
): ProviderExport {
  const usage: ProviderUsage[] = [];
  const costs: ProviderCost[] = [];
  for (const bucket of buckets) {
    const day = readDay(bucket);
    for (const { entry: result, place } of listResults(bucket)) {
      const { object, project_id: project, api_key_id: key } = result;
      if (object === "organization.costs.result") {
        costs.push(toCost({ day, place }, result, currency));
        continue;
      }
      const classes = toClasses(result, place);
      if (Object.keys(classes).length === 0) continue;
      const owners = textsOf(key, project);
      usage.push({ day, model: nameOf(result, classes), owners, classes, isFree: false });
    }
  }
  return { usage, costs };
}
