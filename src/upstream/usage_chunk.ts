/**
 * Removes the usage chunk from a stream if the gateway requested it and the caller did not. All
 * other bytes pass unchanged and at once. Only an unfinished event that can still be that chunk is
 * delayed.
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
/** The most bytes of an event that are delayed. The chunk has a few hundred. */
const MAX_HELD_BYTES = 8192;
/**
 * Size from which a delayed line is not parsed again for each piece. In a chunk, `choices` is
 * before this size. Bytes.
 */
const MIN_LONG_BYTES = 256;

/** Finds the end of a line; -1 if it has not arrived. */
function endOfLine(bytes: Uint8Array, from: number): number {
  for (let at = from; at < bytes.length; at++) if (bytes[at] === LF || bytes[at] === CR) return at;
  return -1;
}

/** A stream without the usage chunk. */
export class UsageChunkFilter implements PushedBody {
  readonly #source: PushedBody;
  readonly #exchange: { bytesOut: number };
  readonly #asked: UsageOptIn;
  /** The unfinished event, if it can be the chunk. */
  #held: Uint8Array = NOTHING;
  /** Pieces of its line that arrived since it was last parsed. */
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  /** True if the unfinished event is not the chunk. */
  #isPassing = false;
  /** True if a part of the unfinished line has passed. */
  #isInLine = false;
  /** Decision about the last byte if it was CR. It also applies to a LF after it. */
  #afterCr: "passes" | "dropped" | undefined;

  constructor(source: PushedBody, exchange: { bytesOut: number }, asked: UsageOptIn) {
    this.#source = source;
    this.#exchange = exchange;
    this.#asked = asked;
  }

  /**
   * A delayed event at the end of the stream was never finished. It is dropped: it is a part of the
   * chunk, or an event that clients ignore.
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

  /** Forwards the call, unless the comment would be sent within the delayed event. */
  announce(): void {
    if (this.#held.length === 0) this.#source.announce?.();
  }

  /** Returns the bytes that pass, from the delayed bytes and the next ones. */
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
    let decided = 0; // the offset up to which bytes were passed or dropped
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
        // A comment is not part of an event.
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
    this.#held = new Uint8Array(bytes.subarray(held)); // a copy: runtimes can reuse the buffer
    passed.push(bytes.subarray(decided, held));
    return passed.length === 1 ? passed[0] ?? NOTHING : joinChunks(passed);
  }

  /**
   * Returns whether a piece can wait: a long delayed line is parsed again when it ends, or when its
   * size has doubled.
   */
  #isForLater(chunk: Uint8Array): boolean {
    const { length } = this.#held;
    const waitingBytes = this.#waitingBytes + chunk.length;
    const isDue = waitingBytes >= length || length + waitingBytes > MAX_HELD_BYTES;
    if (length < MIN_LONG_BYTES || isDue) return false;
    return !chunk.includes(LF) && !chunk.includes(CR);
  }

  /**
   * Checks a line of an event. The chunk has a single line of data. Returns whether the event can
   * still be the chunk.
   */
  #judge(bytes: Uint8Array, line: number, end: number, isChunk: boolean): boolean {
    const data = this.#dataAt(bytes, line, end);
    if (data === undefined) return isChunk;
    this.#isPassing = isChunk || data === -1 || !this.#asked.isChunk(bytes, data, end);
    return !this.#isPassing;
  }

  /**
   * The offset of a line's data; -1 if there is none yet, `undefined` if the line has another
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
   * Decides about the unfinished event. Returns the offset from which it is delayed; the end if
   * nothing is delayed.
   */
  #startOfHeld(bytes: Uint8Array, event: number, line: number): number {
    const isInLine = this.#isInLine || line < bytes.length;
    const isHeld = !this.#isPassing && !this.#isInLine && bytes.length - event <= MAX_HELD_BYTES &&
      this.#mayBeChunk(bytes, event, line);
    if (isHeld) return event;
    // A comment that has begun is not part of an event. Other content decides about its event.
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
