/**
 * OpenAI's interfaces of images, speech and transcriptions, which stream their own events
 * (https://platform.openai.com/docs/api-reference/images-streaming).
 *
 * @module
 */
import { type GatewayError, toErrorJson } from "../errors/gateway_error.ts";
import { countPlainOutput } from "./content_count.ts";
import type { Dialect } from "./dialect.ts";
import { readUsage } from "./openai_responses.ts";
import { addTokens, PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { type EventData, tellingTypes, TypedEventScanner } from "./typed_events.ts";

/** The events that end an image. */
const IMAGES = ["image_generation.completed", "image_edit.completed"];
/** The events that end the stream. */
const ENDS = ["speech.audio.done", "transcript.text.done"];
const TYPES = tellingTypes(...IMAGES, ...ENDS);

/** Watches one stream of images, speech or a transcript. */
class MediaScanner extends TypedEventScanner {
  /** The number of images that have not arrived yet. */
  #imagesLeft: number;

  constructor(choices: number) {
    super(TYPES);
    this.#imagesLeft = choices;
  }

  protected override readEvent(type: unknown, event: EventData): boolean {
    const isImage = IMAGES.includes(String(type));
    const isEnd = ENDS.includes(String(type));
    if (!isImage && !isEnd) return false;
    const usage = readUsage(event);
    if (usage !== undefined) this.usage = addTokens(this.usage, usage); // each image has its own
    return isEnd || --this.#imagesLeft <= 0;
  }

  toErrorEvent(error: GatewayError): string {
    return `event: error\ndata: ${toErrorJson(error)}\n\n`;
  }
}

/** The dialect of images, speech and transcriptions. */
export const OPENAI_EVENTS: Dialect = {
  createScanner: (choices) => new MediaScanner(choices),
  createMeter: () => new PlainAnswerMeter(readUsage),
  readUsage: (answer) => readPlainUsage(answer, readUsage),
  countOutput: countPlainOutput,
  toErrorBody: toErrorJson,
};
