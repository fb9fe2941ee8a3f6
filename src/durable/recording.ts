/**
 * A recording at the gateway that writes it. It receives the answer, passes it to the readers at
 * this gateway at once, and writes it to the store in sealed entries.
 *
 * Plaintext bytes are kept here only until the store has them. A failing store does not disturb the
 * answer: the recording is given up, and its readers continue like readers of an ordinary call, at
 * the speed of the slowest reader.
 *
 * | event                  | while it records                   | once it was given up       |
 * | ---------------------- | ---------------------------------- | -------------------------- |
 * | `write`                | bytes are collected for entries    | bytes are kept for readers |
 * | `end`, `fail`          | settles when the store has the end | readers receive the end    |
 * | the last reader leaves | stops the call after `lingerMs`    | settles, stops the call    |
 * | `giveUp`, `discard`    | nothing is written any more        | nothing                    |
 *
 * A recording that was given up is deleted from the store when its readers need none of its entries.
 * To settle means that this gateway forgets it.
 *
 * @module
 */
import type { DurableConfig } from "../config/durable.ts";
import type { Clock } from "../exchange/clock.ts";
import type { ByteSink } from "../http/message.ts";
import { joinChunks } from "../http/read_all.ts";
import {
  type AnswerEnd,
  type AnswerHead,
  type AnswerPart,
  decryptPart,
  writeContent,
} from "./answer_log.ts";
import { EntryWriter } from "./entry_writer.ts";
import type { EntryCipher } from "./recording_keys.ts";
import { AnswerReader, type AnswerSource } from "./recording_reader.ts";
import { ENTRY_KIND, type HeldRecording, type RecordingStore } from "./recording_store.ts";
import { readPatiently, WAIT_MS } from "./stored_answer.ts";

/** Size at which collected bytes become an entry. Bytes. */
const ENTRY_BYTES = 16_384;
/** Time after a read at another gateway in which its reader can still wait there. Milliseconds. */
const READ_ELSEWHERE_MS = WAIT_MS + 2000;

/**
 * Cause for giving up a recording: the answer is too large, the store fails, another gateway has
 * taken it over, or there is no answer.
 */
export type GiveUpCause = "size" | "store" | "lost" | "refused";

export interface RecordingOptions {
  readonly id: string;
  readonly keyId: string;
  readonly cipher: EntryCipher;
  readonly store: Pick<RecordingStore, "read" | "gatherMs">;
  readonly settings: DurableConfig;
  readonly clock: Clock;
  /** The longest time in which a reader reads none of the available bytes. Milliseconds. */
  readonly writeStallMs: number;
  /**
   * Called when the recording is over here: the store has all of it, or it was given up and has no
   * reader.
   */
  onOver(givenUpFor?: GiveUpCause): void;
}

/** The recorded exchange, as its recording uses it. */
export interface RecordedExchange {
  /** Stops it, because it has no reader, or on request. */
  stop(): void;
  /** Asks for more of the answer, after a `write` that returned false. */
  askForMore(): void;
  /** Sends bytes without meaning, if none were sent yet. */
  announce(): void;
  /** Returns its outcome. Called once the answer has ended. */
  outcome(): Pick<AnswerEnd, "outcome" | "code">;
}

const nothing = (): void => {};
const UNKNOWN = { outcome: "failed" } as const;

