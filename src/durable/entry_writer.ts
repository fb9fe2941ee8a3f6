/**
 * Writer of a recording's entries: seals them and appends them to the store, one after another.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { joinChunks } from "../http/read_all.ts";
import type { EntryCipher } from "./recording_keys.ts";
import {
  ENTRY_KIND,
  type EntryKind,
  type HeldRecording,
  RECORDING_LEASE_MS,
  RecordingLost,
  RecordingsFull,
} from "./recording_store.ts";

/** The largest part of an answer's body in one entry: readers open an entry as a whole. Bytes. */
const MAX_CONTENT_BYTES = 65_536;
/**
 * Time until the second attempt to append an entry. It doubles after each attempt. Milliseconds.
 */
const FIRST_RETRY_MS = 50;

export interface EntryWriterOptions {
  readonly held: HeldRecording;
  readonly cipher: EntryCipher;
  readonly clock: Clock;
  /** Called when an entry cannot be written. No later entry is written. */
  readonly onFailed: () => void;
}

/** An entry to write. */
export interface UnsealedEntry {
  readonly kind: EntryKind;
  readonly offset: number;
  /** Returns its content. Called when the entry is written. */
  readonly content: () => Uint8Array;
  /** State of the recording from then on, for the entry that ends it. */
  readonly endState?: "complete" | "broken" | undefined;
  /** Called when the store has it. */
  readonly onStored?: () => unknown;
}

/** A part of an answer's body to write. */
export interface UnsealedBytes {
  /** Offset of its first byte. */
  readonly from: number;
  /** Offset after its last byte. */
  readonly to: number;
  /** Called with the offset up to which the store has it. */
  readonly onStored: (to: number) => unknown;
}

/** Writer of the entries of one recording. Every position of an epoch is sealed at most once. */
export class EntryWriter {
  readonly #options: EntryWriterOptions;
  #writing: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: EntryWriterOptions) {
    this.#options = options;
  }

  /** Resolves when all entries so far are stored, or cannot be stored. Never rejects. */
  get stored(): Promise<void> {
    return this.#writing;
  }

  /** Writes an entry, after those before it. */
  write(entry: UnsealedEntry): void {
    const write = () => this.#write(entry);
    this.#writing = this.#writing.then(write).catch(() => {
      this.stop();
      this.#options.onFailed();
    });
  }

  /** Writes a part of an answer's body, in as many entries as needed. */
  writeBytes(pieces: readonly Uint8Array[], { from, to, onStored }: UnsealedBytes): void {
    const kind = ENTRY_KIND.bytes;
    if (to - from <= MAX_CONTENT_BYTES) {
      return this.write({
        kind,
        offset: from,
        content: () => joinChunks(pieces),
        onStored: () => onStored(to),
      });
    }
    const bytes = joinChunks(pieces);
    for (let offset = from; offset < to; offset += MAX_CONTENT_BYTES) {
      const end = Math.min(to, offset + MAX_CONTENT_BYTES);
      const content = () => bytes.subarray(offset - from, end - from);
      this.write({ kind, offset, content, onStored: () => onStored(end) });
    }
  }

  stop(): void {
    this.#isStopped = true;
  }

  async #write(unsealed: UnsealedEntry): Promise<void> {
    const { kind, offset, content, endState, onStored } = unsealed;
    if (this.#isStopped) return;
    const { held, cipher } = this.#options;
    const bytes = content() as Uint8Array<ArrayBuffer>;
    const entry = await cipher.seal({ kind, offset, epoch: held.epoch }, bytes);
    await this.#persist(() =>
      endState === undefined ? held.append(entry) : held.end(entry, endState)
    );
    onStored?.();
  }

  /** Repeats a failing write while the lease can last. */
  async #persist(write: () => Promise<void>): Promise<void> {
    const { clock } = this.#options;
    const until = clock.monotonic() + RECORDING_LEASE_MS;
    for (let waitMs = FIRST_RETRY_MS;; waitMs *= 2) {
      try {
        return await write();
      } catch (error) {
        const isFinal = error instanceof RecordingLost || error instanceof RecordingsFull;
        const isOver = this.#isStopped || clock.monotonic() + waitMs > until;
        if (isFinal || isOver) throw error;
        await new Promise<void>((resolve) => clock.timer(waitMs, resolve));
      }
    }
  }
}
