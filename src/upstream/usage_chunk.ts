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

/** One pass over the delayed bytes and the next ones. */
interface Pass {
  readonly bytes: Uint8Array;
  /** Parts that pass, of the bytes before `decidedTo`. */
  readonly passed: Uint8Array[];
  /** Offset up to which bytes were passed or dropped. */
  decidedTo: number;
  /** Offset of the unfinished event, if it is not passing. */
  eventAt: number;
  /** Offset of the unfinished line. */
  lineAt: number;
  /** True if the lines of the unfinished event so far are the chunk. */
  isChunk: boolean;
}

/** A stream without the usage chunk. */
export class UsageChunkFilter implements PushedBody {
  readonly #source: PushedBody;
  readonly #exchange: { bytesOut: number };
  readonly #usageOptIn: UsageOptIn;
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

  constructor(source: PushedBody, exchange: { bytesOut: number }, usageOptIn: UsageOptIn) {
    this.#source = source;
    this.#exchange = exchange;
    this.#usageOptIn = usageOptIn;
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
    const pass = this.#begin(chunk);
    const { bytes } = pass;
    for (let end = endOfLine(bytes, pass.lineAt); end !== -1; end = endOfLine(bytes, pass.lineAt)) {
      const next = bytes[end] === CR && bytes[end + 1] === LF ? end + 2 : end + 1;
      this.#readLine(pass, end, next);
      this.#isInLine = false;
      pass.lineAt = next;
    }
    return this.#finish(pass);
  }

  /** Begins a pass after the LF of a line end whose CR was in the piece before. */
  #begin(chunk: Uint8Array): Pass {
    const bytes = this.#held.length === 0
      ? chunk
      : joinChunks([this.#held, ...this.#waiting, chunk]);
    this.#waiting = [];
    this.#waitingBytes = 0;
    const endsLine = this.#afterCr !== undefined && bytes[0] === LF;
    const lineAt = endsLine ? 1 : 0;
    const decidedTo = endsLine && this.#afterCr === "dropped" ? 1 : 0;
    return { bytes, passed: [], decidedTo, eventAt: lineAt, lineAt, isChunk: false };
  }

  /** Reads a complete line. A blank line ends the event, which is dropped if it is the chunk. */
  #readLine(pass: Pass, end: number, next: number): void {
    const { bytes, lineAt } = pass;
    const isBlank = end === lineAt && !this.#isInLine;
    if (isBlank) {
      if (pass.isChunk) {
        pass.passed.push(bytes.subarray(pass.decidedTo, pass.eventAt));
        pass.decidedTo = next;
      }
      pass.isChunk = this.#isPassing = false;
      pass.eventAt = next;
      return;
    }
    if (this.#isPassing) return;
    const isComment = bytes[lineAt] === COLON;
    // The rest of a line that has passed, and a comment before an event, are not part of it.
    if (this.#isInLine || (isComment && pass.eventAt === lineAt)) pass.eventAt = next;
    else if (!isComment) pass.isChunk = this.#judge(bytes, lineAt, end, pass.isChunk);
  }

  /** Delays the unfinished event if it can be the chunk, and returns all bytes that pass. */
  #finish({ bytes, passed, decidedTo, eventAt, lineAt }: Pass): Uint8Array {
    const heldAt = this.#startOfHeld(bytes, eventAt, lineAt);
    const isAfterCr = bytes.at(-1) === CR && heldAt >= bytes.length;
    const lastByte = decidedTo === bytes.length ? "dropped" : "passes";
    this.#afterCr = isAfterCr ? lastByte : undefined;
    this.#held = new Uint8Array(bytes.subarray(heldAt)); // a copy: runtimes can reuse the buffer
    const rest = bytes.subarray(decidedTo, heldAt);
    return passed.length === 0 ? rest : joinChunks([...passed, rest]);
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
    this.#isPassing = isChunk || data === -1 || !this.#usageOptIn.isChunk(bytes, data, end);
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
    return data === undefined || data === -1 ||
      this.#usageOptIn.mayBeChunk(bytes, data, bytes.length);
  }
}