/** A recording that this gateway writes. */
export class Recording implements ByteSink, AnswerSource {
  readonly #options: RecordingOptions;
  readonly #readers = new Set<AnswerReader>();
  #held: HeldRecording | undefined;
  #writer: EntryWriter | undefined;
  /** Bytes that the store does not have yet. */
  readonly #tail = new AnswerTail();
  /** Offset up to which bytes are in entries, in the store or being written. */
  #gatheredTo = 0;
  #end: AnswerEnd | undefined;
  #exchange: RecordedExchange | undefined;
  #isStopAsked = false;
  /** True until the call itself reads, which begins at the first byte. */
  #isNew = true;
  #givenUpFor: GiveUpCause | undefined;
  #isDiscarded = false;
  #isSettled = false;
  #isGathering = false;
  #cancelGather = nothing;
  #cancelLinger = nothing;
  #setHead: (head: AnswerHead | undefined) => void = nothing;
  /** Head of the answer; `undefined` if there will be no answer to record. */
  readonly head: Promise<AnswerHead | undefined> = new Promise((resolve) =>
    this.#setHead = resolve
  );
  #setDiscarded: (discarding?: Promise<void>) => void = nothing;
  /** Resolves when it was given up and removed from the store. */
  readonly discarded: Promise<void> = new Promise((resolve) => this.#setDiscarded = resolve);

  constructor(options: RecordingOptions) {
    this.#options = options;
  }

  get id(): string {
    return this.#options.id;
  }

  get keyId(): string {
    return this.#options.keyId;
  }

  /** True while it has a reader at this gateway. */
  get hasReader(): boolean {
    return this.#readers.size > 0;
  }

  /** Number of bytes of the answer's body so far. */
  get length(): number {
    return this.#tail.end;
  }

  /** Resolves when the recorded bytes so far are stored, or cannot be stored. Never rejects. */
  get stored(): Promise<void> {
    return this.#writer?.stored ?? Promise.resolve();
  }

  /** State of the recording once the answer is over, even if the store does not have it yet. */
  get endState(): "complete" | "broken" | undefined {
    return this.#end && (!this.#end.isCut && this.#end.outcome === "ok" ? "complete" : "broken");
  }

  /** True once the recording was given up: no caller can attach to it any more. */
  get isGivenUp(): boolean {
    return this.#givenUpFor !== undefined;
  }

  /** Begins to write to the store. */
  hold(held: HeldRecording): void {
    this.#held = held;
    const { cipher, clock } = this.#options;
    this.#writer = new EntryWriter({ held, cipher, clock, onFailed: () => this.giveUp() });
  }

  /** Sets the recorded exchange. It is stopped at once if that was requested earlier. */
  set exchange(exchange: RecordedExchange) {
    this.#exchange = exchange;
    if (this.#isStopAsked) exchange.stop();
  }

  stop(): void {
    this.#isStopAsked = true;
    this.#exchange?.stop();
  }

  begin(head: AnswerHead): void {
    this.#writer?.write({ kind: ENTRY_KIND.head, offset: 0, content: () => writeContent(head) });
    this.#setHead(head);
  }

  async read(offset: number, signal: AbortSignal): Promise<AnswerPart> {
    const { store, id, cipher, clock } = this.#options;
    const part = await readPatiently(store, clock, { id, offset, waitMs: 0, signal });
    if (part === undefined || part.entries.length === 0) throw new Error("The recording is gone");
    return decryptPart(part, offset, cipher);
  }

  /** Attaches a reader, from an offset on. */
  attach(offset: number): AnswerReader {
    const { clock, writeStallMs } = this.#options;
    const reader = new AnswerReader({ source: this, offset, clock, writeStallMs });
    this.#isNew = false;
    this.#readers.add(reader);
    this.#cancelLinger();
    if (this.#readers.size === 1) this.#held?.setRead(true);
    return reader;
  }

  write(bytes: Uint8Array): boolean {
    const offset = this.#tail.push(bytes);
    for (const reader of this.#readers) reader.offer(bytes, offset);
    if (!this.isGivenUp) {
      if (this.length > this.#options.settings.maxBytes) this.giveUp("size");
      else this.#gather();
    }
    return !this.isGivenUp || this.#trim();
  }

  end(): void {
    this.#finish(false);
  }

  fail(): void {
    this.#finish(true);
  }

  /** Abandons the recording before its answer began, so that its name is free for the next call. */
  discard(): void {
    if (this.#end !== undefined) return;
    this.#end = { length: 0, isCut: true, ...UNKNOWN };
    this.#isNew = false;
    this.giveUp("refused");
  }

  peek(offset: number): AnswerPart | "none" | undefined {
    if (offset === this.length) return this.#end === undefined ? "none" : { end: this.#end };
    const bytes = this.#tail.from(offset);
    return bytes && { bytes };
  }

  caughtUp(): void {
    if (this.isGivenUp && this.#trim()) this.#exchange?.askForMore();
  }

  left(reader: AnswerReader): void {
    if (!this.#readers.delete(reader)) return;
    // The others can have waited for the slowest reader.
    if (this.#readers.size > 0) return this.caughtUp();
    this.#held?.setRead(false);
    if (this.isGivenUp) this.#abandon();
    else this.linger();
  }

  /** Waits `ms` for readers, from now on. Without readers, the exchange is stopped. */
  linger(ms: number = this.#options.settings.lingerMs): void {
    this.#cancelLinger();
    if (this.#readers.size > 0 || this.#end !== undefined) return;
    this.#cancelLinger = this.#options.clock.timer(ms, () => this.stop());
  }

  /** Notes that a caller reads it at another gateway, and can wait there for more. */
  readElsewhere(): void {
    this.linger(Math.max(this.#options.settings.lingerMs, READ_ELSEWHERE_MS));
  }

  announce(): void {
    this.#exchange?.announce();
  }

  #finish(isCut: boolean): void {
    if (this.#end !== undefined) return;
    this.#cancelLinger();
    const end = this.#end = { length: this.length, isCut, ...this.#exchange?.outcome() ?? UNKNOWN };
    this.#flush();
    const { endState } = this;
    this.#writer?.write({
      kind: ENTRY_KIND.end,
      offset: this.length,
      content: () => writeContent(end),
      endState,
    });
    for (const reader of this.#readers) reader.wake();
    void this.stored.then(() => {
      if (!this.isGivenUp) this.#settle();
    });
  }

  /**
   * Makes an entry of the collected bytes, now if there are enough, else when their time is over.
   */
  #gather(): void {
    const { store: { gatherMs }, clock } = this.#options;
    if (this.length - this.#gatheredTo >= ENTRY_BYTES) return this.#flush();
    if (gatherMs === undefined || this.#isGathering) return;
    this.#isGathering = true;
    this.#cancelGather = clock.timer(gatherMs, () => this.#flush());
  }

  #flush(): void {
    this.#cancelGather();
    this.#isGathering = false;
    const from = this.#gatheredTo;
    if (this.length === from || this.isGivenUp) return;
    const pieces = this.#tail.piecesFrom(from);
    this.#gatheredTo = this.length;
    // Once it was given up, its readers decide, because they need bytes that the store will delete.
    const onStored = (to: number) => this.isGivenUp || this.#tail.dropTo(to);
    this.#writer?.writeBytes(pieces, { from, to: this.length, onStored });
  }

  /**
   * Abandons the recording, because the store fails, is full or has assigned it to another gateway,
   * or the answer is too large.
   */
  giveUp(cause: GiveUpCause = "store"): void {
    if (this.isGivenUp || this.#isSettled) return;
    this.#givenUpFor = cause;
    this.#writer?.stop();
    this.#cancelGather();
    this.#setHead(undefined);
    this.#trim();
    if (this.#readers.size === 0 && !this.#isNew) this.#abandon();
  }

  /**
   * Once the recording was given up, frees the bytes that no reader needs, and deletes the entries
   * in the store.
   *
   * @returns Whether every reader has all bytes so far
   */
  #trim(): boolean {
    const offset = Math.min(this.length, ...Array.from(this.#readers, (reader) => reader.offset));
    this.#tail.dropTo(offset);
    if (offset >= this.#tail.start) this.#discardStored();
    return offset === this.length;
  }

  /**
   * Deletes the entries in the store, and frees the name. From now on, the call is an ordinary
   * call.
   */
  #discardStored(): void {
    if (this.#isDiscarded) return;
    this.#isDiscarded = true;
    this.#setDiscarded(this.#held?.discard());
  }

  /** Ends a recording that was given up when its last reader is gone. */
  #abandon(): void {
    this.#cancelLinger();
    this.#tail.dropTo(this.length);
    this.#discardStored();
    this.#settle();
    if (this.#end !== undefined) return;
    this.#end = { length: this.length, isCut: true, ...UNKNOWN };
    this.stop();
  }

  #settle(): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#options.onOver(this.#givenUpFor);
  }
}

interface Piece {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

/**
 * The last bytes of an answer as plaintext, from some offset to its current end. The store does not
 * have them yet.
 */
class AnswerTail {
  #pieces: Piece[] = [];
  #end = 0;

  /** Offset of the first byte in here, or of the next byte if there is none. */
  get start(): number {
    return this.#pieces[0]?.offset ?? this.#end;
  }

  /** Number of bytes of the answer so far. */
  get end(): number {
    return this.#end;
  }

  /** Adds the next bytes. @returns Their offset */
  push(bytes: Uint8Array): number {
    const offset = this.#end;
    this.#end += bytes.byteLength;
    this.#pieces.push({ offset, bytes });
    return offset;
  }

  /** Returns the bytes from an offset on; `undefined` if the first of them were dropped. */
  from(offset: number): Uint8Array | undefined {
    const index = this.#pieces.findLastIndex((piece) => piece.offset <= offset);
    const piece = this.#pieces[index];
    if (piece === undefined) return undefined;
    const rest = this.#pieces.slice(index + 1).map(({ bytes }) => bytes);
    return joinChunks([piece.bytes.subarray(offset - piece.offset), ...rest]);
  }

  /** Returns the pieces from an offset on, at which one begins. */
  piecesFrom(offset: number): readonly Uint8Array[] {
    return this.#pieces.filter((piece) => piece.offset >= offset).map(({ bytes }) => bytes);
  }

  /** Drops pieces that end before or at an offset. */
  dropTo(offset: number): void {
    const first = this.#pieces.findIndex((piece) => piece.offset + piece.bytes.byteLength > offset);
    this.#pieces = first === -1 ? [] : this.#pieces.slice(first);
  }
}
