/**
 * Usage of a plain answer, which is read as a whole or in pieces, and sums of usage.
 *
 * @module
 */
import { addAmounts, partsOf, type TokenUsage, type UsagePart } from "../exchange/billing.ts";
import { joinChunks } from "../http/read_all.ts";
import { countByEnd, countPlainOutput } from "./content_count.ts";
import { type AnswerMeter, MAX_KEPT_BYTES } from "./dialect.ts";
import { JsonSkeleton } from "./json_skeleton.ts";
import { addStated } from "./stated_cost.ts";

/** Counts of usage that are numbers. */
const COUNTS = ["total", "input", "output", "cached", "reasoning"] as const;

/** Adds the tokens of one part of an answer to the tokens of the earlier parts. */
export function addTokens(before: TokenUsage | undefined, more: TokenUsage): TokenUsage {
  if (before === undefined) return more;
  const sums: { -readonly [Name in keyof TokenUsage]: TokenUsage[Name] } = { ...before };
  for (const name of COUNTS) {
    if (more[name] !== undefined) sums[name] = (sums[name] ?? 0) + more[name];
  }
  const statedCost = addStated(before.statedCost, more.statedCost);
  const parts = addParts(partsOf(before), partsOf(more));
  return { ...sums, parts, ...(statedCost !== undefined && { statedCost }) };
}

/** Maximum number of parts of a usage. Further parts are added to the last one. */
const MAX_PARTS = 64;

function addParts(
  before: readonly UsagePart[],
  more: readonly UsagePart[],
): readonly UsagePart[] {
  if (before.length < MAX_PARTS) return [...before, ...more];
  const parts = [...before];
  for (const part of more) {
    const last = parts.pop();
    parts.push(last === undefined ? part : joinParts(last, part));
  }
  return parts;
}

/** Adds a part to another one, which keeps its model. The longer context counts for both. */
export function joinParts(one: UsagePart, other: UsagePart): UsagePart {
  const context = Math.max(one.tariff.context, other.tariff.context);
  return {
    ...one,
    classes: addAmounts(one.classes, other.classes),
    tariff: { ...one.tariff, context },
  };
}

/**
 * Reads the usage of a parsed answer, as its interface states it. @param json The text that was
 * parsed
 */
export type UsageReader = (answer: unknown, json: string) => TokenUsage | undefined;

const utf8 = new TextDecoder();

// In a text their quotes would be escaped. Usage can contain two levels of details.
const USAGE =
  /"(usage|usageMetadata)"\s*:\s*(\{[^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]*)*\})/g;
const TIER = /"service_tier"\s*:\s*"([^"\\]{1,64})"/g;
/** Tier of an answer whose end names several: a price for it is unlikely, so it is not cheap. */
const SEVERAL_TIERS = "several";

function parseUsage(text: string, read: UsageReader): TokenUsage | undefined {
  try {
    return read(JSON.parse(text), text);
  } catch {
    return undefined; // not JSON, forwarded anyway
  }
}

/** Reads the tokens that a plain answer states. */
export function readPlainUsage(answer: Uint8Array, read: UsageReader): TokenUsage | undefined {
  return parseUsage(utf8.decode(answer), read);
}

/** Reads the usage and the tier from the end of an answer. */
function readEnd(end: string, read: UsageReader): TokenUsage | undefined {
  const [, name = "usage", stated = "null"] = Array.from(end.matchAll(USAGE)).at(-1) ?? [];
  const tiers = new Set(Array.from(end.matchAll(TIER), ([, tier]) => tier));
  const [tier] = tiers;
  const service = JSON.stringify((tiers.size > 1 ? SEVERAL_TIERS : tier) ?? null);
  return parseUsage(`{"${name}":${stated},"service_tier":${service}}`, read);
}

/** Depth of the lists in a plain answer that can be long. */
const MIN_LIST_DEPTH = 2;

/** Options of {@link PlainAnswerMeter}. */
export interface MeterOptions {
  /** Counts the output of an answer that was kept completely. */
  readonly count?: (answer: Uint8Array) => number | undefined;
  /**
   * Depth of the lists that are read in an answer that is too long to be kept. Default: that of the
   * lists in an object of usage.
   */
  readonly listDepth?: number;
  /** Reads the id of an answer that can be read later, from all of it or from its beginning. */
  readonly readLaterId?: (answer: Uint8Array) => string | undefined;
}

/** Watches a plain answer while it is relayed, and keeps its end. */
export class PlainAnswerMeter implements AnswerMeter {
  readonly #read: UsageReader;
  readonly #options: MeterOptions;
  /** Its first piece, if its id can be asked for. */
  #first: Uint8Array | undefined;
  #parts: Uint8Array[] = [];
  #keptBytes = 0;
  #byteLength = 0;
  /** The answer without its long texts, once it is too long to be kept. */
  #skeleton: JsonSkeleton | undefined;

  constructor(read: UsageReader, options: MeterOptions = {}) {
    this.#read = read;
    this.#options = options;
  }

  push(chunk: Uint8Array): void {
    const copy = chunk.slice(); // runtimes can reuse the buffer
    if (this.#options.readLaterId !== undefined) this.#first ??= copy;
    this.#parts.push(copy);
    this.#keptBytes += chunk.length;
    this.#byteLength += chunk.length;
    if (this.#byteLength > MAX_KEPT_BYTES) this.#reduce(chunk);
    for (let first = this.#parts[0]; first !== undefined; first = this.#parts[0]) {
      if (this.#keptBytes - first.length < MAX_KEPT_BYTES) return;
      this.#keptBytes -= first.length;
      this.#parts.shift();
    }
  }

  /** Adds a piece to the skeleton, the first time with all pieces before it. */
  #reduce(chunk: Uint8Array): void {
    if (this.#skeleton !== undefined) return this.#skeleton.push(chunk, 0, chunk.length);
    this.#skeleton = new JsonSkeleton(this.#options.listDepth, MIN_LIST_DEPTH);
    for (const part of this.#parts) this.#skeleton.push(part, 0, part.length);
  }

  get outputTokens(): number | undefined {
    const bytes = joinChunks(this.#parts);
    const { count = countPlainOutput } = this.#options;
    return this.#isWhole ? count(bytes) : countByEnd(bytes, this.#byteLength);
  }

  get laterId(): string | undefined {
    const known = this.#isWhole ? joinChunks(this.#parts) : this.#first;
    return known && this.#options.readLaterId?.(known);
  }

  get #isWhole(): boolean {
    return this.#keptBytes === this.#byteLength;
  }

  get usage(): TokenUsage | undefined {
    const bytes = joinChunks(this.#parts);
    if (this.#isWhole) return readPlainUsage(bytes, this.#read);
    const reduced = this.#skeleton?.text;
    const usage = reduced === undefined ? undefined : parseUsage(reduced, this.#read);
    return usage ?? readEnd(utf8.decode(bytes), this.#read);
  }
}
