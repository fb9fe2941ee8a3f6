/**
 * The part of a recorded answer that exists at the time of a request, as a finite body.
 *
 * @module
 */
import type { ByteSink, PushedBody } from "../../http/message.ts";
import { joinChunks } from "../../http/read_all.ts";
import type { AnswerReader } from "../recording_reader.ts";

export interface SnapshotOptions {
  /** Reads from the first byte on. */
  readonly reader: AnswerReader;
  /** Offset after the last byte. Greater than the offset of the first byte. */
  readonly to: number;
  /** Text to add before and after the bytes of the answer. */
  readonly around?: readonly [string, string] | undefined;
  /** Called when all of it was pushed, before the reader is cancelled. */
  readonly onComplete: () => void;
}

const NOTHING_AROUND = ["", ""] as const;

/** A part of a recorded answer. */
export class SnapshotBody implements PushedBody {
  readonly #options: SnapshotOptions;
  #hasBegun = false;
  /** True if only the end is still to be sent, because the sink was not ready for it. */
  #isEndDue = false;

  constructor(options: SnapshotOptions) {
    this.#options = options;
  }

  pushTo(sink: ByteSink): () => void {
    const { reader, to } = this.#options;
    const askForMore = reader.pushTo({
      write: (bytes) => {
        const isLast = reader.offset >= to;
        const own = isLast ? bytes.subarray(0, bytes.byteLength - (reader.offset - to)) : bytes;
        const isTaken = sink.write(this.#frame(own, isLast));
        if (!isLast) return isTaken;
        if (isTaken) this.#end(sink);
        else this.#isEndDue = true;
        return isTaken;
      },
      end: () => sink.fail(new Error("The answer is shorter than it was")),
      fail: (error) => sink.fail(error),
    });
    return () => this.#isEndDue ? this.#end(sink) : askForMore();
  }

  cancel(): void {
    this.#options.reader.cancel();
  }

  /** Adds the surrounding text to the first and the last bytes of the answer. */
  #frame(bytes: Uint8Array, isLast: boolean): Uint8Array {
    const { around: [before, after] = NOTHING_AROUND } = this.#options;
    const isFirst = !this.#hasBegun;
    this.#hasBegun = true;
    const encoder = new TextEncoder();
    return joinChunks([
      encoder.encode(isFirst ? before : ""),
      bytes,
      encoder.encode(isLast ? after : ""),
    ]);
  }

  #end(sink: ByteSink): void {
    const { reader, onComplete } = this.#options;
    this.#isEndDue = false;
    onComplete();
    reader.cancel();
    sink.end();
  }
}
