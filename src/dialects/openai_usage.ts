/**
 * Tokens as the provider states them. Nothing is injected to make it state them, and nothing is guessed where it does
 * not.
 *
 * @module
 */
import { joinChunks } from "../http/byte_source.ts";
import type { TokenUsage } from "../exchange/record.ts";

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const fieldOf = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;

/**
 * Reads the `usage` of an answer or of a stream's chunk (https://platform.openai.com/docs/api-reference/chat/object);
 * Groq states it as `x_groq.usage` in streams.
 *
 * @param answer The parsed answer or chunk
 * @returns Its tokens; `undefined` where none are stated, or the numbers are no counts
 */
export function readUsage(answer: unknown): TokenUsage | undefined {
  const usage = fieldOf(answer, "usage") ?? fieldOf(fieldOf(answer, "x_groq"), "usage");
  const [input, output] = [fieldOf(usage, "prompt_tokens"), fieldOf(usage, "completion_tokens")];
  const stated = fieldOf(usage, "total_tokens");
  const total = isCount(stated) ? stated : isCount(input) && isCount(output) ? input + output : undefined;
  if (total === undefined) return undefined;
  const cached = fieldOf(fieldOf(usage, "prompt_tokens_details"), "cached_tokens");
  const reasoning = fieldOf(fieldOf(usage, "completion_tokens_details"), "reasoning_tokens");
  return {
    total,
    ...(isCount(input) && { input }),
    ...(isCount(output) && { output }),
    ...(isCount(cached) && { cached }),
    ...(isCount(reasoning) && { reasoning }),
  };
}

/** Length of the end of a plain answer that is kept: providers state usage after the choices. Bytes. */
const KEPT_BYTES = 65536;
// In a text its quotes would be escaped. One level of details stands inside.
const USAGE = /"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})/g;

const utf8 = new TextDecoder();

function readText(text: string): TokenUsage | undefined {
  try {
    return readUsage(JSON.parse(text));
  } catch {
    return undefined; // no JSON: the provider's business
  }
}

/**
 * Reads the usage of a plain answer.
 *
 * @param answer All of it
 * @returns Its tokens, as far as they are stated
 */
export function readPlainUsage(answer: Uint8Array): TokenUsage | undefined {
  return readText(utf8.decode(answer)); // in one go: keeps no state, and Deno is fast at it
}

/** Watches a plain answer pass and keeps its end. */
export class PlainAnswerMeter {
  #parts: Uint8Array[] = [];
  #bytes = 0;
  #isWhole = true;

  /**
   * Takes note of the next bytes.
   *
   * @param chunk As it came
   */
  push(chunk: Uint8Array): void {
    this.#parts.push(chunk.slice()); // a copy: a runtime may use its buffer again
    this.#bytes += chunk.length;
    while (this.#bytes - (this.#parts[0]?.length ?? 0) >= KEPT_BYTES) {
      this.#bytes -= this.#parts.shift()?.length ?? 0;
      this.#isWhole = false;
    }
  }

  /** The tokens, once the answer is over. */
  get usage(): TokenUsage | undefined {
    const bytes = joinChunks(this.#parts);
    if (this.#isWhole) return readPlainUsage(bytes);
    const [, stated = "null"] = Array.from(utf8.decode(bytes).matchAll(USAGE)).at(-1) ?? [];
    return readText(`{"usage":${stated}}`);
  }
}
