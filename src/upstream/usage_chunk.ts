/**
 * Removes from a stream the chunk that the gateway has asked for and the caller has not. Every
 * other byte passes as it came, and when it came: only an unfinished event that may still be that
 * chunk is held back.
 *
 * @module
 */
import type { UsageOptIn } from "../dialects/dialect.ts";
import type { ByteSink, PushedBody } from "../http/message.ts";
import { joinChunks } from "../http/read_all.ts";

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const COLON = 0x3a;
const DATA = new TextEncoder().encode("data:");
const NOTHING = new Uint8Array(0);
/** The most bytes of an event that are held back; the chunk has a few hundred. */
const MAX_HELD_BYTES = 8192;
/**
 * Size from which a held line is not looked at again for each piece. In a chunk, `choices` stands
 * before. Bytes.
 */
const MIN_LONG_BYTES = 256;

/** Finds the end of a line; -1 if it is still to come. */
function endOfLine(bytes: Uint8Array, from: number): number {
  for (let at = from; at < bytes.length; at++) if (bytes[at] === LF || bytes[at] === CR) return at;
  return -1;
}

/** A stream without that chunk. */
export class UsageChunkFilter implements PushedBody {
  readonly #source: PushedBody;
  readonly #exchange: { bytesOut: number };
  readonly #asked: UsageOptIn;
  /** The unfinished event, if it may be the chunk. */
  #held: Uint8Array = NOTHING;
  /** Pieces of its line that came since it was last looked at. */
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  /** True if the unfinished event is not the chunk. */
  #isPassing = false;
  /** True if a part of the unfinished line has passed. */
  #isInLine = false;
  /** Fate of the last byte if that was CR: a LF after it shares it. */
  #afterCr: "passes" | "dropped" | undefined;

  constructor(source: PushedBody, exchange: { bytesOut: number }, asked: UsageOptIn) {
    this.#source = source;
    this.#exchange = exchange;
    this.#asked = asked;
  }

  /**
   * An event that is held back when the stream ends was never finished: it is a part of the chunk,
   * or of nothing.
   */
  pushTo(sink: ByteSink): () => void {
    return this.#source.pushTo({
      write: (chunk) => {
        if (chunk.length === 0) return true;
        const rest = this.#filter(chunk);
        this.#exchange.bytesOut += rest.length - chunk.length;
        return rest.length === 0 || sink.write(rest);
      },
      end: () => sink.end(),
      fail: (error) => sink.fail(error),
    });
  }

  cancel(reason?: unknown): void {
    this.#source.cancel(reason);
  }

  /** Passes the call on, unless a comment would stand within the event that is held back. */
  announce(): void {
    if (this.#held.length === 0) this.#source.announce?.();
  }

  /** Returns the bytes that pass, of those that were held back and of the next ones. */
  #filter(chunk: Uint8Array): Uint8Array {
    if (this.#isForLater(chunk)) {
      this.#waiting.push(chunk.slice());
      this.#waitingBytes += chunk.length;
      return NOTHING;
    }
    const bytes = this.#held.length === 0
      ? chunk
      : joinChunks([this.#held, ...this.#waiting, chunk]);
    this.#waiting = [];
    this.#waitingBytes = 0;
    const passed: Uint8Array[] = [];
    let decided = 0; // the offset up to which bytes have passed or were dropped
    let event = 0; // the offset of the unfinished event, if it is not passing
    let line = 0;
    let isChunk = false;
    if (this.#afterCr !== undefined && bytes[0] === LF) {
      line = event = 1;
      if (this.#afterCr === "dropped") decided = 1;
    }
    for (let end = endOfLine(bytes, line); end !== -1; end = endOfLine(bytes, line)) {
      const next = bytes[end] === CR && bytes[end + 1] === LF ? end + 2 : end + 1;
      if (end === line && !this.#isInLine) {
        if (isChunk) {
          passed.push(bytes.subarray(decided, event));
          decided = next;
        }
        isChunk = this.#isPassing = false;
        event = next;
      } else if (!this.#isPassing) {
        // A comment is no part of an event.
        if (this.#isInLine || (bytes[line] === COLON && event === line)) event = next;
        else if (bytes[line] !== COLON) isChunk = this.#judge(bytes, line, end, isChunk);
      }
      this.#isInLine = false;
      line = next;
    }
    const held = this.#startOfHeld(bytes, event, line);
    const isAfterCr = bytes.at(-1) === CR && held >= bytes.length;
    const fate = decided === bytes.length ? "dropped" : "passes";
    this.#afterCr = isAfterCr ? fate : undefined;
    this.#held = new Uint8Array(bytes.subarray(held)); // a copy: a runtime may use its buffer again
    passed.push(bytes.subarray(decided, held));
    return passed.length === 1 ? passed[0] ?? NOTHING : joinChunks(passed);
  }

  /**
   * Tells whether a piece can wait: a long held line is looked at again once it ends, or has
   * doubled.
   */
  #isForLater(chunk: Uint8Array): boolean {
    const { length } = this.#held;
    const waitingBytes = this.#waitingBytes + chunk.length;
    const isDue = waitingBytes >= length || length + waitingBytes > MAX_HELD_BYTES;
    if (length < MIN_LONG_BYTES || isDue) return false;
    return !chunk.includes(LF) && !chunk.includes(CR);
  }

  /**
   * Judges a line of an event: the chunk has a single line of data. Returns whether the event is
   * the chunk so far.
   */
  #judge(bytes: Uint8Array, line: number, end: number, isChunk: boolean): boolean {
    const data = this.#dataAt(bytes, line, end);
    if (data === undefined) return isChunk;
    this.#isPassing = isChunk || data === -1 || !this.#asked.isChunk(bytes, data, end);
    return !this.#isPassing;
  }

  /**
   * The offset of a line's data; -1 if there is none yet, `undefined` if the line is one of another
   * field.
   */
  #dataAt(bytes: Uint8Array, line: number, end: number): number | undefined {
    for (let index = 0; index < DATA.length; index++) {
      if (line + index >= end) return -1;
      if (bytes[line + index] !== DATA[index]) return undefined;
    }
    const data = line + DATA.length;
    return bytes[data] === SPACE ? data + 1 : data;
  }

  /**
   * Decides about what is unfinished. Returns the offset from which it is held back; the end if
   * nothing is.
   */
  #startOfHeld(bytes: Uint8Array, event: number, line: number): number {
    const isInLine = this.#isInLine || line < bytes.length;
    const isHeld = !this.#isPassing && !this.#isInLine && bytes.length - event <= MAX_HELD_BYTES &&
      this.#mayBeChunk(bytes, event, line);
    if (isHeld) return event;
    // A comment that has begun is no part of an event; anything else decides about the one that it
    // is in.
    this.#isPassing ||= !this.#isInLine && !(bytes[line] === COLON && event === line);
    this.#isInLine = isInLine;
    return bytes.length;
  }

  #mayBeChunk(bytes: Uint8Array, event: number, line: number): boolean {
    if (bytes[line] === COLON) return event < line;
    const data = this.#dataAt(bytes, line, bytes.length);
    return data === undefined || data === -1 || this.#asked.mayBeChunk(bytes, data, bytes.length);
  }
}
