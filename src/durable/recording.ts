/**
 * A recording at the gateway that writes it: takes the answer as it comes, hands it to the readers at this gateway at
 * once, and to the store in sealed entries.
 *
 * Bytes stand here in the clear only until the store has them. A store that fails does not disturb the answer: the
 * recording is given up, and its readers go on as those of an ordinary call, at the pace of the slowest.
 *
 * @module
 */
import type { DurableConfig } from "../config/durable.ts";
import type { Clock } from "../exchange/clock.ts";
import type { ByteSink } from "../http/message.ts";
import { joinChunks } from "../http/read_all.ts";
import { type AnswerEnd, type AnswerHead, type AnswerPart, openPart, writeContent } from "./answer_log.ts";
import type { EntryCipher } from "./recording_keys.ts";
import { AnswerReader, type AnswerSource } from "./recording_reader.ts";
import {
  ENTRY_KIND,
  type EntryKind,
  type HeldRecording,
  RECORDING_LEASE_MS,
  RecordingLost,
  RecordingsFull,
  type RecordingStore,
} from "./recording_store.ts";

/** Size at which gathered bytes become an entry. Bytes. */
const ENTRY_BYTES = 16_384;
/** Time to the second attempt to append an entry; it doubles from one attempt to the next. Milliseconds. */
const FIRST_RETRY_MS = 50;

/** Options of a recording. */
export interface RecordingOptions {
  readonly held: HeldRecording;
  readonly cipher: EntryCipher;
  readonly store: Pick<RecordingStore, "read" | "gatherMs">;
  readonly settings: DurableConfig;
  readonly clock: Clock;
  /** The longest time in which a reader takes nothing of what is there. Milliseconds. */
  readonly writeStallMs: number;
}

/** The exchange that is recorded, as its recording sees it. */
export interface RecordedExchange {
  /** Stops it: nobody reads it, or somebody said so. */
  stop(): void;
  /** Asks for more of the answer, after a `write` that returned false. */
  askForMore(): void;
  /** Sends bytes without a meaning, if none were sent yet. */
  announce(): void;
  /** Returns its outcome; asked once the answer has ended. */
  outcome(): Pick<AnswerEnd, "outcome" | "code">;
}

