/**
 * A recorded answer that is read from the store, because another gateway writes it, or because it
 * is complete.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import type { AnswerSource } from "./recording_reader.ts";
import { type AnswerHead, type AnswerPart, decryptPart } from "./answer_log.ts";
import { closeLost, type LossParts } from "./lost_recording.ts";
import type { EntryCipher } from "./recording_keys.ts";
import {
  RECORDING_LEASE_MS,
  type RecordingPart,
  type RecordingRead,
  type RecordingStore,
  type StoredRecording,
} from "./recording_store.ts";

/** The longest time of one wait in the store. Milliseconds. */
export const WAIT_MS = 10_000;
/** Time between two attempts at a store that fails. Milliseconds. */
const RETRY_MS = 250;

/** Parts of an answer that is read from the store. */
export interface StoredAnswerParts extends LossParts {
  readonly cipher: EntryCipher;
  readonly head: AnswerHead;
}

/** Source of one reader, which waits in the store for later entries. */
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
    const { cipher, store, clock } = this.#parts;
    const read = { id: this.#recording.id, offset, waitMs: WAIT_MS, signal };
    while (!signal.aborted) {
      const part = await readPatiently(store, clock, read);
      if (part === undefined) throw new Error("The recording has expired");
      if (part.entries.length > 0) return decryptPart(part, offset, cipher);
      if (!part.isHeld) await closeLost(this.#recording, this.#parts, this.#parts);
    }
    throw new Error("The reader left");
  }
}

/**
 * Reads entries. While the store fails, it retries for the duration of a lease.
 *
 * @throws The last error of the store
 */
export async function readPatiently(
  store: Pick<RecordingStore, "read">,
  clock: Clock,
  { id, ...read }: RecordingRead & { readonly id: string },
): Promise<RecordingPart | undefined> {
  const until = clock.monotonic() + read.waitMs + RECORDING_LEASE_MS;
  while (true) {
    try {
      return await store.read(id, read);
    } catch (error) {
      if (read.signal?.aborted || clock.monotonic() > until) throw error;
      await new Promise<void>((resolve) => clock.timer(RETRY_MS, resolve));
    }
  }
}
