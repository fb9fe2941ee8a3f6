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
import { readMedia } from "./openai_media.ts";
import { readResponsesUsage } from "./openai_responses.ts";
import { readTokens } from "./openai_usage.ts";
import {
  type BedrockMetrics,
  countPictures,
  readBedrock,
  readBilledUnits,
  readMetrics,
  readUnits,
} from "./other_usage.ts";
import { addTokens, type UsageReader } from "./token_usage.ts";
import { countIn, fieldOf, nameOf } from "./usage_classes.ts";

/** Events that contain a response with its usage. */
const RESPONSE_ENDS: readonly unknown[] = [
  "response.completed",
  "response.incomplete",
  "response.failed",
];
/** Event that states the transcription of a caller's speech, next to the response to it. */
const TRANSCRIBED = "conversation.item.input_audio_transcription.completed";
/** Name of the model that transcribed: the event does not name it. */
const TRANSCRIBER = "input_audio_transcription";
/** Tier of all requests in a batch. Not every provider names it. */
export const BATCH_TIER = "batch";

/** Reads the usage of an answer, or of an event that states all of it. */
function readWhole(answer: unknown, json: string): TokenUsage | undefined {
  const usage = fieldOf(answer, "usage");
  const single = readUnits(answer, json) ?? readBilledUnits(answer) ?? readBedrock(answer) ??
    readInteraction(usage);
  if (single !== undefined) return single;
  if (fieldOf(answer, "object") === "batch") {
    const batch = readTokens(usage, ["input_tokens", "output_tokens"], { json, tier: BATCH_TIER });
    return batch?.total === 0 ? undefined : batch;
  }
  if (isMessageUsage(usage)) return readMessageUsage(answer);
  if (countIn(usage, "input_tokens") !== undefined) return readResponsesUsage(answer, json);
  return readChatUsage(answer, json) ?? countPictures(answer);
}

/** Collects the usage of one answer, from its events or from all of it. */
export class AnyUsage {
  readonly #gemini: GeminiUsage;
  #message: MessageCounts | undefined;
  /** Counts of Bedrock for a message. They do not divide what was written to the cache. */
  #metrics: BedrockMetrics | undefined;
  /** Usage that later statements replace. */
  #latest: TokenUsage | undefined;
  /** Sum of statements that are parts of the answer. */
  #sum: TokenUsage | undefined;
  /** Sum of transcriptions, which another model makes. */
  #transcribed: TokenUsage | undefined;
  /** Model that the answer names. */
  #model: string | undefined;

  /** @param model Model that the caller named, for answers that name none */
  constructor(model: string = "") {
    this.#gemini = new GeminiUsage(model);
  }

  /** Reads an event, or a plain answer. @param json The text that was parsed */
  add(data: unknown, json: string): void {
    if (Array.isArray(data)) { // a stream of Gemini without events
      for (const each of data) this.add(each, json);
      return;
    }
    const type = fieldOf(data, "type");
    const response = fieldOf(data, "response");
    const message = fieldOf(data, "message") ?? fieldOf(fieldOf(data, "result"), "message");
    const interaction = fieldOf(data, "interaction"); // in Gemini's events of interactions
    this.#noteModel(data, message, response, interaction);
    this.#gemini.add(data);
    this.#metrics = readMetrics(data) ?? this.#metrics;
    const usage = fieldOf(data, "usage");
    if (type === "message_start") this.#merge(fieldOf(message, "usage"));
    else if (type === "message_delta") this.#merge(usage);
    else if (type === "response.done") {
      this.#add(readTokens(fieldOf(response, "usage"), ["input_tokens", "output_tokens"], {
        json,
        tier: fieldOf(response, "service_tier"),
      }));
    } else if (type === TRANSCRIBED) {
      this.#addTranscription(readMedia(data, undefined, json));
    } else if (RESPONSE_ENDS.includes(type)) {
      this.#latest = readResponsesUsage(response, json) ?? this.#latest;
    } else if (fieldOf(fieldOf(data, "result"), "type") === "succeeded") {
      this.#add(readMessageUsage(message));
    } else {
      const delta = fieldOf(data, "delta"); // Cohere's last event
      const whole = [interaction, delta].find((each) => fieldOf(each, "usage")) ?? data;
      this.#latest = readWhole(whole, json) ?? this.#latest;
    }
  }

  /** The usage so far. */
  get usage(): TokenUsage | undefined {
    const message = this.#message && sumMessageUsage({ ...this.#metrics, ...this.#message });
    const own = this.#gemini.usage ?? message ?? this.#sum ?? this.#latest;
    const usage = this.#transcribed === undefined ? own : addTokens(own, this.#transcribed);
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

  #addTranscription(usage: TokenUsage | undefined): void {
    if (usage === undefined) return;
    const parts = partsOf(usage).map((part) => ({ ...part, model: TRANSCRIBER }));
    this.#transcribed = addTokens(this.#transcribed, { ...usage, parts });
  }

  #add(usage: TokenUsage | undefined): void {
    if (usage !== undefined) this.#sum = addTokens(this.#sum, usage);
  }
}

/** Creates the reader of a plain answer. @param model As in {@link AnyUsage} */
export function createAnyReader(model?: string): UsageReader {
  return (answer, json) => {
    const any = new AnyUsage(model);
    any.add(answer, json);
    return any.usage;
  };
}

/** Reads the usage of a plain answer whose model does not matter. */
export const readAnyUsage: UsageReader = createAnyReader();
