/**
 * Usage as Anthropic's messages state it (https://docs.claude.com/en/api/messages). The counts of
 * the cache are not contained in `input_tokens`.
 *
 * @module
 */
import type { TokenUsage, UsagePart } from "../exchange/billing.ts";
import {
  countIn,
  divideInput,
  divideOutput,
  fieldOf,
  isCount,
  nameOf,
  readServedGeo,
  readServedTier,
  toTariff,
  toUsage,
} from "./usage_classes.ts";

/** Counts that are read, each from its own place. */
export interface MessageCounts {
  input?: number | undefined;
  output?: number | undefined;
  cached?: number | undefined;
  written?: number | undefined;
  /** Tokens written for 5 minutes and for an hour. They can leave a rest. */
  shortWritten?: number | undefined;
  longWritten?: number | undefined;
  thinking?: number | undefined;
  searches?: number | undefined;
  /** Names of the tier and the region, as they are stated. */
  tier?: string | undefined;
  speed?: string | undefined;
  geo?: string | undefined;
  /** True if a credit for a failed model pays the writing to the cache. */
  isCredited?: boolean | undefined;
  iterations?: readonly unknown[] | undefined;
}

/** Reads the counts of an object of usage, or of one of its iterations. */
function readCounts(usage: unknown): MessageCounts {
  const split = fieldOf(usage, "cache_creation");
  const credit = fieldOf(fieldOf(usage, "fallback_credit"), "status");
  const iterations = fieldOf(usage, "iterations");
  return {
    input: countIn(usage, "input_tokens"),
    output: countIn(usage, "output_tokens"),
    cached: countIn(usage, "cache_read_input_tokens"),
    written: countIn(usage, "cache_creation_input_tokens"),
    shortWritten: countIn(split, "ephemeral_5m_input_tokens"),
    longWritten: countIn(split, "ephemeral_1h_input_tokens"),
    thinking: countIn(fieldOf(usage, "output_tokens_details"), "thinking_tokens"),
    searches: countIn(fieldOf(usage, "server_tool_use"), "web_search_requests"),
    tier: nameOf(fieldOf(usage, "service_tier")),
    speed: nameOf(fieldOf(usage, "speed")),
    geo: nameOf(fieldOf(usage, "inference_geo")),
    isCredited: credit === "redeemed" ? true : undefined,
    iterations: Array.isArray(iterations) ? iterations : undefined,
  };
}

/** Tokens written to the cache. */
const writtenOf = ({ written, shortWritten = 0, longWritten = 0 }: MessageCounts): number =>
  written ?? shortWritten + longWritten;

/** Fields of the input, which some providers set to 0 in the last event. */
const INPUT_FIELDS: ReadonlySet<string> = new Set(
  ["input", "cached", "written", "shortWritten", "longWritten"],
);

/**
 * Adds the fields that an event states to those of earlier events. Providers state running totals,
 * and state some fields only once. No message has an input without tokens, so such an input does
 * not replace an earlier one.
 */
export function mergeCounts(counts: MessageCounts, usage: unknown): MessageCounts {
  const stated = readCounts(usage);
  const { input = 0, cached = 0 } = stated;
  const hasInput = input + cached + writtenOf(stated) > 0;
  const merged: Record<string, unknown> = { ...counts };
  for (const [name, value] of Object.entries(stated)) {
    const isKept = !hasInput && INPUT_FIELDS.has(name) && merged[name] !== undefined;
    if (value !== undefined && !isKept) merged[name] = value;
  }
  return merged;
}

/** Makes the part of one model run. */
function toPart(counts: MessageCounts, tariff: Pick<UsagePart["tariff"], "tier" | "geo">) {
  const { input = 0, output = 0, cached = 0, thinking, longWritten, isCredited } = counts;
  const written = writtenOf(counts);
  const whole = input + cached + written;
  const details = isCredited === true
    ? { cached: cached + written }
    : { cached, written, writtenLong: longWritten };
  return {
    classes: {
      ...divideInput(whole, details),
      ...divideOutput(output, { reasoning: thinking }),
    },
    tariff: toTariff({ ...tariff, context: whole }),
  };
}

const isRun = (counts: MessageCounts): boolean => isCount(counts.input) && isCount(counts.output);
/** Fields of a run that add up to those of the answer. */
const SUMMED = ["input", "output", "cached", "written"] as const;

/** Returns whether some runs add up to the counts of the answer. */
function areAll(runs: readonly MessageCounts[], counts: MessageCounts): boolean {
  const isEqual = (name: typeof SUMMED[number]): boolean =>
    runs.reduce((sum, run) => sum + (run[name] ?? 0), 0) === (counts[name] ?? 0);
  return runs.length > 0 && SUMMED.every(isEqual);
}

/** A model run in the list of iterations. */
interface Run extends MessageCounts {
  readonly type: unknown;
  readonly model: string | undefined;
}

