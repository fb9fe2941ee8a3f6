/**
 * A recording at the gateway that writes it: takes the answer as it comes, hands it to the readers
 * at this gateway at once, and to the store in sealed entries.
 *
 * Bytes stand here in the clear only until the store has them. A store that fails does not disturb
 * the answer: the recording is given up, and its readers go on as those of an ordinary call: the
 * slowest one sets the pace.
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
  openPart,
  writeContent,
} from "./answer_log.ts";
import { EntryWriter } from "./entry_writer.ts";
import type { EntryCipher } from "./recording_keys.ts";
import { AnswerReader, type AnswerSource } from "./recording_reader.ts";
import { ENTRY_KIND, type HeldRecording, type RecordingStore } from "./recording_store.ts";
import { readPatiently, WAIT_MS } from "./stored_answer.ts";

/** Size at which gathered bytes become an entry. Bytes. */
const ENTRY_BYTES = 16_384;
/**
 * The shortest time after a read at another gateway in which its reader may still wait there.
 * Milliseconds.
 */
const READ_ELSEWHERE_MS = WAIT_MS + 2000;

/**
 * Cause to give a recording up: the answer is too large, the store fails, it was taken over, there
 * is no answer.
 */
export type GiveUpCause = "size" | "store" | "lost" | "refused";

export interface RecordingOptions {
  readonly id: string;
  readonly keyId: string;
  readonly cipher: EntryCipher;
  readonly store: Pick<RecordingStore, "read" | "gatherMs">;
  readonly settings: DurableConfig;
  readonly clock: Clock;
  /** The longest time in which a reader takes nothing of what is there. Milliseconds. */
  readonly writeStallMs: number;
  /**
   * Called when nothing more happens here: the store has all of it, or it was given up and has
   * no reader.
   */
  onOver(givenUpFor?: GiveUpCause): void;
}

/** The exchange that is recorded, as its recording sees it. */
export interface RecordedExchange {
  /** Stops it: it has no reader, or somebody said so. */
  stop(): void;
  /** Asks for more of the answer, after a `write` that returned false. */
  askForMore(): void;
  /** Sends bytes without a meaning, if none were sent yet. */
  announce(): void;
  /** Returns its outcome; asked once the answer has ended. */
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
  /** Offset up to which bytes are in entries, on their way to the store or there. */
  #gatheredTo = 0;
  #end: AnswerEnd | undefined;
  #exchange: RecordedExchange | undefined;
  #isStopAsked = false;
  /** True until the call itself reads, which it does from its begin. */
  #isNew = true;
  #givenUpFor: GiveUpCause | undefined;
  #isDiscarded = false;
  #isSettled = false;
  #isGathering = false;
  #cancelGather = nothing;
  #cancelLinger = nothing;
  #setHead: (head: AnswerHead | undefined) => void = nothing;
  /** Head of the answer; `undefined` if there will be none to record. */
  readonly head: Promise<AnswerHead | undefined> = new Promise((resolve) =>
    this.#setHead = resolve
  );
  #setDiscarded: (discarding?: Promise<void>) => void = nothing;
  /** Resolves when it was given up and the store has nothing of it any more. */
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
  get isRead(): boolean {
    return this.#readers.size > 0;
  }

  /** Number of bytes of the answer's body so far. */
  get length(): number {
    return this.#tail.end;
  }

  /** Resolves when the store has what was recorded so far, or can't have it. Never rejects. */
  get stored(): Promise<void> {
    return this.#writer?.stored ?? Promise.resolve();
  }

  /** State of the recording once the answer is over, whether or not the store knows. */
  get endState(): "complete" | "broken" | undefined {
    return this.#end && (!this.#end.isCut && this.#end.outcome === "ok" ? "complete" : "broken");
  }

  /** True once it is that of an ordinary call: no caller can attach to it any more. */
  get isGivenUp(): boolean {
    return this.#givenUpFor !== undefined;
  }

  /** Begins to write to the store. */
  hold(held: HeldRecording): void {
    this.#held = held;
    const { cipher, clock } = this.#options;
    this.#writer = new EntryWriter({ held, cipher, clock, onFailed: () => this.giveUp() });
  }

  /**
   * Sets the exchange that is recorded. It is stopped at once if somebody has asked for that
   * before.
   */
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
    return openPart(part, offset, cipher);
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

  /** Gives the recording up before its answer began: its name is free for the next call. */
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
    // The others may have waited for the slowest.
    if (this.#readers.size > 0) return this.caughtUp();
    this.#held?.setRead(false);
    if (this.isGivenUp) this.#abandon();
    else this.linger();
  }

  /** Waits `ms` for readers, from now on; without any the exchange is stopped. */
  linger(ms: number = this.#options.settings.lingerMs): void {
    this.#cancelLinger();
    if (this.#readers.size > 0 || this.#end !== undefined) return;
    this.#cancelLinger = this.#options.clock.timer(ms, () => this.stop());
  }

  /** Takes note that somebody reads it at another gateway, and may wait there for more. */
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

  /** Makes an entry of what was gathered, now if there is enough, else when its time is over. */
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
    // Once it was given up, its readers decide: they need what the store is to lose.
    const onStored = (to: number) => this.isGivenUp || this.#tail.dropTo(to);
    this.#writer?.writeBytes(pieces, { from, to: this.length, onStored });
  }

  /**
   * Gives the recording up: the store fails, is full or has given it to another gateway, or the
   * answer is too large.
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
   * Lets go of what no reader needs, once the recording was given up, and of the entries in the
   * store.
   *
   * @returns Whether every reader has all there is
   */
  #trim(): boolean {
    const offset = Math.min(this.length, ...Array.from(this.#readers, (reader) => reader.offset));
    this.#tail.dropTo(offset);
    if (offset >= this.#tail.start) this.#discardStored();
    return offset === this.length;
  }

  /**
   * Deletes the entries in the store, and frees the name: from now on, the call is an ordinary one.
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
 * The last bytes of an answer in the clear, from some offset to its present end: the store does not
 * have them yet.
 */
class AnswerTail {
  #pieces: Piece[] = [];
  #end = 0;

  /** Offset of the first byte that is here, or of the next one if there is none. */
  get start(): number {
    return this.#pieces[0]?.offset ?? this.#end;
  }

  /** Number of bytes of the answer so far. */
  get end(): number {
    return this.#end;
  }

  /** Takes the next bytes. @returns Their offset */
  push(bytes: Uint8Array): number {
    const offset = this.#end;
    this.#end += bytes.byteLength;
    this.#pieces.push({ offset, bytes });
    return offset;
  }

  /** Returns the bytes from an offset on; `undefined` if the first of them are not here. */
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

  /** Lets go of pieces that end before or at an offset. */
  dropTo(offset: number): void {
    const first = this.#pieces.findIndex((piece) => piece.offset + piece.bytes.byteLength > offset);
    this.#pieces = first === -1 ? [] : this.#pieces.slice(first);
  }
}
