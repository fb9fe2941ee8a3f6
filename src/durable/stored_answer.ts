/**
 * A recorded answer as it is read from the store: one that another gateway writes, or that is complete.
 *
 * @module
 */
import type { AnswerSource } from "./recording_reader.ts";
import { type AnswerHead, type AnswerPart, openPart } from "./answer_log.ts";
import { closeLost, type LossParts } from "./lost_recording.ts";
import type { EntryCipher } from "./recording_keys.ts";
import { RECORDING_LEASE_MS, type RecordingPart, type StoredRecording } from "./recording_store.ts";

/** The longest time of one wait at the store. Milliseconds. */
const WAIT_MS = 10_000;
/** Time between two attempts at a store that fails. Milliseconds. */
const RETRY_MS = 250;

/** Parts of an answer that is read from the store. */
export interface StoredAnswerParts extends LossParts {
  readonly cipher: EntryCipher;
  readonly head: AnswerHead;
}

/** Source of one reader, which waits at the store for what is still to come. */
export class StoredAnswer implements AnswerSource {
  readonly #recording: StoredRecording;
  readonly #parts: StoredAnswerParts;

  constructor(recording: StoredRecording, parts: StoredAnswerParts) {
    this.#recording = recording;
    this.#parts = parts;
  }

  peek(): undefined {}

  caughtUp(): void {}

  left(): void {}

  async read(offset: number, signal: AbortSignal): Promise<AnswerPart> {
    const { cipher } = this.#parts;
    while (!signal.aborted) {
      const part = await this.#ask(offset, signal);
      if (part === undefined) throw new Error("The recording has expired");
      if (part.entries.length > 0) return openPart(part, offset, cipher);
      if (!part.isHeld) await closeLost(this.#recording, this.#parts, this.#parts);
    }
    throw new Error("The reader left");
  }

  /** Reads, again and again while the store fails, for as long as a lease lasts. */
  async #ask(offset: number, signal: AbortSignal): Promise<RecordingPart | undefined> {
    const { store, clock } = this.#parts;
    const until = clock.monotonic() + WAIT_MS + RECORDING_LEASE_MS;
    while (true) {
      try {
        return await store.read(this.#recording.id, { offset, waitMs: WAIT_MS, signal });
      } catch (error) {
        if (signal.aborted || clock.monotonic() > until) throw error;
        await new Promise<void>((resolve) => clock.timer(RETRY_MS, resolve));
      }
    }
  }
}
