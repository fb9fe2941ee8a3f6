/**
 * Store of recordings in the memory of one process, bounded in bytes: the oldest that have ended make room for new ones.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import {
  type Claimed,
  ENTRY_KIND,
  type HeldRecording,
  type RecordingClaim,
  type RecordingFacts,
  type RecordingHolder,
  RecordingLost,
  type RecordingPart,
  type RecordingRead,
  RecordingsFull,
  type RecordingState,
  type RecordingStore,
  type SealedEntry,
  type StoredRecording,
} from "./recording_store.ts";

/** Size of a recording without its entries: facts, tags and what the runtime adds. Bytes. */
const RECORDING_BYTES = 2048;
/** Size of an entry beyond its ciphertext. Bytes. */
const ENTRY_BYTES = 128;
/** The most bytes of ciphertext that one read returns. */
const MAX_READ_BYTES = 65_536;
/** Time for which the id of an expired recording is known. Milliseconds. */
const TOMBSTONE_MS = 600_000;

/** Options of the store. */
export interface MemoryRecordingsOptions {
  readonly clock: Clock;
  /** Maximum size of all recordings together. Bytes. */
  readonly maxBytes: number;
}

interface Stored {
  readonly id: string;
  readonly facts: RecordingFacts;
  readonly name: RecordingClaim["name"];
  readonly holder: RecordingHolder;
  readonly waiting: Set<() => void>;
  entries: SealedEntry[];
  state: RecordingState;
  length: number;
  bytes: number;
  expiresAt: number | undefined;
  isRead: boolean;
  cancelTimer: () => void;
}

const nothing = (): void => {};

/** Store in memory. Its recordings always have a holder: they die with the process that writes them. */
export class MemoryRecordings implements RecordingStore {
  readonly gatherMs = undefined;
  readonly #clock: Clock;
  readonly #maxBytes: number;
  #bytes = 0;
  /** By id, oldest first. */
  readonly #all = new Map<string, Stored>();
  /** Recordings of each name, oldest first. */
  readonly #named = new Map<string, Stored[]>();

