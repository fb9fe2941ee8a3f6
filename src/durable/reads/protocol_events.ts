/**
 * A recorded answer as events of the durable-streams protocol (PROTOCOL.md §5.8): `data` with
 * bytes, each followed by `control` with the next offset to read.
 *
 * @module
 */
import type { ByteSink, PushedBody } from "../../http/message.ts";
import { joinChunks } from "../../http/read_all.ts";
import type { AnswerReader } from "../recording_reader.ts";
import { toToken } from "./stream_read.ts";

/**
 * Encodings of bytes in events. JSON is one message, which is complete when the answer has ended.
 */
export type EventForm = "text" | "base64" | "json";

export interface ProtocolEventsOptions {
  readonly reader: AnswerReader;
  readonly form: EventForm;
  /** Returns the number of bytes so far. */
  readonly length: () => number;
  /** True if the answer has ended. */
  readonly isEnded: boolean;
  readonly cursor: string;
}

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const DATA = encode("event: data\n");
const LINE = encode("data:");
/** A reader of events removes one space after the colon. */
const LINE_OF_SPACE = encode("data: ");
const LINE_END = encode("\n");
const NOTHING = new Uint8Array(0);

export class ProtocolEvents implements PushedBody {
  readonly #options: ProtocolEventsOptions;
  /** Offset of the next byte for an event. For JSON, the offset of the message. */
  #offset: number;
  /** Bytes that cannot end an event: a part of a character, or a CR that LF can follow. */
  #held: Uint8Array = NOTHING;
  #hasBegun = false;
  /** True if only the end is still to be sent, because the sink was not ready for it. */
  #isEndDue = false;
  #askForMore = (): void => {};

  constructor(options: ProtocolEventsOptions) {
    this.#options = options;
    this.#offset = options.reader.offset;
  }

  pushTo(sink: ByteSink): () => void {
    const { reader, isEnded, form, length } = this.#options;
    const start = () => {
      this.#askForMore = reader.pushTo({
        write: (bytes) => {
          const events = form === "json" ? this.#toJsonPart(bytes) : this.#toEvents(bytes, false);
          return events.byteLength === 0 || sink.write(events);
        },
        end: () => this.#end(sink),
        fail: (error) => sink.fail(error),
      });
    };
    const isUpToDate = !isEnded && (form === "json" || this.#offset >= length());
    // A caller that is up to date is informed at once.
    if (!isUpToDate || sink.write(this.#toControl(false))) start();
    else this.#askForMore = start;
    return () => this.#isEndDue ? this.#endNow(sink) : this.#askForMore();
  }

  cancel(): void {
    this.#options.reader.cancel();
  }

  #end(sink: ByteSink): void {
    const { form, reader } = this.#options;
    const rest = form === "json" ? this.#endJson() : this.#toEvents(NOTHING, true);
    this.#offset = reader.offset;
    if (sink.write(joinChunks([rest, this.#toControl(true)]))) sink.end();
    else this.#isEndDue = true;
  }

  #endNow(sink: ByteSink): void {
    this.#isEndDue = false;
    sink.end();
  }

  /** Wraps bytes in an event, and adds the next offset to read. */
  #toEvents(more: Uint8Array, isLast: boolean): Uint8Array {
    const { form, reader } = this.#options;
    const bytes = this.#held.byteLength === 0 ? more : joinChunks([this.#held, more]);
    const to = form === "base64" || isLast ? bytes.byteLength : lengthOfWhole(bytes);
    this.#held = bytes.slice(to);
    if (to === 0) return NOTHING;
    this.#offset = reader.offset - this.#held.byteLength;
    const whole = bytes.subarray(0, to);
    const lines = form === "base64" ? [LINE, encode(toBase64(whole)), LINE_END] : toLines(whole);
    return joinChunks([DATA, ...lines, LINE_END, this.#toControl(false)]);
  }

  /**
   * Continues the one event of a JSON answer. A line can begin between any two tokens. Line ends
   * occur only there.
   */
  #toJsonPart(bytes: Uint8Array): Uint8Array {
    const parts = this.#hasBegun ? [] : [DATA, encode("data:[\ndata:")];
    this.#hasBegun = true;
    let start = 0;
    for (let at = 0; at < bytes.byteLength; at++) {
      if (bytes[at] !== LF && bytes[at] !== CR) continue;
      parts.push(bytes.subarray(start, at), LINE_END, LINE);
      start = at + 1;
    }
    parts.push(bytes.subarray(start));
    return joinChunks(parts);
  }

  #endJson(): Uint8Array {
    return this.#hasBegun ? encode("\ndata:]\n\n") : NOTHING;
  }

  #toControl(isClosed: boolean): Uint8Array {
    const { length, cursor, form } = this.#options;
    const isUpToDate = isClosed || form === "json" ||
      this.#offset + this.#held.byteLength >= length();
    return encode(`event: control\ndata:${
      JSON.stringify({
        streamNextOffset: toToken(this.#offset),
        ...(isClosed ? { streamClosed: true } : { streamCursor: cursor }),
        ...(isUpToDate && { upToDate: true }),
      })
    }\n\n`);
  }
}

/**
 * Splits text into lines of an event's data. CR LF, CR and LF each end a line. Readers receive LF.
 */
function toLines(text: Uint8Array): Uint8Array[] {
  const parts: Uint8Array[] = [];
  const add = (from: number, to: number) =>
    parts.push(text[from] === SPACE ? LINE_OF_SPACE : LINE, text.subarray(from, to), LINE_END);
  let start = 0;
  for (let at = 0; at < text.byteLength; at++) {
    if (text[at] !== LF && text[at] !== CR) continue;
    add(start, at);
    if (text[at] === CR && text[at + 1] === LF) at++;
    start = at + 1;
  }
  add(start, text.byteLength);
  return parts;
}

/**
 * Returns the length of bytes without an ending that must not end an event: CR, or an incomplete
 * character of UTF-8.
 */
function lengthOfWhole(bytes: Uint8Array): number {
  const { byteLength } = bytes;
  if (bytes[byteLength - 1] === CR) return byteLength - 1;
  for (let back = 1; back <= Math.min(3, byteLength); back++) {
    const byte = bytes[byteLength - back] as number;
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;
    return lengthOfCharacter(byte) > back ? byteLength - back : byteLength;
  }
  return byteLength;
}

/** Returns the length of a character of UTF-8 by its first byte. */
function lengthOfCharacter(first: number): number {
  if (first >= 0xf0) return 4;
  return first >= 0xe0 ? 3 : 2;
}

/** Encodes bytes in base64 (RFC 4648 §4). */
function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.byteLength; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(text);
}
