/**
 * The interface of chat completions, as at OpenAI and most others
 * (https://platform.openai.com/docs/api-reference/chat). Legacy completions and embeddings have the
 * same forms of answers.
 *
 * @module
 */
import { type GatewayError, toErrorJson } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import { needsParsing } from "./chunk_search.ts";
import { countPlainOutput } from "./content_count.ts";
import type { Dialect, StreamScanner } from "./dialect.ts";
import { EventScanner, isDoneLine } from "./event_scanner.ts";
import { readTokens } from "./openai_usage.ts";
import { PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { fieldOf, nameOf } from "./usage_classes.ts";

const utf8 = new TextDecoder();

/**
 * The most choices that are tracked. `n` is at most 128 (OpenAI's reference). If more were
 * requested, only `[DONE]` ends the answer.
 */
const MAX_CHOICES = 128;

const NAMES = ["prompt_tokens", "completion_tokens"] as const;

/**
 * Reads the `usage` of an answer or of a stream's chunk
 * (https://platform.openai.com/docs/api-reference/chat/object); Groq states it as `x_groq.usage` in
 * streams. Embeddings and rankings state no `completion_tokens`: all of theirs is input.
 *
 * @param json The text that was parsed
 * @param tier Tier of the answer. Default: `service_tier`
 * @returns Its tokens; `undefined` if none are stated, or if the numbers are not counts
 */
export function readChatUsage(
  answer: unknown,
  json?: string,
  tier: unknown = fieldOf(answer, "service_tier"),
): TokenUsage | undefined {
  const usage = fieldOf(answer, "usage") ?? fieldOf(fieldOf(answer, "x_groq"), "usage");
  if (usage === undefined || usage === null) return undefined;
  const isInputOnly = fieldOf(answer, "choices") === undefined;
  return readTokens(usage, NAMES, { json, tier, isInputOnly });
}

/**
 * Returns whether a chunk is the end of audio: it has only an expiry. No finish reason follows it.
 */
function isEndOfAudio(audio: unknown): boolean {
  if (typeof audio !== "object" || audio === null) return false;
  return "expires_at" in audio && typeof audio.expires_at === "number" &&
    Object.keys(audio).length === 1;
}

/** Watches one stream of chunks. */
class ChunkScanner extends EventScanner implements StreamScanner {
  hasLastEvent = false;
  usage: TokenUsage | undefined;
  readonly #expected: number;
  /** The tier that the latest chunk stated. */
  #tier: string | undefined;
  /** The answers (`choices`) that have begun, each with true if it has finished. */
  readonly #choices = new Map<number, boolean>();

  constructor(answers: number) {
    super();
    this.#expected = Math.floor(answers);
  }

  /**
   * True after `[DONE]`, or once all requested choices, and all others that began, have their
   * finish reason.
   */
  get isComplete(): boolean {
    if (this.hasLastEvent) return true;
    if (this.#choices.size < this.#expected) return false;
    for (const hasFinished of this.#choices.values()) if (!hasFinished) return false;
    return true;
  }

  protected override readLine(bytes: Uint8Array, start: number, end: number): void {
    if (isDoneLine(bytes, start, end)) this.hasLastEvent = true;
    else if (this.#expected > 1 || needsParsing(bytes, start, end, this.isAlike)) {
      this.readText(utf8.decode(bytes.subarray(start, end)));
    }
  }

  protected override readText(json: string): void {
    try {
      const chunk = JSON.parse(json);
      if (chunk.error) this.hasError = true; // the same check as in the client libraries
      this.#tier = nameOf(chunk.service_tier) ?? this.#tier;
      const usage = readChatUsage(chunk, json, this.#tier);
      if (usage?.total !== 0 || this.usage === undefined) this.usage = usage ?? this.usage;
      for (const { index, finish_reason: reason, delta } of chunk.choices ?? []) {
        const choice = Number(index ?? 0);
        const hadFinished = this.#choices.get(choice);
        if (hadFinished === undefined && this.#choices.size >= MAX_CHOICES) continue;
        if (reason === "error") this.hasError = true;
        const isFinished = (typeof reason === "string" && reason !== "") ||
          isEndOfAudio(delta?.audio);
        this.#choices.set(choice, isFinished || hadFinished === true);
      }
    } catch {
      // Not a chat completion chunk. It is forwarded, and does not count as an end.
    }
  }

  // No `[DONE]` follows, because client libraries would read a clean end as success.
  toErrorEvent(error: GatewayError): string {
    return `data: ${toErrorJson(error)}\n\n`;
  }
}

/** The dialect of chat completions. */
export const OPENAI_CHAT: Dialect = {
  createScanner: (answers) => new ChunkScanner(answers),
  createMeter: () => new PlainAnswerMeter(readChatUsage),
  readUsage: (answer) => readPlainUsage(answer, readChatUsage),
  countOutput: countPlainOutput,
  toErrorBody: toErrorJson,
};
