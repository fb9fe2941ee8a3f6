/**
 * Tokens as providers state them. Interfaces have different names for the counts. A plain answer is
 * read as a whole or in pieces.
 *
 * @module
 */
import { partsOf, type TokenUsage } from "../exchange/billing.ts";
import { joinChunks } from "../http/read_all.ts";
import { countByEnd, countPlainOutput } from "./content_count.ts";
import { type AnswerMeter, MAX_KEPT_BYTES } from "./dialect.ts";

/**
 * Returns whether a value is a count.
 *
 * @returns Whether it is a whole number that is not negative
 */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Reads a field of a value that can be an object. */
export function fieldOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null
    ? (value as Record<string, unknown>)[name]
    : undefined;
}

/**
 * Reads an object of usage in the form of OpenAI's interfaces, with details next to each of the two
 * counts.
 *
 * @param inputName Name of the count of the input: `prompt_tokens` or `input_tokens`
 * @param outputName Name of the count of the output: `completion_tokens` or `output_tokens`
 * @returns Its tokens; `undefined` if none are stated, or if the numbers are not counts
 */
export function readTokens(
  usage: unknown,
  inputName: string,
  outputName: string,
): TokenUsage | undefined {
  const [input, output] = [fieldOf(usage, inputName), fieldOf(usage, outputName)];
  const stated = fieldOf(usage, "total_tokens");
  const sum = isCount(input) && isCount(output) ? input + output : undefined;
  const total = isCount(stated) ? stated : sum;
  if (total === undefined) return undefined;
  const cached = fieldOf(fieldOf(usage, `${inputName}_details`), "cached_tokens");
  const reasoning = fieldOf(fieldOf(usage, `${outputName}_details`), "reasoning_tokens");
  return {
    total,
    ...(isCount(input) && { input }),
    ...(isCount(output) && { output }),
    ...(isCount(cached) && { cached }),
    ...(isCount(reasoning) && { reasoning }),
  };
}

/** Counts of usage that are numbers. */
const COUNTS = ["total", "input", "output", "cached", "reasoning"] as const;

/** Adds the tokens of one part of an answer to the tokens of the earlier parts. */
export function addTokens(before: TokenUsage | undefined, more: TokenUsage): TokenUsage {
  if (before === undefined) return more;
  const sums: { -readonly [Name in keyof TokenUsage]: TokenUsage[Name] } = { ...before };
  for (const name of COUNTS) {
    if (more[name] !== undefined) sums[name] = (sums[name] ?? 0) + more[name];
  }
  return { ...sums, parts: [...partsOf(before), ...partsOf(more)] };
}

/** Reads the tokens from the `usage` of a parsed answer, as its interface states them. */
export type UsageReader = (answer: unknown) => TokenUsage | undefined;

const utf8 = new TextDecoder();

// In a text its quotes would be escaped. It can contain two levels of details.
const USAGE = /"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]*)*\})/g;

function parseUsage(text: string, read: UsageReader): TokenUsage | undefined {
  try {
    return read(JSON.parse(text));
  } catch {
    return undefined; // not JSON, forwarded anyway
  }
}

/** Reads the tokens that a plain answer states. */
export function readPlainUsage(answer: Uint8Array, read: UsageReader): TokenUsage | undefined {
  return parseUsage(utf8.decode(answer), read);
}

/** Watches a plain answer while it is relayed, and keeps its end. */
export class PlainAnswerMeter implements AnswerMeter {
  readonly #read: UsageReader;
  readonly #count: (answer: Uint8Array) => number | undefined;
  #parts: Uint8Array[] = [];
  #keptBytes = 0;
  #byteLength = 0;

  /** @param count Counts the output of an answer that was kept completely */
  constructor(
    read: UsageReader,
    count: (answer: Uint8Array) => number | undefined = countPlainOutput,
  ) {
    this.#read = read;
    this.#count = count;
  }

  push(chunk: Uint8Array): void {
    this.#parts.push(chunk.slice()); // a copy: runtimes can reuse the buffer
    this.#keptBytes += chunk.length;
    this.#byteLength += chunk.length;
    for (let first = this.#parts[0]; first !== undefined; first = this.#parts[0]) {
      if (this.#keptBytes - first.length < MAX_KEPT_BYTES) return;
      this.#keptBytes -= first.length;
      this.#parts.shift();
    }
  }

  get outputTokens(): number | undefined {
    const bytes = joinChunks(this.#parts);
    return this.#isWhole ? this.#count(bytes) : countByEnd(bytes, this.#byteLength);
  }

  get #isWhole(): boolean {
    return this.#keptBytes === this.#byteLength;
  }

  get usage(): TokenUsage | undefined {
    const bytes = joinChunks(this.#parts);
    if (this.#isWhole) return readPlainUsage(bytes, this.#read);
    const [, stated = "null"] = Array.from(utf8.decode(bytes).matchAll(USAGE)).at(-1) ?? [];
    return parseUsage(`{"usage":${stated}}`, this.#read);
  }
}