/** Bytes in the clear, which the store does not have yet. */
interface Piece {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

const nothing = (): void => {};
const UNKNOWN = { outcome: "failed" } as const;

/** A recording that this gateway writes. */
export class Recording implements ByteSink, AnswerSource {
  readonly #options: RecordingOptions;
  readonly #readers = new Set<AnswerReader>();
  /** Bytes that the store does not have yet, in order. */
  #tail: Piece[] = [];
  /** Offset up to which bytes are in entries, on their way to the store or there. */
  #gatheredTo = 0;
  #length = 0;
  #end: AnswerEnd | undefined;
  /** Entries on their way to the store, one after another. */
  #appending: Promise<void> = Promise.resolve();
  #isGivenUp = false;
  #isSettled = false;
  #isGathering = false;
  #cancelGather = nothing;
  #cancelLinger = nothing;
  #setHead: (head: AnswerHead | undefined) => void = nothing;
  /** Head of the answer; `undefined` if there will be none to record. */
  readonly head: Promise<AnswerHead | undefined> = new Promise((resolve) => this.#setHead = resolve);
  /** The exchange that is recorded. */
  exchange: RecordedExchange = { stop: nothing, askForMore: nothing, announce: nothing, outcome: () => UNKNOWN };
  /** Called when nothing more happens here: the store has all of it, or it was given up. */
  onOver: () => void = nothing;

  constructor(options: RecordingOptions) {
    this.#options = options;
  }

  get id(): string {
    return this.#options.held.id;
  }

  /** Number of bytes of the answer's body so far. */
  get length(): number {
    return this.#length;
  }

  /** Resolves when the store has what was recorded so far, or can't have it. Never rejects. */
  get stored(): Promise<void> {
    return this.#appending;
  }

  /** True once the answer is over. */
  get isEnded(): boolean {
    return this.#end !== undefined;
  }

  /** Begins the answer. */
  begin(head: AnswerHead): void {
    this.#append(ENTRY_KIND.head, 0, () => writeContent(head));
    this.#setHead(head);
  }

  async read(offset: number, signal: AbortSignal): Promise<AnswerPart> {
    const { store, held, cipher } = this.#options;
    const part = await store.read(held.id, { offset, waitMs: 0, signal });
    const first = part?.entries[0];
    if (part === undefined || first === undefined) throw new Error("The recording is gone");
    return openPart(part, offset, cipher);
  }

  /** Attaches a reader. @param offset Offset of its first byte */
  attach(offset: number): AnswerReader {
    const { clock, writeStallMs } = this.#options;
    const reader = new AnswerReader({ source: this, offset, clock, writeStallMs });
    this.#readers.add(reader);
    this.#cancelLinger();
    if (this.#readers.size === 1) this.#options.held.setRead(true);
    return reader;
  }

  write(bytes: Uint8Array): boolean {
    const offset = this.#length;
    this.#length += bytes.byteLength;
    this.#tail.push({ offset, bytes });
    for (const reader of this.#readers) reader.offer(bytes, offset);
    if (!this.#isGivenUp) {
      if (this.#length > this.#options.settings.maxBytes) this.giveUp();
      else this.#gather();
    }
    return !this.#isGivenUp || this.#trim();
  }

  end(): void {
    this.#finish(false);
  }

  fail(): void {
    this.#finish(true);
  }

  /** Gives the recording up before its answer began: its name is free for the next call. */
  discard(): void {
    if (this.isEnded) return;
    this.#end = { length: 0, isCut: true, ...UNKNOWN };
    this.giveUp();
  }

  peek(offset: number): AnswerPart | "none" | undefined {
    if (offset === this.#length) return this.#end === undefined ? "none" : { end: this.#end };
    const index = this.#tail.findLastIndex((piece) => piece.offset <= offset);
    const piece = this.#tail[index];
    if (piece === undefined) return undefined;
    const rest = this.#tail.slice(index + 1).map(({ bytes }) => bytes);
    return { bytes: joinChunks([piece.bytes.subarray(offset - piece.offset), ...rest]) };
  }

  caughtUp(): void {
    if (this.#isGivenUp && this.#trim()) this.exchange.askForMore();
  }

  left(reader: AnswerReader): void {
    if (!this.#readers.delete(reader) || this.#readers.size > 0) return;
    this.#options.held.setRead(false);
    if (!this.#isGivenUp) return this.linger();
    if (this.isEnded) this.#settle();
    else this.exchange.stop();
  }

  /** Waits for readers, from now on; without any the exchange is stopped. */
  linger(): void {
    this.#cancelLinger();
    if (this.#readers.size > 0 || this.isEnded) return;
    const { clock, settings: { lingerMs } } = this.#options;
    this.#cancelLinger = clock.timer(lingerMs, () => this.exchange.stop());
  }

  announce(): void {
    this.exchange.announce();
  }

  #finish(isCut: boolean): void {
    if (this.isEnded) return;
    this.#cancelLinger();
    const end = this.#end = { length: this.#length, isCut, ...this.exchange.outcome() };
    this.#flush();
    const state = !isCut && end.outcome === "ok" ? "complete" : "broken";
    this.#append(ENTRY_KIND.end, this.#length, () => writeContent(end), state);
    for (const reader of this.#readers) reader.wake();
    this.#appending.then(() => this.#settle());
  }

  /** Makes an entry of what was gathered, now if there is enough, else when its time is over. */
  #gather(): void {
    const { store: { gatherMs }, clock } = this.#options;
    if (this.#length - this.#gatheredTo >= ENTRY_BYTES) return this.#flush();
    if (gatherMs === undefined || this.#isGathering) return;
    this.#isGathering = true;
    this.#cancelGather = clock.timer(gatherMs, () => this.#flush());
  }

  #flush(): void {
    this.#cancelGather();
    this.#isGathering = false;
    const from = this.#gatheredTo;
    if (this.#length === from || this.#isGivenUp) return;
    const pieces = this.#tail.filter(({ offset }) => offset >= from);
    this.#gatheredTo = this.#length;
    this.#append(ENTRY_KIND.bytes, from, () => joinChunks(pieces.map(({ bytes }) => bytes)));
  }

  /** Seals an entry and appends it, after those before it. */
  #append(kind: EntryKind, offset: number, content: () => Uint8Array, endState?: "complete" | "broken"): void {
    const { held, cipher } = this.#options;
    const { epoch } = held;
    const append = async () => {
      if (this.#isGivenUp) return;
      const bytes = content();
      const entry = await cipher.seal({ kind, offset, epoch }, bytes as Uint8Array<ArrayBuffer>);
      await this.#persist(() => endState === undefined ? held.append(entry) : held.end(entry, endState));
      if (kind === ENTRY_KIND.bytes) this.#stored(offset + bytes.byteLength);
    };
    this.#appending = this.#appending.then(append).catch(() => this.giveUp());
  }

  /** Repeats a write that fails for as long as the lease may last. */
  async #persist(write: () => Promise<void>): Promise<void> {
    const { clock } = this.#options;
    const until = clock.monotonic() + RECORDING_LEASE_MS;
    for (let waitMs = FIRST_RETRY_MS;; waitMs *= 2) {
      try {
        return await write();
      } catch (error) {
        const isFinal = error instanceof RecordingLost || error instanceof RecordingsFull;
        if (isFinal || this.#isGivenUp || clock.monotonic() + waitMs > until) throw error;
        await new Promise<void>((resolve) => clock.timer(waitMs, resolve));
      }
    }
  }

  /** Lets go of bytes that the store has. */
  #stored(offset: number): void {
    const first = this.#tail.findIndex((piece) => piece.offset >= offset);
    this.#tail = first === -1 ? [] : this.#tail.slice(first);
  }

  /** Gives the recording up: the store fails, is full or has given it to another gateway, or the answer is too large. */
  giveUp(): void {
    if (this.#isGivenUp || this.#isSettled) return;
    this.#isGivenUp = true;
    this.#cancelGather();
    this.#setHead(undefined);
    this.#trim();
    if (this.#readers.size > 0) return;
    if (this.isEnded) this.#settle();
    else this.exchange.stop();
  }

  /**
   * Lets go of what no reader needs, once the recording was given up, and of the entries in the store.
   *
   * @returns Whether every reader has all there is
   */
  #trim(): boolean {
    const offset = Math.min(this.#length, ...Array.from(this.#readers, (reader) => reader.offset));
    const first = this.#tail.findIndex((piece) => piece.offset + piece.bytes.byteLength > offset);
    this.#tail = first === -1 ? [] : this.#tail.slice(first);
    return offset === this.#length;
  }

  /** Ends it here, once the store has all of it, or nobody needs what the store can't have. */
  #settle(): void {
    if (this.#isSettled || (this.#isGivenUp && this.#readers.size > 0)) return;
    this.#isSettled = true;
    if (this.#isGivenUp) void this.#options.held.discard();
    this.onOver();
  }
}
