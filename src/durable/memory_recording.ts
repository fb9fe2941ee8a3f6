/**
 * One recording in memory: its entries, its holder, and the waits for its changes.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import type { BudgetedRecording } from "./recording_budget.ts";
import type { KeptRecording, LoadedRecording } from "./recording_journal.ts";
import {
  ENTRY_KIND,
  FIRST_EPOCH,
  type HeldRecording,
  lengthAfter,
  MAX_READ_BYTES,
  type RecordingFacts,
  type RecordingHolder,
  type RecordingName,
  type RecordingState,
  type SealedEntry,
  type StoredRecording,
} from "./recording_store.ts";

/** Size of an expired recording. Bytes. */
export const TOMBSTONE_BYTES = 1024;
/**
 * Size of a recording without its entries, and of an entry beyond its ciphertext: facts, tags, and
 * overhead of the runtime. With these sizes, no runtime's process grows by more than the counted
 * bytes. Bytes.
 */
const RECORDING_BYTES = 5120;
const ENTRY_BYTES = 512;

const nothing = (): void => {};
/** Holder of a recording that is over, or that was loaded and not resumed by its gateway yet. */
const NO_HOLDER: RecordingHolder = { onStop: nothing, onLost: nothing, onRead: nothing };

/**
 * Returns the counted size of an entry, or of a recording itself if there is no argument. Bytes.
 */
export function sizeOf(entry?: SealedEntry): number {
  return entry === undefined ? RECORDING_BYTES : entry.sealed.byteLength + ENTRY_BYTES;
}

/** A recording whose holder can be in another process, which can end separately. */
export interface LeasedRecording extends HeldRecording {
  /** Notes that the lease of the holder has ended. */
  lapse(): void;
  /**
   * Notes that the holder lives. @returns False if the recording has another holder, has ended or
   * is gone
   */
  renew(): boolean;
}

export class MemoryRecording implements BudgetedRecording {
  readonly id: string;
  readonly facts: RecordingFacts;
  name: RecordingName | undefined;
  holder: RecordingHolder;
  epoch: number;
  /** Wall clock at which the lease of its holder has ended; `undefined` while it lasts. */
  lapsedAt: number | undefined;
  entries: SealedEntry[];
  state: RecordingState;
  /** Number of bytes of the answer's body. */
  length = 0;
  /** Counted size. */
  bytes: number = sizeOf();
  share: BudgetedRecording["share"];
  queue: BudgetedRecording["queue"];
  previous: BudgetedRecording | undefined;
  next: BudgetedRecording | undefined;
  expiresAt: number | undefined;
  isRead: boolean;
  /** Cancels the timer of its expiry. */
  cancelTimer: () => void = nothing;
  readonly #waiting = new Set<() => void>();

  /** @param holder Its holder; left out if it was loaded */
  constructor({ entries, ...kept }: LoadedRecording, holder?: RecordingHolder) {
    const { id, facts, name, epoch, state, expiresAt, lapsedAt } = kept;
    this.id = id;
    this.facts = facts;
    this.name = name;
    this.epoch = epoch;
    this.state = state;
    this.expiresAt = expiresAt;
    this.lapsedAt = lapsedAt;
    this.entries = [];
    this.holder = holder ?? NO_HOLDER;
    this.isRead = holder !== undefined;
    for (const entry of entries) this.push(entry);
  }

  /** Returns whether its holder writes it. */
  get isWritten(): boolean {
    return this.state === "running" && this.lapsedAt === undefined;
  }

  /** Returns whether it has a holder, or needs none. No gateway can then take it over. */
  get isHeld(): boolean {
    return this.state !== "running" || this.lapsedAt === undefined;
  }

  /** Returns whether another gateway has taken it over. */
  get isTakenOver(): boolean {
    return this.epoch > FIRST_EPOCH;
  }

  /**
   * Returns whether a request with its name receives it. A broken recording has its name only if it
   * was lost, to report that once.
   */
  get isGiven(): boolean {
    return this.isHeld && this.state !== "broken" && this.state !== "expired";
  }

  /** The part of it that a journal keeps in addition to its entries. */
  get kept(): KeptRecording {
    const { id, facts, name, epoch, state, expiresAt, lapsedAt } = this;
    return { id, facts, name, epoch, state, expiresAt, lapsedAt };
  }

  /** The recording as a store describes it. */
  get described(): StoredRecording {
    const { id, facts, state, isHeld, length, expiresAt, entries: [head] } = this;
    return { id, facts, state, isHeld, length, expiresAt, head };
  }

  /** Returns whether an entry is the last one, sent again. */
  hasLast({ kind, offset }: SealedEntry): boolean {
    const last = this.entries.at(-1);
    return last?.kind === kind && last.offset === offset;
  }

  push(entry: SealedEntry): void {
    this.entries.push(entry);
    this.bytes += sizeOf(entry);
    if (entry.kind !== ENTRY_KIND.head) this.length = lengthAfter(entry);
  }

  /**
   * Ends it, or expires it. The reference to its holder is dropped at once, because on Bun it can
   * keep the whole exchange in memory.
   *
   * @param expiresAt Wall clock at which it expires or has expired
   */
  end(state: "complete" | "broken" | "expired", expiresAt: number): void {
    this.state = state;
    this.expiresAt = expiresAt;
    this.holder = NO_HOLDER;
    if (state !== "expired") return;
    this.entries = [];
    this.bytes = TOMBSTONE_BYTES;
  }

  /** Wakes all waits for a change. */
  wake(): void {
    for (const wake of Array.from(this.#waiting)) wake();
  }

  /** Waits for a change, or for a time, or for a signal. */
  change(clock: Clock, waitMs: number, signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted || waitMs <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        this.#waiting.delete(wake);
        cancelTimer();
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      const cancelTimer = clock.timer(waitMs, wake, { isBackground: true });
      signal?.addEventListener("abort", wake);
      this.#waiting.add(wake);
    });
  }
}

/**
 * Returns the entries that have bytes from an offset on, and the end, within the size of a read.
 */
export function entriesFrom(entries: readonly SealedEntry[], offset: number): SealedEntry[] {
  let start = entries.length;
  while (start > 1 && reaches(entries[start - 1], offset)) start--;
  let bytes = 0;
  const isWithin = ({ sealed }: SealedEntry, index: number) =>
    index === 0 || (bytes += sealed.byteLength) <= MAX_READ_BYTES;
  return entries.slice(start).filter(isWithin);
}

/** Returns whether an entry has bytes from an offset on, or is the end. */
function reaches(entry: SealedEntry | undefined, offset: number): boolean {
  return entry !== undefined && (entry.kind === ENTRY_KIND.end || lengthAfter(entry) > offset);
}
