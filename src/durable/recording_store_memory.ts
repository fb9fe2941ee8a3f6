/**
 * Store of recordings in the memory of one process, bounded in bytes. Ended recordings are evicted
 * for new ones, beginning with the key that uses the most bytes.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import {
  entriesFrom,
  type LeasedRecording,
  MemoryRecording,
  sizeOf,
  TOMBSTONE_BYTES,
} from "./memory_recording.ts";
import { RecordingBudget } from "./recording_budget.ts";
import type { LoadedRecording, RecordingJournal } from "./recording_journal.ts";
import {
  type RecordingClaim,
  type RecordingHolder,
  RecordingLost,
  type RecordingName,
  type RecordingPart,
  type RecordingRead,
  RecordingsFull,
  type RecordingStore,
  type SealedEntry,
  type StoredRecording,
  TOMBSTONE_MS,
} from "./recording_store.ts";

export interface MemoryRecordingsOptions {
  readonly clock: Clock;
  /** Maximum size of all recordings together. Bytes. */
  readonly maxBytes: number;
  /** Keeps the recordings beyond the process. Without it they end with the process. */
  readonly journal?: RecordingJournal | undefined;
}

/** Answer to a claim in memory. */
export type ClaimedInMemory =
  | { readonly held: LeasedRecording; readonly isRestarted: boolean }
  | { readonly found: StoredRecording };

/**
 * Store in memory. A holder in the same process has its recordings for the life of the store. The
 * end of the lease of a holder elsewhere must be reported, see {@link LeasedRecording}.
 */
export class MemoryRecordings implements RecordingStore {
  readonly gatherMs: number | undefined = undefined;
  readonly #clock: Clock;
  readonly #journal: RecordingJournal | undefined;
  #maxBytes: number;
  #budget: RecordingBudget<MemoryRecording>;
  /** By id, oldest first. */
  readonly #all = new Map<string, MemoryRecording>();
  #names = new RecordingNames();

  constructor({ clock, maxBytes, journal }: MemoryRecordingsOptions) {
    this.#clock = clock;
    this.#maxBytes = maxBytes;
    this.#budget = new RecordingBudget(maxBytes);
    this.#journal = journal;
    for (const loaded of journal?.load() ?? []) this.#restore(loaded);
  }

  get bytes(): number {
    return this.#budget.bytes;
  }

  /** Maximum size of all recordings together. Bytes. */
  get maxBytes(): number {
    return this.#maxBytes;
  }

  set maxBytes(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#budget.resize(maxBytes);
  }

  /** Number of recordings, including expired ones with a known id. */
  get size(): number {
    return this.#all.size;
  }