  constructor({ clock, maxBytes }: MemoryRecordingsOptions) {
    this.#clock = clock;
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  claim(claim: RecordingClaim, holder: RecordingHolder): Promise<Claimed> {
    const found = this.#findNamed(claim.name);
    if (found !== undefined) return Promise.resolve({ found: this.#describe(found) });
    try {
      return Promise.resolve({ held: this.#create(claim, holder), isRestarted: false });
    } catch (error) {
      return Promise.reject(error);
    }
  }

  find(id: string): Promise<StoredRecording | undefined> {
    const stored = this.#all.get(id);
    return Promise.resolve(stored && this.#describe(stored));
  }

  async waitForHead(id: string, waitMs: number, signal?: AbortSignal): Promise<StoredRecording | undefined> {
    const stored = this.#all.get(id);
    if (stored !== undefined && stored.state === "running" && stored.entries.length === 0) {
      await this.#change(stored, waitMs, signal);
    }
    return this.find(id);
  }

  async read(id: string, { offset, waitMs, signal }: RecordingRead): Promise<RecordingPart | undefined> {
    const stored = this.#all.get(id);
    if (stored === undefined || stored.state === "expired") return undefined;
    stored.holder.onRead();
    let entries = entriesFrom(stored.entries, offset);
    if (entries.length === 0 && stored.state === "running") {
      await this.#change(stored, waitMs, signal);
      if (this.#all.get(id)?.state === "expired") return undefined;
      entries = entriesFrom(stored.entries, offset);
    }
    return { entries, isHeld: true };
  }

  takeOver(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  stop(id: string): Promise<boolean> {
    const stored = this.#all.get(id);
    const isRunning = stored?.state === "running";
    if (isRunning) stored.holder.onStop();
    return Promise.resolve(isRunning);
  }

  delete(id: string): Promise<void> {
    const stored = this.#all.get(id);
    if (stored !== undefined) {
      this.#expire(stored);
      stored.cancelTimer();
      this.#all.delete(id);
    }
    return Promise.resolve();
  }

  list(limit: number): Promise<readonly StoredRecording[]> {
    const kept = Array.from(this.#all.values()).filter(({ state }) => state !== "expired");
    return Promise.resolve(kept.reverse().slice(0, limit).map((stored) => this.#describe(stored)));
  }

  close(): Promise<void> {
    for (const stored of this.#all.values()) stored.cancelTimer();
    return Promise.resolve();
  }

  /** Finds the recording that a request with this name gets. */
  #findNamed(name: RecordingClaim["name"]): Stored | undefined {
    const named = name && this.#named.get(name.text);
    if (name === undefined || named === undefined) return undefined;
    if (name.kind === "key") return named.at(-1);
    return name.isRetry ? findRetried(named) : undefined;
  }

  #create({ id, name, facts }: RecordingClaim, holder: RecordingHolder): HeldRecording {
    const stored: Stored = {
      ...{ id, facts, name, holder, waiting: new Set(), entries: [], state: "running", length: 0, bytes: 0 },
      ...{ expiresAt: undefined, isRead: true, cancelTimer: nothing },
    };
    this.#take(stored, RECORDING_BYTES);
    this.#all.set(id, stored);
    if (name !== undefined) this.#named.set(name.text, [...this.#named.get(name.text) ?? [], stored]);
    const append = (entry: SealedEntry) => Promise.resolve().then(() => this.#append(stored, entry));
    return {
      id,
      epoch: 1,
      append,
      end: (entry, state) => append(entry).then(() => this.#end(stored, state)),
      discard: () => Promise.resolve(this.#expire(stored)),
      setRead: (isRead) => stored.isRead = isRead,
    };
  }

  /** Takes room for a recording, from others if there is none left. @throws {RecordingsFull} */
  #take(stored: Stored, bytes: number): void {
    for (const other of this.#all.values()) {
      if (this.#bytes + bytes <= this.#maxBytes) break;
      if (other.state === "complete" || other.state === "broken") this.#expire(other);
    }
    if (this.#bytes + bytes > this.#maxBytes) throw new RecordingsFull();
    this.#bytes += bytes;
    stored.bytes += bytes;
  }

  #append(stored: Stored, entry: SealedEntry): void {
    if (stored.state !== "running") throw new RecordingLost();
    this.#take(stored, entry.sealed.byteLength + ENTRY_BYTES);
    const last = stored.entries.at(-1);
    if (last?.kind === entry.kind && last.offset === entry.offset) return;
    stored.entries.push(entry);
    if (entry.kind !== ENTRY_KIND.head) stored.length = lengthAfter(entry);
    this.#wake(stored);
  }

  #end(stored: Stored, state: "complete" | "broken"): void {
    stored.state = state;
    stored.expiresAt = this.#clock.now() + stored.facts.keepMs;
    if (state === "broken") this.#forgetName(stored);
    const expire = () => this.#expire(stored);
    stored.cancelTimer = this.#clock.timer(stored.facts.keepMs, expire, { isBackground: true });
    this.#wake(stored);
  }

  /** Deletes the entries; the id stays for some time. */
  #expire(stored: Stored): void {
    if (stored.state === "expired") return;
    stored.state = "expired";
    stored.entries = [];
    this.#bytes -= stored.bytes;
    stored.bytes = 0;
    this.#forgetName(stored);
    stored.cancelTimer();
    const forget = () => void this.#all.delete(stored.id);
    stored.cancelTimer = this.#clock.timer(TOMBSTONE_MS, forget, { isBackground: true });
    this.#wake(stored);
  }

  #forgetName(stored: Stored): void {
    if (stored.name === undefined) return;
    const { text } = stored.name;
    const others = this.#named.get(text)?.filter((other) => other !== stored) ?? [];
    if (others.length === 0) this.#named.delete(text);
    else this.#named.set(text, others);
  }

  #wake({ waiting }: Stored): void {
    for (const wake of Array.from(waiting)) wake();
  }

  /** Waits for a change of a recording, or for a time, or for a signal. */
  #change({ waiting }: Stored, waitMs: number, signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted || waitMs <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        waiting.delete(wake);
        cancelTimer();
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      const cancelTimer = this.#clock.timer(waitMs, wake, { isBackground: true });
      signal?.addEventListener("abort", wake);
      waiting.add(wake);
    });
  }

  #describe({ id, facts, state, length, expiresAt, entries: [head] }: Stored): StoredRecording {
    return { id, facts, state, isHeld: true, length, expiresAt, head };
  }
}

/** Length of the tag with which AES-GCM authenticates an entry. Bytes. */
const TAG_BYTES = 16;

/** Returns the length of the body up to an entry's end. */
function lengthAfter({ kind, offset, sealed }: SealedEntry): number {
  return kind === ENTRY_KIND.bytes ? offset + sealed.byteLength - TAG_BYTES : offset;
}

/** Returns the entries from the one that has the byte at an offset on, within the size of a read. */
function entriesFrom(entries: readonly SealedEntry[], offset: number): SealedEntry[] {
  let start = entries.length;
  while (start > 1 && reaches(entries[start - 1], offset)) start--;
  let bytes = 0;
  const isWithin = ({ sealed }: SealedEntry, index: number) =>
    index === 0 || (bytes += sealed.byteLength) <= MAX_READ_BYTES;
  return entries.slice(start).filter(isWithin);
}

/** Tells whether an entry has bytes from an offset on, or is the end. */
function reaches(entry: SealedEntry | undefined, offset: number): boolean {
  return entry !== undefined && (entry.kind === ENTRY_KIND.end || lengthAfter(entry) > offset);
}

/**
 * Finds the recording to which a retry by body belongs: the only one that runs, or one of several that nobody reads; if
 * none runs, the newest. Equal requests at the same time are no retries of each other.
 */
function findRetried(named: readonly Stored[]): Stored | undefined {
  const running = named.filter(({ state }) => state === "running");
  if (running.length === 1) return running[0];
  return running.length === 0 ? named.at(-1) : running.find(({ isRead }) => !isRead);
}
