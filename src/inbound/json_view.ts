/**
 * The view of a large JSON body, read in one pass over its bytes and without a copy of its texts.
 *
 * Microseconds, decoded, guarded and parsed as a whole → in one pass (2026-11-24, in a loop):
 *
 * |                       | Node 26.10 | Bun 1.4.5  | Deno 2.9.5 |
 * | --------------------- | ---------- | ---------- | ---------- |
 * | 1 MB, 1,000 messages  | 1312 → 640 | 1100 → 513 | 1196 → 598 |
 * | 100 kB, 100 messages  | 122 → 63   | 101 → 53   | 112 → 55   |
 * | 4 kB, 4 messages      | 5.6 → 2.8  | 4.8 → 2.3  | 5.7 → 2.5  |
 * | one picture of 0.5 MB | 533 → 329  | 153 → 217  | 524 → 313  |
 *
 * It must be sound, but not complete. If a body is unusual in any way, it returns no view, and the
 * caller of this module reads the body the slow way, which makes all refusals. It never accepts a
 * body that the slow way refuses, and never returns another value, except for the texts of
 * {@link UNREAD_KEYS}. `npm run fuzz -- --what body` compares the two.
 *
 * @module
 */
import { MAX_DEPTH, MAX_MEMBERS, MAX_VALUES, SINGLE_KEYS, STRING_WEIGHT } from "./json_limits.ts";
import { readShortText } from "./interned_json_words.ts";

/**
 * Keys of texts that no check reads: most of a conversation, and values that differ in each
 * message.
 */
export const UNREAD_KEYS: ReadonlySet<string> = new Set([
  ...[
    "content",
    "text",
    "arguments",
    "output",
    "thinking",
    "reasoning_content",
    "signature",
    "description",
  ],
  ...["id", "call_id", "tool_call_id", "tool_use_id", "name"],
]);
/** Placeholder in the view for a text of {@link UNREAD_KEYS}, which was checked, but not copied. */
export const UNREAD_TEXT = "(unread)";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const MINUS = 0x2d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
/** The characters after a backslash that mean a single character. */
const ESCAPED = new Uint8Array(256);
for (const one of '"\\/bfnrt') ESCAPED[one.charCodeAt(0)] = 1;
/** The highest bit of each byte of a word. */
const HIGH = 0x80808080 | 0;
/** Mark of a text with an escape. */
const HAS_ESCAPE = 1;
/** The longest integer that is read digit by digit: below 2^53. */
const MAX_DIGITS = 15;
const NUMBER = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/;
/**
 * Maximum number of texts and numbers that are decoded one by one, at about 0.4 µs each: a minimum,
 * and one more for this number of bytes of the body. A body with more of them is read faster by
 * `JSON.parse`.
 */
const MIN_DECODED = 16;
const BYTES_PER_DECODED = 128;

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

const isBlank = (byte: number): boolean =>
  byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
