/**
 * The interface of chat completions, as OpenAI and most others have it
 * (https://platform.openai.com/docs/api-reference/chat). Nothing is injected to make a provider state its usage, and
 * nothing is guessed where it does not.
 *
 * @module
 */
import { toErrorJson } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/record.ts";
import { joinChunks } from "../http/read_all.ts";
import { isTelling } from "./chunk_search.ts";
import { type AnswerMeter, type Dialect, MAX_KEPT_BYTES, type StreamScanner } from "./dialect.ts";
import { EventScanner, startsWithAt } from "./event_scanner.ts";

const DONE = new TextEncoder().encode("[DONE]");
const utf8 = new TextDecoder();

/** The most choices that are tracked, the first ones: `n` is at most 128 (OpenAI's reference). */
const MAX_CHOICES = 128;

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

/** Recognises the end of audio: a chunk with its expiry and nothing else. No finish reason follows it. */
function isEndOfAudio(audio: unknown): boolean {
  if (typeof audio !== "object" || audio === null) return false;
  return "expires_at" in audio && typeof audio.expires_at === "number" && Object.keys(audio).length === 1;
}

/** Watches one stream of chunks. */
class ChunkScanner extends EventScanner implements StreamScanner {
  isDone = false;
  usage: TokenUsage | undefined;
  readonly #hasSeveralChoices: boolean;
  readonly #begun = new Set<number>();
  readonly #finished = new Set<number>();

  constructor(choices: number) {
    super();
    this.#hasSeveralChoices = choices > 1;
  }

  /** True after `[DONE]`, or once every choice that began has its finish reason. */
  get isComplete(): boolean {
    if (this.isDone) return true;
    for (const index of this.#begun) if (!this.#finished.has(index)) return false;
    return this.#finished.size > 0;
  }

  protected override readLine(bytes: Uint8Array, start: number, end: number): void {
    if (end - start === DONE.length && startsWithAt(bytes, DONE, start)) this.isDone = true;
    else if (this.#hasSeveralChoices || isTelling(bytes, start, end)) {
      this.readText(utf8.decode(bytes.subarray(start, end)));
    }
  }

  protected override readText(json: string): void {
    try {
      const chunk = JSON.parse(json);
      if (chunk.error) this.hasError = true; // as the client libraries ask
      this.usage = readUsage(chunk) ?? this.usage;
      for (const { index, finish_reason: reason, delta } of chunk.choices ?? []) {
        const choice = Number(index ?? 0);
        if (this.#begun.size >= MAX_CHOICES && !this.#begun.has(choice)) continue;
        this.#begun.add(choice);
        if (reason === "error") this.hasError = true;
        if ((typeof reason === "string" && reason !== "") || isEndOfAudio(delta?.audio)) this.#finished.add(choice);
      }
    } catch {
      // No chat completion chunk: the provider's business, and no sign that anything was finished.
    }
  }
}

// In a text its quotes would be escaped. One level of details stands inside.
const USAGE = /"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})/g;

function parseUsage(text: string): TokenUsage | undefined {
  try {
    return readUsage(JSON.parse(text));
  } catch {
    return undefined; // no JSON: the provider's business
  }
}

function readPlainUsage(answer: Uint8Array): TokenUsage | undefined {
  return parseUsage(utf8.decode(answer)); // in one go: keeps no state, and Deno is fast at it
}

/** Watches a plain answer pass and keeps its end. */
class PlainAnswerMeter implements AnswerMeter {
  #parts: Uint8Array[] = [];
  #bytes = 0;
  #isWhole = true;

  push(chunk: Uint8Array): void {
    this.#parts.push(chunk.slice()); // a copy: a runtime may use its buffer again
    this.#bytes += chunk.length;
    while (this.#bytes - (this.#parts[0]?.length ?? 0) >= MAX_KEPT_BYTES) {
      this.#bytes -= this.#parts.shift()?.length ?? 0;
      this.#isWhole = false;
    }
  }

  get usage(): TokenUsage | undefined {
    const bytes = joinChunks(this.#parts);
    if (this.#isWhole) return readPlainUsage(bytes);
    const [, stated = "null"] = Array.from(utf8.decode(bytes).matchAll(USAGE)).at(-1) ?? [];
    return parseUsage(`{"usage":${stated}}`);
  }
}

/** The dialect of chat completions. */
export const OPENAI_CHAT: Dialect = {
  createScanner: (choices) => new ChunkScanner(choices),
  createMeter: () => new PlainAnswerMeter(),
  readUsage: readPlainUsage,
  toErrorBody: toErrorJson,
  // No `[DONE]` follows: a clean end would read as success in the client libraries.
  toErrorEvent: (error) => `data: ${toErrorJson(error)}\n\n`,
};
