/**
 * Estimates tokens of output from the bytes of the relayed content, for answers that state no
 * tokens, and for answers that end before they state them.
 *
 * @module
 */
import { endOfString, skipSpace, startsWithAt } from "./byte_search.ts";

const QUOTE = 0x22;
const COLON = 0x3a;

/**
 * Bytes of text per token. With o200k_base English and code have 4.0, Chinese 4.2, German 5.3,
 * Russian 7.5 and JSON 2.9 (measured). This is close enough, because a factor is learned from
 * stated tokens.
 */
const BYTES_PER_TOKEN = 4;
/**
 * Counted bytes of a character of four bytes, such as an emoji: two tokens. With o200k_base common
 * emoji have 1.3, and all other such characters 3 (measured).
 */
const LONG_CHARACTER_BYTES = 8;
/** The lowest first byte of a character of four bytes. */
const LONG_CHARACTER = 0xf0;
/**
 * Bytes of base64 per token: 3200 for sound at 20 tokens a second (24 kHz, 16 bits), about 2000 for
 * a picture of medium quality.
 */
const MEDIA_BYTES_PER_TOKEN = 2048;
/**
 * Bytes per token of an unknown stream of events. Events with one token each have 100 to 300 bytes,
 * text has 4.
 */
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

/**
 * Keys of strings that are not content: names, states, signatures and padding. Any other string can
 * be content of an interface that the gateway does not know.
 */
const METADATA = new RegExp(
  "^(?:id|object|model|type|role|name|status|event|format|provider|obfuscation|p|token|" +
    "embedding|severity|url|title|date|language|voice|quality|size|background|created|filename|" +
    "mime_type|service_tier|encrypted_content)$|(?:_id|_reason|_at|_sequence|_type|_format|" +
    "_fingerprint|signature|Id|Reason|Signature)$",
);

/**
 * The keys of {@link METADATA} that each event of a chat has. They are compared as bytes, which
 * saves 1.5 µs for an event whose content is not at the same position as in the previous event
 * (2026-11-26).
 */
const FREQUENT = [
  "id",
  "object",
  "model",
  "role",
  "finish_reason",
  "system_fingerprint",
  "service_tier",
  "type",
]
  .map((key) => utf8.encode(key));

function isFrequent(bytes: Uint8Array, start: number, end: number): boolean {
  for (const word of FREQUENT) {
    if (word.length === end - start && startsWithAt(bytes, word, start)) return true;
  }
  return false;
}

/** Base64, longer than in any text. */
const MEDIA = /[A-Za-z0-9+/]{4096}/;
/** Number of bytes of a string that show if it is base64, for keys that do not show it. */
const MEDIA_SAMPLE = 4096;

/** The longest beginning of an event in which marks are searched. Bytes. */
const MAX_BEGINNING = 256;

/** Returns the counted bytes of a text. A character of four bytes is more than one token. */
function weigh(bytes: Uint8Array, start: number, end: number): number {
  let longs = 0;
  for (let at = start; at < end; at++) if ((bytes[at] as number) >= LONG_CHARACTER) longs++;
  return end - start + longs * (LONG_CHARACTER_BYTES - 4);
}

function toTokens(textBytes: number, mediaBytes: number): number {
  return Math.ceil(textBytes / BYTES_PER_TOKEN + mediaBytes / MEDIA_BYTES_PER_TOKEN);
}

/** Ends of keys and types, with their quotes, at the beginning of events. */
export interface ContentMarks {
  /** Marks of events that have content. */
  readonly spoken: readonly Uint8Array[];
  /** Marks of events that have none, or that repeat earlier content. */
  readonly silent: readonly Uint8Array[];
}

/** The marks of a stream in which every event can have content. */
export const NO_MARKS: ContentMarks = { spoken: [], silent: [] };

/**
 * Counts the tokens of one stream. The events of a stream usually have their content at the same
 * position, between the same bytes. The content is searched only if it is not at the position of
 * the previous event.
 */
export class ContentCounter {
  readonly #marks: ContentMarks;
  #textBytes = 0;
  #mediaBytes = 0;
  #events = 0;
  /**
   * Offset of the content in the last event with content, the last byte of its key, and the byte
   * before its quote.
   */
  #offset = 0;
  #keyEnd = 0;
  #colon = 0;
  /** Distance of its closing quote from the end of the event, and the byte after that quote. */
  #rest = 0;
  #after = 0;
  #isMedia = false;

