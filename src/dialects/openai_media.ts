/**
 * OpenAI's interfaces of images, speech and transcriptions, which stream their own events
 * (https://platform.openai.com/docs/api-reference/images-streaming).
 *
 * @module
 */
import { type GatewayError, toErrorJson } from "../errors/gateway_error.ts";
import { countPlainOutput } from "./content_count.ts";
import type { Dialect } from "./dialect.ts";
import type { Tariff, TokenUsage } from "../exchange/billing.ts";
import { readTokens } from "./openai_usage.ts";
import { readStatedCost } from "./stated_cost.ts";
import { addTokens, PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { createParsedTypes, type EventData, TypedEventScanner } from "./typed_events.ts";
import { countIn, fieldOf, listIn, nameOf, toMs, toUnits } from "./usage_classes.ts";

/** The events that end an image. */
const IMAGES = ["image_generation.completed", "image_edit.completed"];
/** The events that end the stream. */
const ENDS = ["speech.audio.done", "transcript.text.done", "transcription.done"]; // Mistral's last
const TYPES = createParsedTypes(...IMAGES, ...ENDS);
const NAMES = ["input_tokens", "output_tokens"] as const;
/** Mistral's names. */
const CHAT_NAMES = ["prompt_tokens", "completion_tokens"] as const;

/** Kind of the output that an answer does not divide: pictures, sound or text. */
type OutputKind = "image" | "audio" | undefined;

/** Reads the usage of an answer: tokens, or the duration of a recording. */
export function readMedia(
  answer: unknown,
  outputKind: OutputKind,
  json: string,
  asked?: Tariff["asked"],
): TokenUsage | undefined {
  const usage = fieldOf(answer, "usage");
  const audioMs = toMs(fieldOf(usage, "seconds"));
  const isTimed = fieldOf(usage, "type") === "duration" && audioMs !== undefined;
  if (isTimed) return toUnits({ audioMs }, { statedCost: readStatedCost(usage, json) });
  const tier = fieldOf(answer, "service_tier");
  const names = countIn(usage, "prompt_tokens") === undefined ? NAMES : CHAT_NAMES;
  return readTokens(usage, names, { json, tier, asked, ...(outputKind && { outputKind }) });
}

/** Reads the usage of a transcription. Some state only the length of the recording. */
function readTranscription(answer: unknown, json: string): TokenUsage | undefined {
  const stated = readMedia(answer, undefined, json);
  const audioMs = stated === undefined ? toMs(fieldOf(answer, "duration")) : undefined;
  return audioMs === undefined ? stated : toUnits({ audioMs });
}

/** Reads the choices of an image that decide about its price: the provider makes those left open. */
function readChoices(answer: unknown): Tariff["asked"] {
  const quality = nameOf(fieldOf(answer, "quality"));
  const size = nameOf(fieldOf(answer, "size"));
  if (quality === undefined && size === undefined) return undefined;
  return { ...(quality !== undefined && { quality }), ...(size !== undefined && { size }) };
}

/** Reads the usage of images. They are counted if no tokens are stated, as at xAI. */
function readImages(answer: unknown, images: number, json: string): TokenUsage | undefined {
  const asked = readChoices(answer);
  const stated = readMedia(answer, "image", json, asked);
  if (stated !== undefined || images === 0) return stated;
  const statedCost = readStatedCost(fieldOf(answer, "usage"), json);
  return toUnits({ images }, { asked, statedCost });
}

/** Reads the usage of a plain answer. */
function readUsage(answer: unknown, json: string): TokenUsage | undefined {
  const images = listIn(answer, "data").length;
  // The end of a long answer shows neither `data` nor `text`. Only transcriptions state a type.
  const isSpoken = fieldOf(answer, "text") !== undefined ||
    fieldOf(fieldOf(answer, "usage"), "type") !== undefined;
  const isImage = images > 0 || !isSpoken;
  return isImage ? readImages(answer, images, json) : readTranscription(answer, json);
}

/** Watches one stream of images, speech or a transcript. */
class MediaScanner extends TypedEventScanner {
  /** The number of images that have not arrived yet. */
  #imagesLeft: number;

  constructor(answers: number) {
    super(TYPES);
    this.#imagesLeft = answers;
  }

  protected override readEvent(type: unknown, event: EventData, json: string): boolean {
    const isImage = IMAGES.includes(String(type));
    const isEnd = ENDS.includes(String(type));
    if (!isImage && !isEnd) return false;
    const spoken = type === "speech.audio.done" ? "audio" : undefined;
    const usage = isImage ? readImages(event, 1, json) : readMedia(event, spoken, json);
    if (usage !== undefined) this.usage = addTokens(this.usage, usage); // each image has its own
    return isEnd || --this.#imagesLeft <= 0;
  }

  toErrorEvent(error: GatewayError): string {
    return `event: error\ndata: ${toErrorJson(error)}\n\n`;
  }
}

/** The dialect of images, speech and transcriptions. */
export const OPENAI_MEDIA: Dialect = {
  createScanner: (answers) => new MediaScanner(answers),
  createMeter: () => new PlainAnswerMeter(readUsage),
  readUsage: (answer) => readPlainUsage(answer, readUsage),
  countOutput: countPlainOutput,
  toErrorBody: toErrorJson,
};
