/**
 * Readers of recorded answers. Each is a body from an offset on, with its own back-pressure.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import type { ByteSink, PushedBody } from "../http/message.ts";
import type { AnswerBytes, AnswerEnd, AnswerPart } from "./answer_log.ts";

/** Source of an answer's bytes for one reader. */
export interface AnswerSource {
  /**
   * Returns the available bytes from an offset on, without waiting. `none` means that the reader
   * has all bytes so far. It is then offered the next bytes, and woken at the end. `undefined`
   * means that it must call `read`.
   */
  peek(offset: number): AnswerPart | "none" | undefined;
  /** Reads from an offset on, and waits for later bytes. */
  read(offset: number, signal: AbortSignal): Promise<AnswerPart>;
  /** Notes that a reader has read all bytes so far. */
  caughtUp(): void;
  /** Notes that a reader left or has the whole answer. */
  left(reader: AnswerReader): void;
  /** Sends bytes without meaning to all readers, if there were none yet. */
  announce?(): void;
}

export interface AnswerReaderOptions {
  readonly source: AnswerSource;
  /** Offset of its first byte. */
  readonly offset: number;
  readonly clock: Clock;
  /** The longest time in which it reads none of the available bytes. Milliseconds. */
  readonly writeStallMs: number;
}

/**
 * The outcome of a read: the outcome of the answer, or another one if its caller left or the store
 * failed.
 */
export type ReadOutcome = Pick<AnswerEnd, "outcome" | "code">;

/** Outcome of a read after a failure of the store. */
const UNREADABLE: ReadOutcome = { outcome: "shed", code: "recordings_unavailable" };

export class AnswerReader implements PushedBody {
  readonly #options: AnswerReaderOptions;
  #offset: number;
  #sink: ByteSink | undefined;
  #isFull = false;
  #isReading = false;
  #isOver = false;
  /** Error with which the answer broke off before it had a receiver. */
  #error: unknown;
  #reading: AbortController | undefined;
  #cancelStall = (): void => {};
  #onOver = (_outcome: ReadOutcome): void => {};
  /** Bytes that it has pushed. */
  bytesOut = 0;

  constructor(options: AnswerReaderOptions) {
    this.#options = options;
    this.#offset = options.offset;
  }

  /**
   * Offset of its next byte; within a `write`, the offset after the pushed bytes. The event that
   * reports a lost answer can be longer than the change of the offset, see `decryptPart`.
   */
  get offset(): number {
    return this.#offset;
  }

  /** Registers a function that is called once, when it is over. */
  onOver(act: (outcome: ReadOutcome) => void): void {
    this.#onOver = act;
  }

  /** True once nothing more is pushed. */
  get isOver(): boolean {
    return this.#isOver;
  }

  pushTo(sink: ByteSink): () => void {
    this.#sink = sink;
    if (this.#error !== undefined) sink.fail(this.#error);
    this.wake();
    return () => {
      if (!this.#isFull) return;
      this.#isFull = false;
      this.#cancelStall();
      this.wake();
    };
  }

  announce(): void {
    if (this.bytesOut === 0) this.#options.source.announce?.();
  }

  cancel(): void {
    this.#end({ outcome: "client_closed" });
  }

  /** Offers new bytes to a reader that has all bytes before them. */
  offer(bytes: Uint8Array, offset: number): void {
    if (offset === this.#offset && this.#isReady) this.#push({ bytes });
  }

  /** Reads and pushes as much as possible. */
  wake(): void {
    while (!this.#isOver && this.#isReady) {
      const part = this.#options.source.peek(this.#offset);
      if (part === "none") return this.#options.source.caughtUp();
      if (part === undefined) return void this.#read();
      this.#take(part);
    }
  }

  /** Breaks the answer off. */
  fail(error: unknown, outcome: ReadOutcome = UNREADABLE): void {
    if (this.#isOver) return;
    this.#end(outcome);
    if (this.#sink === undefined) this.#error = error;
    else this.#sink.fail(error);
  }

  /** True while its sink accepts bytes. */
  get #isReady(): boolean {
    return !this.#isFull && !this.#isReading && this.#sink !== undefined;
  }

  async #read(): Promise<void> {
    this.#isReading = true;
    this.#reading ??= new AbortController();
    try {
      const part = await this.#options.source.read(this.#offset, this.#reading.signal);
      this.#isReading = false;
      if (!this.#isOver) this.#take(part);
      this.wake();
    } catch (error) {
      this.fail(error);
    }
  }

  #take(part: AnswerPart): void {
    if ("bytes" in part) return this.#push(part);
    const { isCut, outcome, code } = part.end;
    if (isCut) return this.fail(new Error("The answer broke off"), { outcome, code });
    this.#end({ outcome, code });
    this.#sink?.end();
  }

  #push({ bytes, next = this.#offset + bytes.byteLength }: AnswerBytes): void {
    this.#offset = next;
    this.bytesOut += bytes.byteLength;
    if (this.#sink?.write(bytes) !== false) return;
    this.#isFull = true;
    const { clock, writeStallMs } = this.#options;
    const stalled = new Error("The caller has stopped reading");
    this.#cancelStall = clock.timer(
      writeStallMs,
      () => this.fail(stalled, { outcome: "client_closed" }),
    );
  }

  #end(outcome: ReadOutcome): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelStall();
    this.#reading?.abort();
    this.#options.source.left(this);
    this.#onOver(outcome);
  }
}
