/**
 * Divides stated counts into billing classes. Each token is in exactly one class, and a count of
 * details that is larger than its total is cut to it.
 *
 * @module
 */
import { tierOf } from "../config/price_conditions.ts";
import type {
  BillingClass,
  ClassAmounts,
  Tariff,
  TokenUsage,
  UsagePart,
} from "../exchange/billing.ts";

/** Anthropic's name of a region that it does not state. */
const UNSTATED_GEO = "not_available";
/** Names are cut to this length, because they are stored. Characters. */
const MAX_NAME_LENGTH = 256;

type Classes = Partial<Record<BillingClass, number>>;
/** A kind of content. */
type Kind = "text" | "image" | "audio" | "video";
/** The order in which cached and written tokens are assumed, if an answer does not divide them. */
const KINDS: readonly Kind[] = ["text", "image", "audio", "video"];

/**
 * Returns whether a value is a count.
 *
 * @returns Whether it is a whole number that is not negative
 */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Reads a count; `undefined` for other values. */
export const countOf = (value: unknown): number | undefined => isCount(value) ? value : undefined;

/** Reads a field of a value that can be an object. */
export function fieldOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null
    ? (value as Record<string, unknown>)[name]
    : undefined;
}

/** Reads a count of an object. */
export const countIn = (value: unknown, name: string): number | undefined =>
  countOf(fieldOf(value, name));

/** Reads a list of an object; empty if it has none. */
export function listIn(value: unknown, name: string): readonly unknown[] {
  const list = fieldOf(value, name);
  return Array.isArray(list) ? list : [];
}

/** Reads a name; `undefined` for other values. */
export function nameOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value.slice(0, MAX_NAME_LENGTH) : undefined;
}

/** Reads the tier that served a call; `undefined` for the standard one. */
export function readServedTier(value: unknown): string | undefined {
  const tier = nameOf(value);
  return tierOf(tier) === "" ? undefined : tier;
}

/**
 * Reads the region that served a call; `undefined` if none is stated. `global` is one: the region of
 * the provider must not replace it.
 */
export function readServedGeo(value: unknown): string | undefined {
  const geo = nameOf(value);
  return geo === UNSTATED_GEO ? undefined : geo;
}

/** Converts stated seconds, a number or a text, to whole milliseconds. */
export function toMs(seconds: unknown): number | undefined {
  const isText = typeof seconds === "string" && /^\d{1,9}(?:\.\d{1,30})?$/.test(seconds);
  const ms = isText || typeof seconds === "number" ? Math.round(Number(seconds) * 1000) : undefined;
  return countOf(ms);
}

/** Makes a tariff without the facts that are unknown. */
export function toTariff({ tier, geo, context, asked }: Tariff): Tariff {
  return {
    ...(tier !== undefined && { tier }),
    ...(geo !== undefined && { geo }),
    context,
    ...(asked !== undefined && { asked }),
  };
}

/** Counts of which the input of a model run consists. */
export interface InputDetails {
  readonly audio?: number | undefined;
  readonly image?: number | undefined;
  readonly video?: number | undefined;
  /** Read from the cache, and parts of it. */
  readonly cached?: number | undefined;
  readonly cachedAudio?: number | undefined;
  readonly cachedImage?: number | undefined;
  /** Written to the cache, and the part for its longer time. */
  readonly written?: number | undefined;
  readonly writtenLong?: number | undefined;
}

/** Takes tokens from the kinds in their order. @returns The number that was taken of each */
function draw(pool: Record<Kind, number>, amount: number): Record<Kind, number> {
  const taken = { text: 0, image: 0, audio: 0, video: 0 };
  let left = amount;
  for (const kind of KINDS) {
    taken[kind] = Math.min(left, pool[kind]);
    pool[kind] -= taken[kind];
    left -= taken[kind];
  }
  return taken;
}