  /** Running recordings whose holder has a lease. */
  get running(): readonly { readonly id: string; readonly epoch: number }[] {
    return Array.from(this.#all.values()).filter(({ isWritten }) => isWritten);
  }

  claim(claim: RecordingClaim, holder: RecordingHolder): Promise<ClaimedInMemory> {
    const found = this.#names.find(claim.name);
    if (found?.isGiven) return Promise.resolve({ found: found.described });
    try {
      return Promise.resolve({
        held: this.#create(claim, holder, found),
        isRestarted: found !== undefined,
      });
    } catch (error) {
      return Promise.reject(error);
    }
  }

  isNamed(name: string): Promise<boolean> {
    return Promise.resolve(
      this.#names.find({ text: name, kind: "key", isRetry: true })?.isGiven === true,
    );
  }

  find(id: string): Promise<StoredRecording | undefined> {
    return Promise.resolve(this.#all.get(id)?.described);
  }

  async waitForHead(
    id: string,
    waitMs: number,
    signal?: AbortSignal,
  ): Promise<StoredRecording | undefined> {
    const recording = this.#all.get(id);
    if (recording?.isWritten && recording.entries.length === 0) {
      await recording.change(this.#clock, waitMs, signal);
    }
    return this.find(id);
  }

  async read(
    id: string,
    { offset, waitMs, signal }: RecordingRead,
  ): Promise<RecordingPart | undefined> {
    const recording = this.#all.get(id);
    if (recording === undefined || recording.state === "expired") return undefined;
    recording.holder.onRead();
    let entries = entriesFrom(recording.entries, offset);
    if (entries.length === 0 && recording.isWritten) {
      await recording.change(this.#clock, waitMs, signal);
      if (this.#all.get(id)?.state === "expired") return undefined;
      entries = entriesFrom(recording.entries, offset);
    }
    return { entries, isHeld: recording.isHeld };
  }

  takeOver(id: string, holder: RecordingHolder): Promise<LeasedRecording | undefined> {
    const recording = this.#all.get(id);
    if (recording === undefined || recording.isHeld) return Promise.resolve(undefined);
    const former = recording.holder;
    recording.epoch++;
    recording.holder = holder;
    this.#lease(recording);
    former.onLost();
    return Promise.resolve(this.#toHeld(recording));
  }

  /**
   * Assigns a recording to its holder again, after the store was loaded from its journal or the
   * lease has ended.
   *
   * @returns The recording; `undefined` if it has another holder, or is gone
   */
  resume(id: string, epoch: number, holder: RecordingHolder): LeasedRecording | undefined {
    const recording = this.#all.get(id);
    if (recording?.epoch !== epoch || recording.state === "expired") return undefined;
    recording.holder = holder;
    return this.#toHeld(recording);
  }

  stop(id: string): Promise<boolean> {
    const recording = this.#all.get(id);
    const isRunning = recording?.state === "running";
    if (isRunning) recording.holder.onStop();
    return Promise.resolve(isRunning);
  }

  delete(id: string): Promise<void> {
    const recording = this.#all.get(id);
    if (recording === undefined) return Promise.resolve();
    this.#expire(recording);
    this.#forget(recording);
    return Promise.resolve();
  }

  list(limit: number): Promise<readonly StoredRecording[]> {
    const kept = Array.from(this.#all.values()).filter(({ state }) => state !== "expired");
    return Promise.resolve(kept.reverse().slice(0, limit).map(({ described }) => described));
  }

  close(): Promise<void> {
    for (const recording of this.#all.values()) {
      recording.cancelTimer();
      recording.wake();
    }
    this.#all.clear();
    this.#names = new RecordingNames();
    this.#budget = new RecordingBudget(this.#maxBytes);
    return Promise.resolve();
  }

  /** Creates a recording. @param lost The earlier recording that loses its name to it */
  #create(
    { id, name, facts }: RecordingClaim,
    holder: RecordingHolder,
    lost?: MemoryRecording,
  ): LeasedRecording {
    const recording = new MemoryRecording(
      {
        id,
        facts,
        name,
        epoch: 1,
        state: "running",
        expiresAt: undefined,
        lapsedAt: undefined,
        entries: [],
      },
      holder,
    );
    this.#makeRoom(sizeOf(), facts.keyId);
    this.#journal?.save(recording.kept);
    this.#budget.add(recording);
    this.#all.set(id, recording);
    if (lost !== undefined) {
      this.#names.free(lost);
      this.#journal?.save(lost.kept);
    }
    this.#names.add(recording);
    return this.#toHeld(recording);
  }

  /** Returns a recording for its holder. It works while the epoch is the holder's. */
  #toHeld(recording: MemoryRecording): LeasedRecording {
    const { id, epoch } = recording;
    const isMine = () => recording.epoch === epoch;
    const append = (entry: SealedEntry) =>
      Promise.resolve().then(() => {
        if (!isMine()) throw new RecordingLost();
        this.#append(recording, entry);
      });
    return {
      id,
      epoch,
      append,
      end: (entry, state) => append(entry).then(() => this.#end(recording, state)),
      discard: () =>
        Promise.resolve(isMine() ? this.#expire(recording, recording.isTakenOver) : undefined),
      setRead: (isRead) => void (isMine() && (recording.isRead = isRead)),
      lapse: () => void (isMine() && this.#lapse(recording)),
      renew: () => isMine() && this.#lease(recording),
    };
  }

  #lease(recording: MemoryRecording): boolean {
    if (recording.state !== "running") return false;
    if (recording.lapsedAt === undefined) return true;
    recording.cancelTimer();
    recording.lapsedAt = undefined;
    this.#journal?.save(recording.kept);
    return true;
  }

  #lapse(recording: MemoryRecording): void {
    if (!recording.isWritten) return;
    recording.lapsedAt = this.#clock.now();
    recording.isRead = false;
    this.#journal?.save(recording.kept);
    this.#endIn(recording, recording.facts.keepMs);
    recording.wake();
  }

  /** Makes room for bytes of a key by expiring ended recordings. @throws {RecordingsFull} */
  #makeRoom(bytes: number, keyId: string): void {
    if (!this.#budget.mayRun(bytes, keyId)) throw new RecordingsFull();
    while (!this.#budget.hasRoom(bytes)) {
      const { expired } = this.#budget;
      const next = expired ?? this.#budget.next(keyId);
      if (next === undefined) throw new RecordingsFull();
      if (next === expired) this.#forget(next);
      else this.#expire(next);
    }
  }

  #append(recording: MemoryRecording, entry: SealedEntry): void {
    if (recording.hasLast(entry)) return;
    if (recording.state !== "running") throw new RecordingLost();
    this.#makeRoom(sizeOf(entry), recording.facts.keyId);
    this.#journal?.append(recording.id, recording.entries.length, entry);
    this.#budget.grow(recording, sizeOf(entry));
    this.#lease(recording);
    recording.push(entry);
    recording.wake();
  }

  #end(recording: MemoryRecording, state: "complete" | "broken"): void {
    if (recording.state !== "running") return;
    const { keepMs } = recording.facts;
    recording.end(state, this.#clock.now() + keepMs);
    this.#budget.end(recording);
    if (state === "broken" && !recording.isTakenOver) this.#names.free(recording);
    this.#journal?.save(recording.kept);
    this.#endIn(recording, keepMs);
    recording.wake();
  }

  /** Expires a recording after a time, or forgets it if it has expired. */
  #endIn(recording: MemoryRecording, ms: number): void {
    const end = () =>
      recording.state === "expired" ? this.#forget(recording) : this.#expire(recording);
    recording.cancelTimer = this.#clock.timer(Math.max(0, ms), end, { isBackground: true });
  }

  /**
   * Deletes the entries. The id stays known for some time. @param keepsName True if the name must
   * report the loss
   */
  #expire(recording: MemoryRecording, keepsName = false): void {
    if (recording.state === "expired") return;
    this.#budget.expire(recording, TOMBSTONE_BYTES);
    recording.end("expired", this.#clock.now());
    if (!keepsName) this.#names.free(recording);
    this.#journal?.clear(recording.id);
    this.#journal?.save(recording.kept);
    recording.cancelTimer();
    this.#endIn(recording, TOMBSTONE_MS);
    recording.wake();
  }

  #forget(recording: MemoryRecording): void {
    const { id } = recording;
    if (!this.#all.delete(id)) return;
    this.#names.free(recording);
    this.#budget.remove(recording);
    recording.cancelTimer();
    this.#journal?.forget(id);
  }

  /** Restores a recording from the journal. */
  #restore(loaded: LoadedRecording): void {
    const recording = new MemoryRecording(loaded);
    const { id, state, expiresAt = 0, lapsedAt, facts: { keepMs } } = recording;
    this.#all.set(id, recording);
    this.#budget.add(recording);
    if (state === "expired") {
      this.#budget.expire(recording, TOMBSTONE_BYTES);
      recording.bytes = TOMBSTONE_BYTES;
      return this.#endIn(recording, expiresAt + TOMBSTONE_MS - this.#clock.now());
    }
    if (state !== "running") this.#budget.end(recording);
    this.#names.add(recording);
    const endsAt = state === "running" ? lapsedAt && lapsedAt + keepMs : expiresAt;
    if (endsAt !== undefined) this.#endIn(recording, endsAt - this.#clock.now());
  }
}

/** Recordings by name: finds the recording for a request. */
class RecordingNames {
  /** Recordings of each name, oldest first. */
  readonly #named = new Map<string, MemoryRecording[]>();

  /** Finds the recording for a request with this name. */
  find(name: RecordingName | undefined): MemoryRecording | undefined {
    const named = name && this.#named.get(name.text);
    if (name === undefined || named === undefined) return undefined;
    if (name.kind === "key") return named.at(-1);
    return name.isRetry ? findRetried(named) : undefined;
  }

  /** Adds a recording, newer than the ones before. */
  add(recording: MemoryRecording): void {
    const text = recording.name?.text;
    if (text !== undefined) this.#named.set(text, [...this.#named.get(text) ?? [], recording]);
  }

  /** Removes the name from a recording, so that it is free or belongs to another one. */
  free(recording: MemoryRecording): void {
    const text = recording.name?.text;
    if (text === undefined) return;
    recording.name = undefined;
    const others = this.#named.get(text)?.filter((other) => other !== recording) ?? [];
    if (others.length === 0) this.#named.delete(text);
    else this.#named.set(text, others);
  }
}

/**
 * Finds the recording to which a retry by body belongs: the only running one, or one without a
 * reader if several run, or the newest if none runs. Equal requests at the same time are not
 * retries of each other.
 */
function findRetried(named: readonly MemoryRecording[]): MemoryRecording | undefined {
  const running = named.filter(({ state }) => state === "running");
  if (running.length === 1) return running[0];
  return running.length === 0 ? named.at(-1) : running.find(({ isRead }) => !isRead);
}
