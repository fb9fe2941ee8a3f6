/**
 * Port: a journal of recordings, from which a store in memory is loaded again if its process can
 * end at any time.
 *
 * @module
 */
import type {
  RecordingFacts,
  RecordingName,
  RecordingState,
  SealedEntry,
} from "./recording_store.ts";

/** A recording as a journal keeps it, without its entries. */
export interface KeptRecording {
  readonly id: string;
  readonly facts: RecordingFacts;
  /** `undefined` if it has no name, or has it no longer. */
  readonly name: RecordingName | undefined;
  readonly epoch: number;
  readonly state: RecordingState;
  /**
   * Wall clock at which it expires or has expired; `undefined` while it runs. Milliseconds since
   * 1970.
   */
  readonly expiresAt: number | undefined;
  /**
   * Wall clock at which the lease of its holder has ended; `undefined` while it lasts. Milliseconds
   * since 1970.
   */
  readonly lapsedAt: number | undefined;
}

/** A recording with its entries, as it is loaded. */
export interface LoadedRecording extends KeptRecording {
  readonly entries: readonly SealedEntry[];
}

/**
 * Port: a journal. Its writes are atomic with the change that they store: if a write throws, the
 * change does not happen.
 */
export interface RecordingJournal {
  /** Loads all recordings, oldest first. */
  load(): Iterable<LoadedRecording>;
  /** Stores a new recording, or changes of a recording. */
  save(kept: KeptRecording): void;
  /** Stores an entry. @param index Number of entries before it */
  append(id: string, index: number, entry: SealedEntry): void;
  /** Deletes the entries of a recording. */
  clear(id: string): void;
  /** Deletes a recording. */
  forget(id: string): void;
}
