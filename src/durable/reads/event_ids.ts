/**
 * Ids of events: adds a line `id:` with the offset after it to each event of a stream, so that an
 * `EventSource` that reconnects sends its position.
 *
 * @module
 */
import type { ByteSink, PushedBody } from "../../http/message.ts";
import { joinChunks } from "../../http/read_all.ts";
import type { AnswerReader } from "../recording_reader.ts";

const LF = 0x0a;
const CR = 0x0d;

/** A stream of events with ids. */
export class EventIds implements PushedBody {
  readonly #reader: AnswerReader;
  /** The last id. */
  #id: number;
  /** True if only the end is still to be sent, because the sink was not ready for it. */
  #isEndDue = false;
  /**
   * True at the start of a line. If a stream is read from within a line, that line is not a
   * readable event.
   */
  #isLineStart = true;
  #isAfterCr = false;

  constructor(reader: AnswerReader) {
    this.#reader = reader;
    this.#id = reader.offset;
  }

  pushTo(sink: ByteSink): () => void {
    const askForMore = this.#reader.pushTo({
      write: (bytes) => sink.write(this.#number(bytes)),
      end: () => {
        const rest = this.#endEvent();
        if (rest === undefined || sink.write(rest)) sink.end();
        else this.#isEndDue = true;
      },
      fail: (error) => sink.fail(error),
    });
    return () => {
      if (!this.#isEndDue) return askForMore();
      this.#isEndDue = false;
      sink.end();
    };
  }

  cancel(): void {
    this.#reader.cancel();
  }

  announce(): void {
    this.#reader.announce();
  }

  /**
   * Inserts each id before the empty line that ends its event, and so after any id of the provider.
   */
  #number(bytes: Uint8Array): Uint8Array {
    const start = this.#reader.offset - bytes.length;
    const parts: Uint8Array[] = [];
    let passed = 0;
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at];
      const isSecondOfTwo = byte === LF && this.#isAfterCr;
      this.#isAfterCr = byte === CR;
      if (isSecondOfTwo) continue;
      const isLineEnd = byte === LF || byte === CR;
      if (isLineEnd && this.#isLineStart) {
        const after = at + (byte === CR && bytes[at + 1] === LF ? 2 : 1);
        this.#id = start + after;
        parts.push(bytes.subarray(passed, at), new TextEncoder().encode(`id: ${this.#id}\n`));
        passed = at;
      }
      this.#isLineStart = isLineEnd;
    }
    parts.push(bytes.subarray(passed));
    return joinChunks(parts);
  }

  /**
   * Ends an unfinished event. Without an id for it, an `EventSource` would request it again
   * forever.
   */
  #endEvent(): Uint8Array | undefined {
    const { offset } = this.#reader;
    if (this.#id === offset) return undefined;
    return new TextEncoder().encode(`${this.#isLineStart ? "" : "\n"}id: ${offset}\n\n`);
  }
}
