/**
 * A stream of answers that is one JSON list. Each answer in it is scanned like an event. The
 * closing bracket of the list is the end of the stream.
 *
 * @module
 */
import type { TokenUsage } from "../exchange/billing.ts";
import type { StreamScanner } from "./dialect.ts";

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

const DATA = new TextEncoder().encode("data: ");
const EVENT_END = Uint8Array.of(LF, LF);

/** Watches one list of answers, or one answer without a list. */
export class ListScanner implements StreamScanner {
  // No event can be written into a list.
  readonly clientsReadErrorEvent = false;
  readonly isAtBoundary = false;
  readonly boundary = "";
  /** True after the end of the list. */
  isComplete = false;
  /** Reads the answers. */
  readonly #events: StreamScanner;
  #depth = 0;
  /** The depth around each answer: 1 in a list, otherwise 0. */
  #outerDepth = 0;
  #isInString = false;
  #isEscaped = false;

  /** @param events Scanner of a stream that has the same answers as events */
  constructor(events: StreamScanner) {
    this.#events = events;
  }

  get payloadCount(): number {
    return this.#events.payloadCount;
  }

  get hasLastEvent(): boolean {
    return this.isComplete;
  }

  get hasError(): boolean {
    return this.#events.hasError;
  }

  get usage(): TokenUsage | undefined {
    return this.#events.usage;
  }

  get outputTokens(): number {
    return this.#events.outputTokens;
  }

  push(chunk: Uint8Array): void {
    // Data of an event is one line. Line ends in JSON are white space.
    const line = chunk.map((byte) => byte === LF || byte === CR ? SPACE : byte);
    let from = 0;
    for (let at = 0; at < line.length && !this.isComplete; at++) {
      const before = this.#depth;
      this.#read(line[at] as number);
      const outer = this.#outerDepth;
      if (before === outer && this.#depth > outer) {
        from = at;
        this.#events.push(DATA);
      } else if (before > outer && this.#depth === outer) {
        this.#events.push(line.subarray(from, at + 1));
        this.#events.push(EVENT_END);
      }
      if (before > 0 && this.#depth === 0) this.isComplete = true;
    }
    if (this.#depth > this.#outerDepth) this.#events.push(line.subarray(from));
  }

  end(): void {
    this.#events.end();
  }

  toErrorEvent(): string {
    return "";
  }

  #read(byte: number): void {
    if (this.#isInString) return this.#readString(byte);
    if (byte === QUOTE) this.#isInString = true;
    else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      if (this.#depth === 0) this.#outerDepth = byte === OPEN_ARRAY ? 1 : 0;
      this.#depth++;
    } else if ((byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) && this.#depth > 0) this.#depth--;
  }

  #readString(byte: number): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (byte === BACKSLASH) this.#isEscaped = true;
    else if (byte === QUOTE) this.#isInString = false;
  }
}
