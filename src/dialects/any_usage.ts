/**
 * Usage of an answer whose interface is unknown: every form is tried that an interface has.
 *
 * @module
 */
import { partsOf, type TokenUsage } from "../exchange/billing.ts";
import {
  isMessageUsage,
  mergeCounts,
  type MessageCounts,
  readMessageUsage,
  sumMessageUsage,
} from "./anthropic_usage.ts";
import { GeminiUsage, readInteraction } from "./gemini_usage.ts";
import { readChatUsage } from "./openai_chat.ts";
import { readResponsesUsage } from "./openai_responses.ts";
import { readTokens } from "./openai_usage.ts";
import { readBedrock, readBilledUnits, readUnits } from "./other_usage.ts";
import { addTokens } from "./token_usage.ts";
import { countIn, fieldOf, nameOf } from "./usage_classes.ts";

/** Events that contain a response with its usage. */
const RESPONSE_ENDS: readonly unknown[] = [
  "response.completed",
  "response.incomplete",
  "response.failed",
];
/** Tier of all requests in a batch. Not every provider names it. */
export const BATCH_TIER = "batch";

/** Reads the usage of an answer, or of an event that states all of it. */
function readWhole(answer: unknown, json: string): TokenUsage | undefined {
  const usage = fieldOf(answer, "usage");
  const single = readUnits(answer) ?? readBilledUnits(answer) ?? readBedrock(answer) ??
    readInteraction(usage);
  if (single !== undefined) return single;
  if (fieldOf(answer, "object") === "batch") {
    const batch = readTokens(usage, ["input_tokens", "output_tokens"], { json, tier: BATCH_TIER });
    return batch?.total === 0 ? undefined : batch;
  }
  if (isMessageUsage(usage)) return readMessageUsage(answer);
  return countIn(usage, "input_tokens") === undefined
    ? readChatUsage(answer, json)
    : readResponsesUsage(answer, json);
}

/** Collects the usage of one answer, from its events or from all of it. */
export class AnyUsage {
  readonly #gemini = new GeminiUsage();
  #message: MessageCounts | undefined;
  /** Usage that later statements replace. */
  #latest: TokenUsage | undefined;
  /** Sum of statements that are parts of the answer. */
  #sum: TokenUsage | undefined;
  /** Model that the answer names. */
  #model: string | undefined;

  /** Reads an event, or a plain answer. @param json The text that was parsed */
  add(data: unknown, json: string): void {
    if (Array.isArray(data)) { // a stream of Gemini without events
      for (const each of data) this.add(each, json);
      return;
    }
    const type = fieldOf(data, "type");
    const response = fieldOf(data, "response");
    const message = fieldOf(data, "message") ?? fieldOf(fieldOf(data, "result"), "message");
    this.#noteModel(data, message, response);
    this.#gemini.add(data);
    const usage = fieldOf(data, "usage");
    if (type === "message_start") this.#merge(fieldOf(message, "usage"));
    else if (type === "message_delta") this.#merge(usage);
    else if (type === "response.done") {
      this.#add(readTokens(fieldOf(response, "usage"), ["input_tokens", "output_tokens"], {
        json,
        tier: fieldOf(response, "service_tier"),
      }));
    } else if (RESPONSE_ENDS.includes(type)) {
      this.#latest = readResponsesUsage(response, json) ?? this.#latest;
    } else if (fieldOf(fieldOf(data, "result"), "type") === "succeeded") {
      this.#add(readMessageUsage(message));
    } else {
      const delta = fieldOf(data, "delta"); // Cohere's last event
      const whole = fieldOf(delta, "usage") === undefined ? data : delta;
      this.#latest = readWhole(whole, json) ?? this.#latest;
    }
  }

  /** The usage so far. */
  get usage(): TokenUsage | undefined {
    const message = this.#message && sumMessageUsage(this.#message);
    const usage = this.#gemini.usage ?? message ?? this.#sum ?? this.#latest;
    const model = this.#model;
    if (usage === undefined || model === undefined) return usage;
    return { ...usage, parts: partsOf(usage).map((part) => ({ model, ...part })) };
  }

  #noteModel(...places: readonly unknown[]): void {
    for (const place of places) {
      const model = nameOf(fieldOf(place, "model")) ?? nameOf(fieldOf(place, "modelVersion"));
      if (model !== undefined) this.#model = model;
    }
  }

  #merge(usage: unknown): void {
    this.#message = mergeCounts(this.#message ?? {}, usage);
  }

  #add(usage: TokenUsage | undefined): void {
    if (usage !== undefined) this.#sum = addTokens(this.#sum, usage);
  }
}

/** Reads the usage of a plain answer. @param json The text that was parsed */
export function readAnyUsage(answer: unknown, json: string): TokenUsage | undefined {
  const any = new AnyUsage();
  any.add(answer, json);
  return any.usage;
}