  constructor(marks: ContentMarks) {
    this.#marks = marks;
  }

  /**
   * The tokens so far: one for four bytes of text, and at least one for each event with content.
   */
  get tokens(): number {
    return Math.max(this.#events, toTokens(this.#textBytes, this.#mediaBytes));
  }

  /**
   * Counts the content of an event.
   *
   * @returns Whether it has its content at the position of the previous event, with as many bytes
   * around it
   */
  count(bytes: Uint8Array, start: number, end: number): boolean {
    let from = start + this.#offset;
    const isInPlace = bytes[from - 1] === QUOTE && bytes[from - 2] === this.#colon &&
      bytes[from - 4] === this.#keyEnd;
    let isAlike = isInPlace && from < end;
    if (!isAlike) {
      from = this.#find(bytes, start, end);
      if (from === -1) return false;
    }
    let close = end - this.#rest;
    if (bytes[close] !== QUOTE || bytes[close + 1] !== this.#after || close < from) {
      isAlike = false;
      close = endOfString(bytes, from, end);
      this.#rest = end - close;
      this.#after = bytes[close + 1] ?? 0;
    }
    if (close > from) this.#add(this.#isMedia ? close - from : weigh(bytes, from, close));
    return isAlike;
  }

  /**
   * Counts the content of an event that is too long to be kept, or that has several lines.
   *
   * @param skeleton Its JSON without most of long strings, one character per byte
   * @param omittedBytes Number of omitted bytes of strings
   */
  countLong(skeleton: string, omittedBytes: number): void {
    const bytes = Uint8Array.from(skeleton, (byte) => byte.charCodeAt(0));
    const from = this.#find(bytes, 0, bytes.length);
    if (from !== -1) {
      return this.#add(weigh(bytes, from, endOfString(bytes, from, bytes.length)) + omittedBytes);
    }
    if (omittedBytes === 0 || !this.#isMarked(bytes, 0, bytes.length)) return;
    this.#isMedia = true; // such as a picture in an array
    this.#add(omittedBytes);
  }

  #add(bytes: number): void {
    this.#events++;
    if (this.#isMedia) this.#mediaBytes += bytes;
    else this.#textBytes += bytes;
  }

  /**
   * Finds the content of an event and notes its position. Keys with known content are preferred,
   * then the longest string. Returns -1 if there is none.
   */
  #find(bytes: Uint8Array, start: number, end: number): number {
    if (!this.#isMarked(bytes, start, end)) return -1;
    let found: Content | undefined;
    for (let at = start; at < end; at++) {
      if (bytes[at] !== QUOTE) continue;
      const close = endOfString(bytes, at + 1, end);
      const colon = skipSpace(bytes, close + 1);
      const value = skipSpace(bytes, colon + 1);
      const isText = bytes[colon] === COLON && bytes[value] === QUOTE;
      const stop = isText ? endOfString(bytes, value + 1, end) : close;
      if (isText && stop > value + 1) {
        found = better(
          found,
          contentAt(bytes, { key: at + 1, keyEnd: close, start: value + 1, end: stop }),
        );
      }
      at = stop;
    }
    if (found === undefined) return -1;
    this.#isMedia = found.isMedia;
    this.#offset = found.start - start;
    this.#keyEnd = bytes[found.start - 4] as number;
    this.#colon = bytes[found.start - 2] as number;
    return found.start;
  }

  /**
   * Returns whether an event can have content. False if its beginning has only marks of silent
   * events.
   */
  #isMarked(bytes: Uint8Array, start: number, end: number): boolean {
    const { spoken, silent } = this.#marks;
    if (silent.length === 0) return true;
    const last = Math.min(end, start + MAX_BEGINNING);
    let isSilent = false;
    for (let at = start; at < last; at++) {
      if (bytes[at] !== QUOTE) continue;
      if (endsWithOne(bytes, spoken, at + 1)) return true;
      isSilent ||= endsWithOne(bytes, silent, at + 1);
    }
    return !isSilent;
  }
}

const endsWithOne = (bytes: Uint8Array, marks: readonly Uint8Array[], end: number): boolean =>
  marks.some((mark) => startsWithAt(bytes, mark, end - mark.length));

/** A string of an event that can be content. */
interface Content {
  /** The offset of its first byte. */
  readonly start: number;
  readonly length: number;
  /** True if its key is known to have content. */
  readonly isKnown: boolean;
  readonly isMedia: boolean;
}

/** Returns the string that is more likely the content. */
function better(one: Content | undefined, other: Content | undefined): Content | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  if (one.isKnown !== other.isKnown) return one.isKnown ? one : other;
  return other.length > one.length ? other : one;
}

