/**
 * Scans a stream of server-sent events (WHATWG HTML §9.2.5) without changing or keeping it: finds
 * the ends of events, and separates payload from comments. The dialect interprets the data.
 *
 * @module
 */
import { joinChunks } from "../http/read_all.ts";
import { startsWithAt } from "./byte_search.ts";
import { ContentCounter, type ContentMarks, NO_MARKS } from "./content_count.ts";
import { MAX_KEPT_BYTES } from "./dialect.ts";
import { JsonSkeleton } from "./json_skeleton.ts";

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const COLON = 0x3a;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

const ascii = (text: string): Uint8Array => new TextEncoder().encode(text);
const DATA = ascii("data");
const EVENT = ascii("event");
const ERROR_NAME = ascii("error");
const DONE = ascii("[DONE]");
const LINE_END = Uint8Array.of(LF);

/** Returns whether a line of data is `[DONE]`, which ends streams of OpenAI's interfaces. */
export function isDoneLine(bytes: Uint8Array, start: number, end: number): boolean {
  return end - start === DONE.length && startsWithAt(bytes, DONE, start);
}

/** Finds the value of a field; -1 if the line has another field. */
function valueOf(field: Uint8Array, bytes: Uint8Array, start: number): number {
  if (!startsWithAt(bytes, field, start) || bytes[start + field.length] !== COLON) return -1;
  const value = start + field.length + 1;
  return bytes[value] === SPACE ? value + 1 : value;
}

const isLineEnd = (byte: number | undefined): boolean => byte === LF || byte === CR;

/** Scans one stream. The results do not depend on the division into chunks. */
export abstract class EventScanner {
  /**
   * True if the current event has its content at the position of the previous one, with as many
   * bytes around it.
   */
  protected isAlike = false;
  /** The number of non-empty `data` lines so far. */
  payloadCount = 0;
  /**
   * True after an event of the provider that is named `error`, or that is an error in the dialect.
   */
  hasError = false;
  readonly clientsReadErrorEvent: boolean = true;

  /**
   * The bytes of the unfinished line so far, unless it is long. `#lineBytes` always counts them.
   */
  #parts: Uint8Array[] = [];
  #lineBytes = 0;
  #isFirstLine = true;
  #isAfterCr = false;
  #isLongLine = false;
  #isLongData = false;
  #isInEvent = false;
  #isNamedError = false;
  /** The first line of data in this event, in case another line continues it. */
  #data: Uint8Array | undefined;
  #dataStart = 0;
  #dataEnd = 0;
  /** The skeleton of this event's data, once that is too long to be kept, or has several lines. */
  #skeleton: JsonSkeleton | undefined;
  #hasEndedInLine = false;
  readonly #content: ContentCounter;
  readonly #listDepth: number | undefined;

  /**
   * @param contentMarks Marks of events with and without content; none if all events can have
   * content
   * @param listDepth Depth of the lists that are read in an event that is too long to be kept
   */
  constructor(contentMarks: ContentMarks = NO_MARKS, listDepth?: number) {
    this.#content = new ContentCounter(contentMarks);
    this.#listDepth = listDepth;
  }

  /** Estimated tokens of output so far. */
  get outputTokens(): number {
    return this.#content.tokens;
  }

  /** True if an event of the gateway can be inserted now without a {@link boundary} before it. */
  get isAtBoundary(): boolean {
    return this.#lineBytes === 0 && !this.#isInEvent && !this.#hasEndedInLine;
  }

  /** The text to send before an event of the gateway: it ends the unfinished line and event. */
  get boundary(): string {
    if (this.isAtBoundary) return "";
    // After CR, the first LF ends the same line.
    const isLineEnded = this.#lineBytes === 0 && !this.#hasEndedInLine && !this.#isAfterCr;
    return isLineEnded ? "\n" : "\n\n";
  }

  /** True if the unfinished event's data has several lines so far. */
  protected get hasSeveralLines(): boolean {
    return this.#skeleton !== undefined;
  }

  /** Reads one line of data. The bytes must not be kept. */
  protected abstract readLine(bytes: Uint8Array, start: number, end: number): void;

  /** Reads the data of an event with several lines, or with a line that is too long to be kept. */
  protected abstract readText(text: string): void;

  /** Reads the name of an event. The bytes must not be kept. */
  protected readName(_bytes: Uint8Array, _start: number, _end: number): void {}

  /** Handles data in an event that is named `error`. */
  protected noteError(): void {
    this.hasError = true;
  }

  /** Handles the blank line after an event, at which client libraries deliver it. */
  protected endEvent(): void {}

  /** Scans the next bytes. */
  push(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    this.#lines(chunk);
    // A copy, because runtimes can reuse the buffer.
    if (this.#data === chunk) {
      this.#setData(
        chunk.slice(this.#dataStart, this.#dataEnd),
        0,
        this.#dataEnd - this.#dataStart,
      );
    }
  }