function readRuns(iterations: readonly unknown[]): readonly Run[] {
  return iterations.map((each) => ({
    ...readCounts(each),
    type: fieldOf(each, "type"),
    model: nameOf(fieldOf(each, "model")),
  })).filter(isRun);
}

/**
 * Divides counts that only the whole answer states among its runs: thinking, and the longer time of
 * the cache.
 */
function divideAmong(runs: readonly Run[], counts: MessageCounts): readonly Run[] {
  const left = { thinking: counts.thinking ?? 0, longWritten: counts.longWritten ?? 0 };
  const take = (name: keyof typeof left, own: number | undefined, most: number): number => {
    const taken = own ?? Math.min(left[name], most);
    left[name] -= Math.min(taken, left[name]);
    return taken;
  };
  return runs.map((run) => ({
    ...run,
    thinking: take("thinking", run.thinking, run.output ?? 0),
    longWritten: take("longWritten", run.longWritten, writtenOf(run)),
  }));
}

/**
 * Returns the runs that the counts of the answer contain, and the runs next to them: compaction, and
 * other models that advise.
 */
function sortRuns(counts: MessageCounts): { inside: readonly Run[]; beside: readonly Run[] } {
  const runs = readRuns(counts.iterations ?? []);
  const ofType = (...types: readonly string[]) =>
    runs.filter(({ type }) => types.includes(String(type)));
  const beside = ofType("compaction", "advisor_message");
  const inside = ofType("message", "fallback_message");
  if (areAll(inside, counts)) return { inside: divideAmong(inside, counts), beside };
  const messages = ofType("message");
  if (!areAll(messages, counts)) return { inside: [], beside };
  return {
    inside: divideAmong(messages, counts),
    beside: [...ofType("fallback_message"), ...beside],
  };
}

/** The fields of a usage that add up. */
function sumUp(all: readonly MessageCounts[]) {
  let input = 0;
  let output = 0;
  let cached = 0;
  let thinking = 0;
  for (const counts of all) {
    const { isCredited } = counts;
    const read = (counts.cached ?? 0) + (isCredited === true ? writtenOf(counts) : 0);
    input += (counts.input ?? 0) + (counts.cached ?? 0) + writtenOf(counts);
    output += counts.output ?? 0;
    cached += read;
    thinking += counts.thinking ?? 0;
  }
  return { input, output, cached, thinking };
}

/** Makes the usage of a message; `undefined` if its tokens are not stated yet. */
export function sumMessageUsage(counts: MessageCounts): TokenUsage | undefined {
  if (!isRun(counts)) return undefined;
  const { inside, beside } = counts.iterations === undefined
    ? { inside: [], beside: [] }
    : sortRuns(counts);
  const { input, output, cached, thinking } = sumUp([counts, ...beside]);
  const tariff = {
    tier: counts.speed === "fast" ? "fast" : readServedTier(counts.tier),
    geo: readServedGeo(counts.geo),
  };
  const own: readonly UsagePart[] = inside.length > 0
    ? inside.map((run) => named(run, toPart({ ...run, isCredited: isPaid(run, counts) }, tariff)))
    : [toPart(counts, tariff)];
  const parts = [...own, ...beside.map((run) => named(run, toPart(run, tariff)))];
  const sums = {
    total: input + output,
    input,
    output,
    ...((counts.cached !== undefined || cached > 0) && { cached }),
    ...((counts.thinking !== undefined || thinking > 0) && { reasoning: thinking }),
  };
  return toUsage(sums, withSearches(parts, counts.searches));
}

/** Returns whether a credit pays what a run writes. */
const isPaid = (run: Run, counts: MessageCounts): boolean | undefined =>
  run.isCredited ?? counts.isCredited;

/** Names the model of a part, unless it is the model that the caller named. */
function named({ type, model }: Run, part: UsagePart): UsagePart {
  return type === "message" || type === "compaction" || model === undefined
    ? part
    : { model, ...part };
}

/** Adds the searches to the first part: they are stated for the whole answer. */
function withSearches(parts: readonly UsagePart[], searches = 0): readonly UsagePart[] {
  const [first, ...others] = parts;
  if (first === undefined || searches === 0) return parts;
  return [{ ...first, classes: { ...first.classes, webSearches: searches } }, ...others];
}

/** Reads the usage of a plain message. */
export function readMessageUsage(message: unknown): TokenUsage | undefined {
  return sumMessageUsage(readCounts(fieldOf(message, "usage")));
}

/** Returns whether an object of usage has this form. */
export function isMessageUsage(usage: unknown): boolean {
  return fieldOf(usage, "total_tokens") === undefined &&
    fieldOf(usage, "input_tokens_details") === undefined &&
    countIn(usage, "input_tokens") !== undefined;
}
