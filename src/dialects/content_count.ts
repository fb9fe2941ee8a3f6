/**
 * Counts tokens of output roughly, by the bytes of the content that was relayed: for answers that state no tokens, and
 * for those that end before they do.
 *
 * @module
 */
import { endOfString, skipSpace, startsWithAt } from "./byte_search.ts";

const QUOTE = 0x22;
const COLON = 0x3a;

/**
 * Bytes of text for one token. With o200k_base English and code have 4.0, Chinese 4.2, German 5.3, Russian 7.5 and JSON
 * 2.9 (measured): close enough where a factor is learned from stated tokens.
 */
const BYTES_PER_TOKEN = 4;
/**
 * Bytes of base64 for one token: 3200 for sound at 20 tokens a second (24 kHz, 16 bits), about 2000 for a picture of
 * medium quality.
 */
const MEDIA_BYTES_PER_TOKEN = 2048;
/** Bytes of any stream of events for one token: events with a token each have 100 to 300, text has 4. */
const STREAM_BYTES_PER_TOKEN = 32;

/** The keys whose values are content of an answer, in all interfaces. */
const TEXT_KEYS = [
  "content",
  "text",
  "delta",
  "arguments",
  "reasoning_content",
  "reasoning",
  "thinking",
  "partial_json",
  "refusal",
  "transcript",
];
/** The keys whose values are sound or pictures, in base64. */
const MEDIA_KEYS = ["b64_json", "partial_image_b64", "audio", "data"];

const utf8 = new TextEncoder();
const decoder = new TextDecoder();
const KEYS = [...TEXT_KEYS, ...MEDIA_KEYS].map((key) => ({
  word: utf8.encode(key),
  isMedia: MEDIA_KEYS.includes(key),
}));

/** The longest beginning of an event in which a mark is looked for. Bytes. */
const MAX_BEGINNING = 256;

function toTokens(textBytes: number, mediaBytes: number): number {
  return Math.ceil(textBytes / BYTES_PER_TOKEN + mediaBytes / MEDIA_BYTES_PER_TOKEN);
}

/**
 * Counts the tokens of one stream. The events of a stream have their content in the same place, between the same bytes:
 * only where it stands elsewhere than in the event before it is it searched for.
 */
export class ContentCounter {
  readonly #marks: readonly Uint8Array[];
  #textBytes = 0;
  #mediaBytes = 0;
  #events = 0;
  /** Offset of the content in the event that had some last, and the last byte of its key. */
  #offset = 0;
  #keyEnd = 0;
  /** Distance of its closing quote from the event's end, and the byte after that quote. */
  #rest = 0;
  #after = 0;
  #isMedia = false;

  /** @param marks Ends of keys or types of which one stands in the beginning of each event with content; none for all */
  constructor(marks: readonly Uint8Array[]) {
    this.#marks = marks;
  }