  /**
   * Notes the end of the stream. Like client libraries, it reads a last line without a line end.
   */
  end(): void {
    if (this.#lineBytes === 0) return;
    this.#hasEndedInLine = true;
    this.#endLine(new Uint8Array(0), 0, 0);
  }

  #lines(chunk: Uint8Array): void {
    let from = this.#isAfterCr && chunk[0] === LF ? 1 : 0;
    this.#isAfterCr = false;
    let cr = chunk.indexOf(CR, from);
    let lf = chunk.indexOf(LF, from);
    while (from < chunk.length) {
      if (isLineEnd(chunk[from]) && this.isAtBoundary) {
        from = this.#skipBlankLines(chunk, from);
        continue;
      }
      // Each search result is kept until it is passed, so that a stream with one kind of line end
      // is not searched twice.
      if (cr !== -1 && cr < from) cr = chunk.indexOf(CR, from);
      if (lf !== -1 && lf < from) lf = chunk[from] === LF ? from : chunk.indexOf(LF, from);
      const end = lf === -1 || (cr !== -1 && cr < lf) ? cr : lf;
      if (end === -1) return this.#keep(chunk, from, chunk.length);
      this.#endLine(chunk, from, end);
      from = end + 1;
      if (end === cr) {
        if (from === chunk.length) this.#isAfterCr = true;
        else if (chunk[from] === LF) from++;
      }
    }
  }

  /**
   * Skips blank lines between events. A stream can consist of them. @returns The offset after them
   */
  #skipBlankLines(chunk: Uint8Array, from: number): number {
    let at = from;
    while (isLineEnd(chunk[at])) at++;
    this.#isFirstLine = false;
    this.#isAfterCr = at === chunk.length && chunk[at - 1] === CR;
    return at;
  }

  /** Keeps a part of a line. If the line is too long, it keeps only the part for its skeleton. */
  #keep(chunk: Uint8Array, from: number, end: number): void {
    this.#lineBytes += end - from;
    if (this.#isLongLine) {
      if (this.#isLongData) this.#skeleton?.push(chunk, from, end);
    } else if (this.#lineBytes <= MAX_KEPT_BYTES) {
      this.#parts.push(chunk.slice(from, end)); // a copy: a view would keep all of the chunk
    } else {
      this.#isLongLine = true;
      const line = joinChunks([...this.#parts, chunk.subarray(from, end)]);
      this.#parts = [];
      const start = this.#skipMark(line, 0);
      if (line[start] === COLON) return;
      this.#isInEvent = true;
      const value = valueOf(DATA, line, start);
      this.#isLongData = value !== -1;
      if (this.#isLongData) this.#addData(line, value, line.length);
    }
  }

  #endLine(chunk: Uint8Array, from: number, end: number): void {
    if (this.#lineBytes === 0 && end - from <= MAX_KEPT_BYTES) return this.#line(chunk, from, end);
    this.#keep(chunk, from, end);
    this.#lineBytes = 0;
    if (this.#isLongLine) {
      if (this.#isLongData) this.#endPayload();
      this.#isLongLine = this.#isLongData = false;
      return;
    }
    const line = joinChunks(this.#parts);
    this.#parts = [];
    this.#line(line, 0, line.length);
  }

  #skipMark(bytes: Uint8Array, from: number): number {
    if (!this.#isFirstLine) return from;
    this.#isFirstLine = false;
    return BYTE_ORDER_MARK.every((byte, index) => bytes[from + index] === byte)
      ? from + BYTE_ORDER_MARK.length
      : from;
  }

  #line(bytes: Uint8Array, from: number, end: number): void {
    const start = this.#skipMark(bytes, from);
    if (start === end) {
      if (this.#isInEvent) this.endEvent();
      this.#isInEvent = this.#isNamedError = false;
      this.#data = this.#skeleton = undefined;
      return;
    }
    if (bytes[start] === COLON) return;
    this.#isInEvent = true;
    const value = valueOf(DATA, bytes, start);
    if (value === -1) return this.#name(bytes, start, end);
    if (value >= end) return;
    if (this.#data !== undefined || this.#skeleton !== undefined) this.#addData(bytes, value, end);
    else this.#setData(bytes, value, end);
    this.isAlike = this.#skeleton === undefined && this.#content.count(bytes, value, end);
    this.#endPayload();
    this.readLine(bytes, value, end);
  }

  /** Handles an event's name, which can also follow its data. */
  #name(bytes: Uint8Array, start: number, end: number): void {
    const value = valueOf(EVENT, bytes, start);
    if (value === -1) return;
    this.#isNamedError = end - value === ERROR_NAME.length &&
      startsWithAt(bytes, ERROR_NAME, value);
    if (this.#isNamedError && (this.#data !== undefined || this.#skeleton !== undefined)) {
      this.noteError();
    }
    this.readName(bytes, value, end);
  }

  #setData(bytes: Uint8Array, start: number, end: number): void {
    this.#data = bytes;
    this.#dataStart = start;
    this.#dataEnd = end;
  }

  /** Joins a line of data to the earlier lines of its event. Together they are one text. */
  #addData(bytes: Uint8Array, start: number, end: number): void {
    const isFirst = this.#data === undefined && this.#skeleton === undefined;
    const skeleton = this.#skeleton ??= new JsonSkeleton(this.#listDepth);
    if (this.#data !== undefined) skeleton.push(this.#data, this.#dataStart, this.#dataEnd);
    this.#data = undefined;
    if (!isFirst) skeleton.push(LINE_END, 0, 1);
    skeleton.push(bytes, start, end);
  }

  /**
   * Ends a line of data: counts it, and reads the event's text if that has several lines or is
   * long.
   */
  #endPayload(): void {
    this.payloadCount++;
    if (this.#isNamedError) this.noteError();
    if (this.#skeleton === undefined) return;
    const { text, omittedBytes } = this.#skeleton;
    if (text === undefined) return;
    this.#content.countLong(text, omittedBytes);
    this.readText(text);
  }
}