/** Reads a key and its string; `undefined` if they are not content. */
function contentAt(
  bytes: Uint8Array,
  { key, keyEnd, start, end }: { key: number; keyEnd: number; start: number; end: number },
): Content | undefined {
  const length = end - start;
  const known = KEYS.find(({ word }) =>
    word.length === keyEnd - key && startsWithAt(bytes, word, key)
  );
  if (known !== undefined) return { start, length, isKnown: true, isMedia: known.isMedia };
  if (isFrequent(bytes, key, keyEnd)) return undefined;
  if (METADATA.test(decoder.decode(bytes.subarray(key, keyEnd)))) return undefined;
  const isMedia = length >= MEDIA_SAMPLE &&
    MEDIA.test(decoder.decode(bytes.subarray(start, start + MEDIA_SAMPLE)));
  return { start, length, isKnown: false, isMedia };
}

/** Counts the tokens of an unknown stream. */
export function countStream(byteLength: number): number {
  return Math.ceil(byteLength / STREAM_BYTES_PER_TOKEN);
}

/**
 * Counts the tokens of a text.
 *
 * @param text The text, or a part of it
 * @returns Their estimated number, not rounded, so that parts can be added
 */
export function countText(text: Uint8Array): number {
  return weigh(text, 0, text.length) / BYTES_PER_TOKEN;
}

/**
 * The parts of an answer in which any string can be content. In other parts providers repeat the
 * request.
 */
const OUTPUT_KEYS: ReadonlySet<string> = new Set([
  "choices",
  "output",
  "content",
  "message",
  "data",
  "candidates",
]);

/** Adds up the content of a parsed answer. */
function countIn(answer: unknown): number {
  let textBytes = 0;
  let mediaBytes = 0;
  const addText = (text: string): void => {
    const bytes = utf8.encode(text);
    textBytes += weigh(bytes, 0, bytes.length);
  };
  const addUnknown = (text: string): void => {
    if (MEDIA.test(text.slice(0, MEDIA_SAMPLE))) mediaBytes += text.length;
    else addText(text);
  };
  const visit = (value: unknown, name: string, isOutput: boolean): void => {
    if (typeof value === "string") {
      if (TEXT_KEYS.includes(name)) addText(value);
      else if (MEDIA_KEYS.includes(name)) mediaBytes += value.length;
      else if (isOutput && !METADATA.test(name)) addUnknown(value);
    } else if (Array.isArray(value)) {
      for (const each of value) visit(each, name, isOutput);
    } else if (typeof value === "object" && value !== null) {
      // Arguments of a tool, which other interfaces have as text.
      if (name === "input") addText(JSON.stringify(value));
      else {for (const [key, each] of Object.entries(value)) {
          if (key !== "error") visit(each, key, isOutput || OUTPUT_KEYS.has(key));
        }}
    }
  };
  visit(answer, "", false);
  return toTokens(textBytes, mediaBytes);
}

/** Counts the tokens of a plain answer's output. Vectors, scores and similar values have none. */
export function countPlainOutput(answer: Uint8Array): number {
  try {
    return countIn(JSON.parse(decoder.decode(answer)));
  } catch {
    return Math.ceil(countText(answer)); // a transcript, for example
  }
}

const VECTORS = /"embedding"\s*:/;

/**
 * Counts the tokens of a plain answer's output from its end.
 *
 * @param end The end, long enough to show the content of the answer
 */
export function countByEnd(end: Uint8Array, byteLength: number): number {
  const text = decoder.decode(end);
  if (VECTORS.test(text)) return 0;
  return MEDIA.test(text) ? toTokens(0, byteLength) : toTokens(byteLength, 0);
}