const isDigit = (byte: number): boolean => byte >= 0x30 && byte <= 0x39;
const isHex = (byte: number): boolean =>
  isDigit(byte) || ((byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66);
/** Returns whether a byte can be in a number: a digit, a sign, a point or an exponent. */
const isInNumber = (byte = 0): boolean =>
  isDigit(byte) || byte === 0x2b || byte === MINUS || byte === 0x2e || (byte | 0x20) === 0x65;

/**
 * Marks the bytes of a word that end a run of plain characters: quotes, backslashes and control
 * characters. The lowest mark is correct. A subtraction that borrows from the next byte can set a
 * wrong mark above it.
 *
 * @returns The highest bit of each such byte
 */
function marksOf(word: number): number {
  // With its bit 2 inverted, a quote directly follows the control characters.
  return (((word ^ 0x02020202) - 0x21212121) | ((word ^ 0x5c5c5c5c) - 0x01010101)) & ~word & HIGH;
}

/** Thrown as soon as the body is unusual. */
const NOT_SURE = Symbol("not sure");

/**
 * Reads one body. A method for a token receives its position, and sets `#at` to the position after
 * it.
 */
class ViewReader {
  readonly #bytes: Uint8Array;
  readonly #words: DataView;
  #at = 0;
  #depth = 0;
  #members = 0;
  #values = 0;
  #decodable: number;
  /**
   * Marks of the last text: {@link HAS_ESCAPE}, and {@link HIGH}, in part, for characters outside
   * ASCII.
   */
  #marks = 0;
  /** The {@link SINGLE_KEYS} that were read. */
  readonly #single = new Set<string>();

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#decodable = MIN_DECODED + Math.floor(bytes.byteLength / BYTES_PER_DECODED);
  }

  /** Reads the whole body. */
  read(): unknown {
    const bytes = this.#bytes;
    const value = this.#value(this.#skip(0), "");
    for (let at = this.#at; at < bytes.length; at++) {
      if (!isBlank(bytes[at] as number)) throw NOT_SURE;
    }
    return value;
  }

  /** Returns the position of the next byte that is not white space. */
  #skip(from: number): number {
    const bytes = this.#bytes;
    for (let at = from; at < bytes.length; at++) if (!isBlank(bytes[at] as number)) return at;
    throw NOT_SURE;
  }

  #value(at: number, key: string): unknown {
    const first = this.#bytes[at] as number;
    if (first === QUOTE) return this.#text(at + 1, key);
    if (first === OPEN_OBJECT) return this.#object(at + 1);
    if (first === OPEN_ARRAY) return this.#array(at + 1);
    if (first === MINUS || isDigit(first)) return this.#number(at);
    if (first === 0x74) return this.#literal(at, "true", true);
    if (first === 0x66) return this.#literal(at, "false", false);
    return this.#literal(at, "null", null);
  }

  #object(from: number): unknown {
    if (++this.#depth > MAX_DEPTH || ++this.#members > MAX_MEMBERS) throw NOT_SURE;
    const bytes = this.#bytes;
    const fields: Record<string, unknown> = {};
    let at = this.#skip(from);
    if (bytes[at] !== CLOSE_OBJECT) {
      for (;;) {
        if (bytes[at] !== QUOTE) throw NOT_SURE;
        const key = this.#key(at + 1);
        at = this.#skip(this.#at);
        if (bytes[at] !== COLON || ++this.#members > MAX_MEMBERS) throw NOT_SURE;
        fields[key] = this.#value(this.#skip(at + 1), key);
        at = this.#skip(this.#at);
        if (bytes[at] === CLOSE_OBJECT) break;
        at = this.#afterComma(at);
      }
    }
    this.#at = at + 1;
    this.#depth--;
    return fields;
  }

  #array(from: number): unknown {
    if (++this.#depth > MAX_DEPTH || ++this.#members > MAX_MEMBERS) throw NOT_SURE;
    const bytes = this.#bytes;
    const items: unknown[] = [];
    let at = this.#skip(from);
    if (bytes[at] !== CLOSE_ARRAY) {
      for (;;) {
        items.push(this.#value(at, ""));
        at = this.#skip(this.#at);
        if (bytes[at] === CLOSE_ARRAY) break;
        at = this.#afterComma(at);
      }
    }
    this.#at = at + 1;
    this.#depth--;
    return items;
  }

  #afterComma(at: number): number {
    if (this.#bytes[at] !== COMMA || ++this.#values > MAX_VALUES) throw NOT_SURE;
    return this.#skip(at + 1);
  }

  #key(from: number): string {
    const end = this.#endOfText(from);
    const key = this.#marks === 0 ? this.#ascii(from, end) : this.#decode(from, end);
    // By assignment, `__proto__` would not become a key of the object.
    if ((this.#marks & HAS_ESCAPE) !== 0 || key === "__proto__") throw NOT_SURE;
    if (this.#depth === 1) {
      const name = key.toLowerCase();
      if (this.#marks !== 0 || this.#single.has(name)) throw NOT_SURE;
      if (SINGLE_KEYS.has(name)) this.#single.add(name);
    }
    return key;
  }

  #text(from: number, key: string): string {
    const end = this.#endOfText(from);
    const marks = this.#marks;
    const isUnread = UNREAD_KEYS.has(key);
    if (marks === 0) return isUnread ? UNREAD_TEXT : this.#ascii(from, end);
    if (marks === HAS_ESCAPE && isUnread) return UNREAD_TEXT;
    const text = this.#decode(from, end);
    if (isUnread) return UNREAD_TEXT;
    return (marks & HAS_ESCAPE) === 0 ? text : JSON.parse(`"${text}"`);
  }

  /** Returns the position of the quote that ends a text. */
  #endOfText(from: number): number {
    if ((this.#values += STRING_WEIGHT - 1) > MAX_VALUES) throw NOT_SURE;
    const bytes = this.#bytes;
    const words = this.#words;
    const lastWord = bytes.length - 4;
    let bits = 0; // of all bytes: the highest bit is set if one is outside ASCII
    let escape = 0;
    let at = from;
    for (;;) {
      let marks = 0; // outside: with it inside, V8 compiles the loop to half the speed (Node 26.10)
      for (; at <= lastWord; at += 4) {
        const word = words.getInt32(at, true);
        marks = marksOf(word);
        if (marks !== 0) {
          const lowest = marks & -marks;
          bits |= word & (lowest - 1);
          at += (31 - Math.clz32(lowest)) >> 3;
          break;
        }
        bits |= word;
      }
      if (at >= bytes.length) throw NOT_SURE;
      const byte = bytes[at] as number;
      if (byte === QUOTE) break;
      if (byte < 0x20) throw NOT_SURE;
      if (byte === BACKSLASH) {
        at = this.#endOfEscape(at);
        escape = HAS_ESCAPE;
      } else { // one of the last three bytes
        bits |= byte;
        at++;
      }
    }
    this.#marks = (bits & HIGH) | escape;
    this.#at = at + 1;
    return at;
  }

  #endOfEscape(at: number): number {
    const bytes = this.#bytes;
    if (at + 1 >= bytes.length) throw NOT_SURE;
    const kind = bytes[at + 1] as number;
    if (ESCAPED[kind] === 1) return at + 2;
    if (kind !== 0x75 || at + 5 >= bytes.length) throw NOT_SURE; // u
    for (let index = at + 2; index < at + 6; index++) {
      if (!isHex(bytes[index] as number)) throw NOT_SURE;
    }
    return at + 6;
  }

  /** Returns a text of plain ASCII. */
  #ascii(from: number, end: number): string {
    return readShortText(this.#words, from, end - from) ?? this.#decode(from, end);
  }

  /** Returns a text of any characters, with unchanged escapes. */
  #decode(from: number, end: number): string {
    if (--this.#decodable < 0) throw NOT_SURE;
    const text = utf8.decode(this.#bytes.subarray(from, end));
    if (text.includes("\ufffd")) throw NOT_SURE; // for an error, or as the caller wrote it
    return text;
  }

  #number(from: number): number {
    const bytes = this.#bytes;
    const start = bytes[from] === MINUS ? from + 1 : from;
    let at = start;
    let value = 0;
    while (at < bytes.length && isDigit(bytes[at] as number)) {
      value = 10 * value + (bytes[at++] as number) - 0x30;
    }
    const isInteger = at > start && at - start <= MAX_DIGITS &&
      (bytes[start] !== 0x30 || at === start + 1);
    if (isInteger && !isInNumber(bytes[at])) {
      this.#at = at;
      return start > from ? -value : value;
    }
    while (at < bytes.length && isInNumber(bytes[at])) at++;
    const text = this.#decode(from, at);
    if (!NUMBER.test(text)) throw NOT_SURE;
    this.#at = at;
    return Number(text);
  }

  #literal(at: number, text: string, value: unknown): unknown {
    for (let index = 0; index < text.length; index++) {
      if (this.#bytes[at + index] !== text.charCodeAt(index)) throw NOT_SURE;
    }
    this.#at = at + text.length;
    return value;
  }
}

/**
 * Reads a body in one pass.
 *
 * @returns Its view: its value, in which {@link UNREAD_TEXT} replaces every text of
 * {@link UNREAD_KEYS}; `undefined` if the body is unusual, which does not mean invalid
 */
export function readView(bytes: Uint8Array): unknown {
  try {
    return new ViewReader(bytes).read();
  } catch (error) {
    if (error === NOT_SURE) return undefined;
    throw error;
  }
}