  /** The tokens so far: one for four bytes of text, and at least one for each event with content. */
  get tokens(): number {
    return Math.max(this.#events, toTokens(this.#textBytes, this.#mediaBytes));
  }

  /**
   * Counts the content of an event.
   *
   * @param bytes The bytes that hold its data
   * @param start The offset of its first byte
   * @param end The offset after its last byte
   */
  count(bytes: Uint8Array, start: number, end: number): void {
    let from = start + this.#offset;
    if (bytes[from - 1] !== QUOTE || bytes[from - 4] !== this.#keyEnd || from >= end) {
      from = this.#find(bytes, start, end);
      if (from === -1) return;
    }
    let close = end - this.#rest;
    if (bytes[close] !== QUOTE || bytes[close + 1] !== this.#after || close < from) {
      close = endOfString(bytes, from, end);
      this.#rest = end - close;
      this.#after = bytes[close + 1] ?? 0;
    }
    if (close > from) this.#add(close - from);
  }

  /**
   * Counts the content of an event that is too long to be kept, or stands in several lines.
   *
   * @param skeleton Its JSON without the greater part of long strings, a character for each byte
   * @param omittedBytes Bytes of strings that are left out
   */
  countLong(skeleton: string, omittedBytes: number): void {
    const bytes = Uint8Array.from(skeleton, (byte) => byte.charCodeAt(0));
    const from = this.#find(bytes, 0, bytes.length);
    if (from !== -1) return this.#add(endOfString(bytes, from, bytes.length) - from + omittedBytes);
    if (omittedBytes === 0 || !this.#isMarked(bytes, 0, bytes.length)) return;
    this.#isMedia = true; // such as a picture in an array
    this.#add(omittedBytes);
  }

  #add(bytes: number): void {
    this.#events++;
    if (this.#isMedia) this.#mediaBytes += bytes;
    else this.#textBytes += bytes;
  }

  /** Finds the content of an event and notes its place; the longest where there are several. Returns -1 for none. */
  #find(bytes: Uint8Array, start: number, end: number): number {
    if (!this.#isMarked(bytes, start, end)) return -1;
    let [found, length] = [-1, 0];
    for (let at = start; at < end; at++) {
      if (bytes[at] !== QUOTE) continue;
      const close = endOfString(bytes, at + 1, end);
      const colon = skipSpace(bytes, close + 1);
      const value = skipSpace(bytes, colon + 1);
      const isText = bytes[colon] === COLON && bytes[value] === QUOTE;
      const stop = isText ? endOfString(bytes, value + 1, end) : close;
      const key = isText && stop - value - 1 > length ? keyAt(bytes, at + 1, close) : undefined;
      if (key !== undefined) {
        [found, length] = [value + 1, stop - value - 1];
        this.#isMedia = key.isMedia;
      }
      at = stop;
    }
    if (found !== -1) {
      this.#offset = found - start;
      this.#keyEnd = bytes[found - 4] ?? 0;
    }
    return found;
  }

  #isMarked(bytes: Uint8Array, start: number, end: number): boolean {
    if (this.#marks.length === 0) return true;
    const last = Math.min(end, start + MAX_BEGINNING);
    for (let at = start; at < last; at++) {
      if (bytes[at] !== QUOTE) continue;
      for (const mark of this.#marks) if (startsWithAt(bytes, mark, at + 1 - mark.length)) return true;
    }
    return false;
  }
}

function keyAt(bytes: Uint8Array, from: number, end: number): (typeof KEYS)[number] | undefined {
  return KEYS.find(({ word }) => word.length === end - from && startsWithAt(bytes, word, from));
}

/**
 * Counts the tokens of a stream of which nothing is known.
 *
 * @param byteLength Its length
 * @returns Their number, roughly
 */
export function countStream(byteLength: number): number {
  return Math.ceil(byteLength / STREAM_BYTES_PER_TOKEN);
}

/**
 * Counts the tokens of a text.
 *
 * @param byteLength Its length
 * @returns Their number, roughly
 */
export function countText(byteLength: number): number {
  return toTokens(byteLength, 0);
}

/** Adds up the content of a parsed answer. */
function countIn(answer: unknown): number {
  let [textBytes, mediaBytes] = [0, 0];
  const visit = (value: unknown, name: string): void => {
    if (typeof value === "string") {
      if (TEXT_KEYS.includes(name)) textBytes += utf8.encode(value).length;
      else if (MEDIA_KEYS.includes(name)) mediaBytes += value.length;
    } else if (Array.isArray(value)) {
      for (const each of value) visit(each, name);
    } else if (typeof value === "object" && value !== null) {
      if (name === "input") textBytes += JSON.stringify(value).length; // of a tool, which other interfaces have as text
      else for (const [key, each] of Object.entries(value)) visit(each, key);
    }
  };
  visit(answer, "");
  return toTokens(textBytes, mediaBytes);
}

/**
 * Counts the tokens of a plain answer's output. Vectors, scores and the like are none.
 *
 * @param answer All of it
 * @returns Their number, roughly
 */
export function countPlainOutput(answer: Uint8Array): number {
  try {
    return countIn(JSON.parse(decoder.decode(answer)));
  } catch {
    return countText(answer.length); // a transcript, for example
  }
}

/** Base64, as no text has it. */
const MEDIA = /[A-Za-z0-9+/]{4096}/;
const VECTORS = /"embedding"\s*:/;

/**
 * Counts the tokens of a plain answer's output by its end.
 *
 * @param end The end, long enough to tell what the answer consists of
 * @param byteLength The length of the whole answer
 * @returns Their number, roughly
 */
export function countByEnd(end: Uint8Array, byteLength: number): number {
  const text = decoder.decode(end);
  if (VECTORS.test(text)) return 0;
  return MEDIA.test(text) ? toTokens(0, byteLength) : toTokens(byteLength, 0);
}
