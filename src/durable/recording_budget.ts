/**
 * The budget of recordings in memory: the share of each gateway key, and the order in which
 * recordings are evicted. Every step runs in constant time, regardless of the number of recordings.
 *
 * @module
 */
import { createShare, type Share, SharedBudget } from "../exchange/shared_budget.ts";

/** An item of a {@link LinkedQueue}, in at most one at a time. */
interface Linked<Item> {
  previous: Item | undefined;
  next: Item | undefined;
}

/**
 * A queue that allows removal of items from its middle. A `Set` is slow here, because V8 skips
 * removed items at its start each time.
 */
class LinkedQueue<Item extends Linked<Item>> {
  #last: Item | undefined;
  first: Item | undefined;

  add(item: Item): void {
    item.previous = this.#last;
    if (this.#last === undefined) this.first = item;
    else this.#last.next = item;
    this.#last = item;
  }

  /** Removes an item, which must be in this queue. */
  remove(item: Item): void {
    const { previous, next } = item;
    if (previous === undefined) this.first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    item.previous = item.next = undefined;
  }
}

/** A recording as its budget uses it. */
export interface BudgetedRecording extends Linked<BudgetedRecording> {
  readonly facts: { readonly keyId: string };
  /** Counted size. Bytes. */
  readonly bytes: number;
  /** Share of its key; `undefined` before it is counted, and once it has expired. */
  share: KeyShare | undefined;
  /** Queue in which it waits for its eviction. */
  queue: LinkedQueue<BudgetedRecording> | undefined;
}

class KeyShare implements Share, Linked<KeyShare> {
  used = 0;
  users = 0;
  /** Size of its running recordings, which cannot be evicted. Bytes. */
  readonly running: Share = createShare();
  /** Recordings that have ended, oldest first. */
  readonly ended: LinkedQueue<BudgetedRecording> = new LinkedQueue();
  /** Index of the queue of shares that it is in. */
  sizeClass: number | undefined;
  previous: KeyShare | undefined;
  next: KeyShare | undefined;
}

/**
 * Size classes of shares for each doubling of the size: shares of one class differ by less than a
 * fifth.
 */
export const CLASSES_A_DOUBLING = 4;
const CLASSES = 53 * CLASSES_A_DOUBLING;
const classOf = (bytes: number): number =>
  Math.floor(CLASSES_A_DOUBLING * Math.log2(Math.max(1, bytes)));

/**
 * Bytes that running recordings of a key can have for each byte that no running recording has: at
 * most nine tenths of the budget. So the calls of a key leave room for calls of other keys.
 */
export const RUNNING_FACTOR = 9;

export class RecordingBudget<Recording extends BudgetedRecording> {
  readonly #budget: SharedBudget<KeyShare>;
  /** The part of the budget that running recordings use. */
  readonly #running: SharedBudget;
  /** Shares with ended recordings, by the total size of the share. */
  readonly #classes = Array.from({ length: CLASSES }, () => new LinkedQueue<KeyShare>());
  readonly #expired = new LinkedQueue<BudgetedRecording>();

  constructor(maxBytes: number) {
    this.#budget = new SharedBudget(maxBytes, () => new KeyShare());
    this.#running = new SharedBudget(maxBytes, createShare);
  }

  /** Changes the maximum size of all recordings together. Existing recordings stay. */
  resize(maxBytes: number): void {
    this.#budget.resize(maxBytes);
    this.#running.resize(maxBytes);
  }

  get bytes(): number {
    return this.#budget.used;
  }

  hasRoom(bytes: number): boolean {
    return bytes <= this.#budget.free;
  }

  /** Returns whether the running recordings of a key are allowed to grow. */
  mayRun(bytes: number, keyId: string): boolean {
    const running = this.#budget.find(keyId)?.running ?? createShare();
    return bytes <= this.#running.room(running, RUNNING_FACTOR);
  }

  add(recording: Recording): void {
    recording.share = this.#budget.join(recording.facts.keyId);
    this.grow(recording, recording.bytes);
  }

  /** Counts bytes that were added to a recording. */
  grow({ share }: Recording, bytes: number): void {
    this.#budget.count(bytes);
    if (share === undefined) return;
    share.used += bytes;
    this.#run(share, bytes);
    this.#sort(share);
  }

  /** Allows the eviction of a recording that has ended. */
  end(recording: Recording): void {
    const { share } = recording;
    if (share === undefined) return;
    this.#run(share, -recording.bytes);
    this.#enqueue(recording, share.ended);
    this.#sort(share);
  }

  /** Counts a recording as expired. @param bytes Its counted size from now on */
  expire(recording: Recording, bytes: number): void {
    this.remove(recording);
    this.#budget.count(bytes);
    this.#enqueue(recording, this.#expired);
  }

  /** Removes a recording from the counts. */
  remove(recording: Recording): void {
    const { share } = recording;
    const isRunning = recording.queue === undefined;
    recording.queue?.remove(recording);
    recording.queue = undefined;
    this.#budget.count(-recording.bytes);
    if (share === undefined) return;
    recording.share = undefined;
    share.used -= recording.bytes;
    if (isRunning) this.#run(share, -recording.bytes);
    this.#budget.leave(share);
    this.#sort(share);
  }

  /** The recording that expired first. */
  get expired(): Recording | undefined {
    return this.#expired.first as Recording | undefined;
  }

  /**
   * Finds the recording to evict for a key: the oldest one of the key with the most bytes, compared
   * with a precision of a fifth. If sizes are equal, a recording of the key itself is preferred. So
   * a key evicts its own recordings, or recordings of a larger key.
   *
   * @returns The recording; `undefined` if none can be evicted for this key
   */
  next(keyId: string): Recording | undefined {
    const own = this.#budget.find(keyId);
    const ownClass = own === undefined ? -1 : classOf(own.used);
    for (let index = CLASSES - 1; index >= Math.max(0, ownClass); index--) {
      const largest = this.#classes[index]?.first;
      if (largest === undefined) continue;
      const isOwn = index === ownClass && own?.ended.first !== undefined;
      return (isOwn ? own : largest)?.ended.first as Recording | undefined;
    }
    return undefined;
  }

  /** Counts bytes of running recordings. */
  #run({ running }: KeyShare, bytes: number): void {
    running.used += bytes;
    this.#running.count(bytes);
  }

  #enqueue(recording: Recording, queue: LinkedQueue<BudgetedRecording>): void {
    queue.add(recording);
    recording.queue = queue;
  }

  /** Moves a share to the queue of its size. */
  #sort(share: KeyShare): void {
    const sizeClass = share.ended.first === undefined ? undefined : classOf(share.used);
    if (sizeClass === share.sizeClass) return;
    if (share.sizeClass !== undefined) this.#classes[share.sizeClass]?.remove(share);
    if (sizeClass !== undefined) this.#classes[sizeClass]?.add(share);
    share.sizeClass = sizeClass;
  }
}