/** Divides the input of a model run. @param total All of it, caches included */
export function divideInput(total: number, details: InputDetails): Classes {
  const audio = Math.min(details.audio ?? 0, total);
  const image = Math.min(details.image ?? 0, total - audio);
  const video = Math.min(details.video ?? 0, total - audio - image);
  const cached = Math.min(details.cached ?? 0, total);
  const cachedAudio = Math.min(details.cachedAudio ?? 0, audio, cached);
  const cachedImage = Math.min(details.cachedImage ?? 0, image, cached - cachedAudio);
  const written = Math.min(details.written ?? 0, total - cached);
  const writtenLong = Math.min(details.writtenLong ?? 0, written);
  const pool = {
    text: total - audio - image - video,
    image: image - cachedImage,
    audio: audio - cachedAudio,
    video,
  };
  const read = draw(pool, cached - cachedAudio - cachedImage);
  draw(pool, written);
  return withoutZeros({
    input: pool.text,
    inputAudio: pool.audio,
    inputImage: pool.image,
    inputVideo: pool.video,
    cacheRead: read.text + read.video,
    cacheReadAudio: cachedAudio + read.audio,
    cacheReadImage: cachedImage + read.image,
    cacheWrite: written - writtenLong,
    cacheWriteLong: writtenLong,
  });
}

/** Counts of which the output of a model run consists. */
export interface OutputDetails {
  readonly reasoning?: number | undefined;
  readonly audio?: number | undefined;
  readonly image?: number | undefined;
  readonly video?: number | undefined;
  readonly citation?: number | undefined;
}

/** Returns whether details name text only. Its classes are then those of the sums. */
export function isText(input: InputDetails, output: OutputDetails): boolean {
  const hasOther = input.audio || input.image || input.video || input.written ||
    output.audio || output.image || output.video || output.citation;
  return !hasOther;
}

/** Divides the output of a model run. @param total All of it, reasoning included */
export function divideOutput(total: number, details: OutputDetails): Classes {
  let left = total;
  const cut = (count = 0): number => {
    const taken = Math.min(count, left);
    left -= taken;
    return taken;
  };
  const classes = {
    reasoning: cut(details.reasoning),
    outputAudio: cut(details.audio),
    outputImage: cut(details.image),
    outputVideo: cut(details.video),
    citation: cut(details.citation),
  };
  return withoutZeros({ output: left, ...classes });
}

function withoutZeros(amounts: Classes): Classes {
  const classes: Classes = {};
  for (const name of Object.keys(amounts) as BillingClass[]) {
    const amount = amounts[name];
    if (amount) classes[name] = amount;
  }
  return classes;
}

/** Sums of a usage, as far as they are stated. */
export type TokenSums = Pick<TokenUsage, "total" | "input" | "output" | "cached" | "reasoning">;

/** The classes of text at the standard tariff: the sums of a usage say as much. */
const TEXT_CLASSES: ReadonlySet<string> = new Set(["input", "cacheRead", "output", "reasoning"]);

/** Returns whether a part says no more than the sums of its usage, see `partsOf` in billing.ts. */
function isPlain({ model, classes, tariff }: UsagePart, { input = 0 }: TokenSums): boolean {
  const { tier, geo, asked, context } = tariff;
  const isNamed = model !== undefined || tier !== undefined || geo !== undefined ||
    asked !== undefined;
  if (isNamed || context !== input) return false;
  for (const name of Object.keys(classes)) if (!TEXT_CLASSES.has(name)) return false;
  return true;
}

/** Makes a usage. Its parts are left out where its sums say the same. */
export function toUsage(
  sums: TokenSums,
  parts: readonly UsagePart[],
  statedCost?: string,
): TokenUsage {
  const [first, ...others] = parts;
  const isText = first !== undefined && others.length === 0 && isPlain(first, sums);
  if (isText && statedCost === undefined) return sums;
  return {
    ...sums,
    ...(!isText && { parts }),
    ...(statedCost !== undefined && { statedCost }),
  };
}

/** Statements next to units. */
interface UnitStatements {
  readonly asked?: Tariff["asked"];
  readonly statedCost?: string | undefined;
}

/** Makes a usage that has no tokens: calls, images or time. */
export function toUnits(
  classes: ClassAmounts,
  { asked, statedCost }: UnitStatements = {},
): TokenUsage {
  const part = { classes, tariff: toTariff({ context: 0, asked }) };
  return toUsage({ total: 0 }, [part], statedCost);
}
