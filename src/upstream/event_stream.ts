/**
 * Watches a stream of server-sent events go by (WHATWG HTML §9.2.5) without touching or keeping it: where an event
 * ends, what is payload and what a comment, and whether the chat completion in it came to its end.
 *
 * @module
 */
import { joinChunks } from "../byte_source.ts";
import type { TokenUsage } from "../exchange.ts";
import { readUsage } from "./usage.ts";

const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const COLON = 0x3a;
const UNDERSCORE = 0x5f;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

const ascii = (text: string): Uint8Array => new TextEncoder().encode(text);
const DATA = ascii("data");
const DONE = ascii("[DONE]");
const BEFORE_UNDERSCORE = ascii('"finish');
const AFTER_UNDERSCORE = ascii('reason"');
/** After the underscore of `prompt_tokens` and its like: every statement of usage has one. */
const TOKENS = ascii('tokens"');

/** `n` is at most 128 (OpenAI's reference); what an upstream numbers beyond is not kept in mind. */
const MAX_CHOICES = 128;

/** A line longer than this is relayed like any other, but no longer looked into. Bytes. */
export const MAX_WATCHED_LINE_BYTES = 65536;

function startsWithAt(bytes: Uint8Array, word: Uint8Array, at: number): boolean {
  for (let index = 0; index < word.length; index++) if (bytes[at + index] !== word[index]) return false;
  return true;
}

function skipSpace(bytes: Uint8Array, at: number): number {
  while (bytes[at] === SPACE || bytes[at] === TAB) at++;
  return at;
}

/** Watches one stream. Any way of cutting the stream into chunks leads to the same findings. */
export class EventStreamScanner {
  /** `data` lines with something in them so far: what counts as speech. */
  payloads = 0;
  /** Whether `data: [DONE]` went by. */
  isDone = false;
  /** Tokens as stated so far; some providers state them once, some with every chunk. */
  usage: TokenUsage | undefined;

  readonly #hasSeveralChoices: boolean;
  readonly #begun = new Set<number>();
  readonly #finished = new Set<number>();
  /** The unfinished line: its bytes so far, up to the limit, and how many it has in truth. */
  #parts: Uint8Array[] = [];
  #partBytes = 0;
  #lineBytes = 0;
  #isFirstLine = true;
  #isAfterCr = false;
  #isInEvent = false;
  #hasEndedInLine = false;
  /** Where the next underscore stands in the buffer that is looked into: each byte is searched once. */
  #searched: Uint8Array | undefined;
  #underscore = -1;

  /** @param choices How many choices the caller asked for (`n`) */
  constructor(choices: number) {
    this.#hasSeveralChoices = choices > 1;
  }

  /** Whether an event of ours may be put in here as it is. */
  get isAtBoundary(): boolean {
    return this.#lineBytes === 0 && !this.#isInEvent && !this.#hasEndedInLine;
  }

  /** What must be sent so that an event of ours starts clean: it ends the unfinished line and event. */
  get boundary(): string {
    if (this.isAtBoundary) return "";
    return this.#lineBytes === 0 && !this.#hasEndedInLine ? "\n" : "\n\n";
  }

  /** Complete means: `[DONE]`, or a finish reason for every choice that began. */
  get isComplete(): boolean {
    if (this.isDone) return true;
    for (const index of this.#begun) if (!this.#finished.has(index)) return false;
    return this.#finished.size > 0;
  }

  /**
   * Takes note of the next bytes.
   *
   * @param chunk As it came
   */
  push(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    this.#searched = undefined; // a runtime may use its buffer again
    let from = this.#isAfterCr && chunk[0] === LF ? 1 : 0;
    this.#isAfterCr = false;
    let cr = chunk.indexOf(CR, from);
    while (from < chunk.length) {
      const lf = chunk.indexOf(LF, from);
      if (cr !== -1 && cr < from) cr = chunk.indexOf(CR, from);
      const end = lf === -1 || (cr !== -1 && cr < lf) ? cr : lf;
      if (end === -1) return this.#keep(chunk, from);
      this.#endLine(chunk, from, end);
      from = end + 1;
      if (end === cr) {
        if (from === chunk.length) this.#isAfterCr = true;
        else if (chunk[from] === LF) from++;
      }
    }
  }

  /** Takes note that nothing more comes: client libraries read a last line without a line end, and so does this. */
  end(): void {
    if (this.#lineBytes === 0) return;
    this.#hasEndedInLine = true;
    this.#endLine(new Uint8Array(0), 0, 0);
  }

  #keep(chunk: Uint8Array, from: number): void {
    this.#lineBytes += chunk.length - from;
    const room = MAX_WATCHED_LINE_BYTES - this.#partBytes;
    if (room <= 0) return;
    const part = new Uint8Array(chunk.subarray(from, from + room)); // a copy: a view would hold the whole chunk
    this.#parts.push(part);
    this.#partBytes += part.length;
  }

  #endLine(chunk: Uint8Array, from: number, end: number): void {
    if (this.#lineBytes === 0) return this.#line(chunk, from, end, end - from <= MAX_WATCHED_LINE_BYTES);
    this.#keep(chunk.subarray(0, end), from);
    const isWhole = this.#lineBytes === this.#partBytes;
    const line = joinChunks(this.#parts);
    this.#parts = [];
    this.#partBytes = this.#lineBytes = 0;
    this.#line(line, 0, line.length, isWhole);
  }

  #line(bytes: Uint8Array, from: number, end: number, isWhole: boolean): void {
    let start = from;
    if (this.#isFirstLine) {
      this.#isFirstLine = false;
      if (BYTE_ORDER_MARK.every((byte, index) => bytes[start + index] === byte)) start += BYTE_ORDER_MARK.length;
    }
    if (start === end) {
      this.#isInEvent = false;
      return;
    }
    if (bytes[start] === COLON) return;
    this.#isInEvent = true;
    if (!startsWithAt(bytes, DATA, start) || bytes[start + DATA.length] !== COLON) return;
    start += DATA.length + 1;
    if (bytes[start] === SPACE) start++;
    if (start >= end) return;
    this.payloads++;
    if (isWhole) this.#payload(bytes, start, end);
  }

  #payload(bytes: Uint8Array, start: number, end: number): void {
    if (end - start === DONE.length && startsWithAt(bytes, DONE, start)) this.isDone = true;
    else if (this.#hasSeveralChoices || this.#isTelling(bytes, start, end)) this.#readChunk(bytes, start, end);
  }

  /** Whether `"finish_reason"` with a string, or a count of tokens, stands here. In a text its quotes are escaped. */
  #isTelling(bytes: Uint8Array, start: number, end: number): boolean {
    if (this.#searched !== bytes) {
      this.#searched = bytes;
      this.#underscore = bytes.indexOf(UNDERSCORE, start);
    }
    while (this.#underscore !== -1 && this.#underscore < end) {
      const at = this.#underscore;
      if (startsWithAt(bytes, TOKENS, at + 1)) return true;
      if (
        at > start && startsWithAt(bytes, BEFORE_UNDERSCORE, at - BEFORE_UNDERSCORE.length) &&
        startsWithAt(bytes, AFTER_UNDERSCORE, at + 1)
      ) {
        const colon = skipSpace(bytes, at + 1 + AFTER_UNDERSCORE.length);
        if (bytes[colon] === COLON && bytes[skipSpace(bytes, colon + 1)] === QUOTE) return true;
      }
      this.#underscore = bytes.indexOf(UNDERSCORE, at + 1);
    }
    return false;
  }

  #readChunk(bytes: Uint8Array, start: number, end: number): void {
    try {
      const answer = JSON.parse(new TextDecoder().decode(bytes.subarray(start, end)));
      this.usage = readUsage(answer) ?? this.usage;
      const { choices = [] } = answer;
      for (const { index = 0, finish_reason: reason } of choices) {
        if (!Number.isInteger(index) || index < 0 || index >= MAX_CHOICES) continue;
        this.#begun.add(index);
        if (typeof reason === "string") this.#finished.add(index);
      }
    } catch {
      // No chat completion chunk: the provider's business, and no sign that anything was finished.
    }
  }
}
