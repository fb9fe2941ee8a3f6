/**
 * A store of recordings for several gateways that fails on command and checks its entries; and its
 * clock.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  type Claimed,
  ENTRY_KIND,
  FIRST_EPOCH,
  type HeldRecording,
  RECORDING_LEASE_MS,
  type RecordingClaim,
  type RecordingHolder,
  RecordingLost,
  type RecordingPart,
  type RecordingRead,
  RecordingsFull,
  type RecordingState,
  type RecordingStore,
  type SealedEntry,
  type StoredRecording,
} from "../../src/durable/recording_store.ts";
import type { EntryCipher, OwnerKeys } from "../../src/durable/recording_keys.ts";
import type { Clock } from "../../src/exchange/clock.ts";

/** Lets all pending work run that does not wait for a timer. */
export const quiet = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

/** A clock that a test moves. */
export class FakeClock implements Clock {
  #now = 0;
  #number = 0;
  readonly #timers = new Map<number, { readonly at: number; readonly fire: () => void }>();

  /** Number of pending timers. */
  get waiting(): number {
    return this.#timers.size;
  }

  now(): number {
    return 1_700_000_000_000 + this.#now;
  }

  monotonic(): number {
    return this.#now;
  }

  timer(ms: number, fire: () => void): () => void {
    const number = this.#number++;
    this.#timers.set(number, { at: this.#now + Math.max(1, ms), fire });
    return () => void this.#timers.delete(number);
  }

  /** Advances the time; each timer runs when it is due. */
  async pass(ms: number): Promise<void> {
    await quiet();
    const until = this.#now + ms;
    while (true) {
      const [next] = Array.from(this.#timers).filter(([, { at }]) => at <= until).sort((
        [, a],
        [, b],
      ) => a.at - b.at);
      if (next === undefined) break;
      const [number, { at, fire }] = next;
      this.#now = Math.max(this.#now, at);
      this.#timers.delete(number);
      fire();
      await quiet();
    }
    this.#now = until;
    await quiet();
  }
}

const TAG_BYTES = 16;

/** Keys that seal by adding the position, so that nothing waits for another thread. */
export function toPlainKeys(): OwnerKeys {
  const tagOf = ({ kind, offset, epoch }: Omit<SealedEntry, "sealed">) =>
    Buffer.from(`${kind}:${offset}:${epoch}`.padEnd(TAG_BYTES));
  const cipher = {
    seal: (place: Omit<SealedEntry, "sealed">, content: Uint8Array) =>
      Promise.resolve({ ...place, sealed: new Uint8Array(Buffer.concat([tagOf(place), content])) }),
    open(entry: SealedEntry) {
      assert.deepEqual(
        Buffer.from(entry.sealed.subarray(0, TAG_BYTES)),
        tagOf(entry),
        "an entry was moved",
      );
      return Promise.resolve(entry.sealed.slice(TAG_BYTES));
    },
  } as unknown as EntryCipher;
  const keys = {
    ownerTag: (id: string) => `owner of ${id}`,
    cipher: () => Promise.resolve(cipher),
  };
  return keys as unknown as OwnerKeys;
}

/** The behaviour of a gateway's connection to the store. */
export type Fault = "none" | "fails" | "answers get lost" | "full" | "dead";

interface Recorded extends Pick<StoredRecording, "id" | "facts"> {
  readonly name: string | undefined;
  gateway: number;
  holder: RecordingHolder;
  epoch: number;
  leaseUntil: number;
  entries: SealedEntry[];
  state: RecordingState;
  expiresAt: number | undefined;
  readonly waiting: Set<() => void>;
}

/** The store. */
export class ModelRecordings {
  readonly #clock: Clock;
  readonly #all = new Map<string, Recorded>();
  readonly #names = new Map<string, string>();
  readonly #sealed = new Map<string, string>();
  readonly #faults: Fault[] = [];
  /** Ids of deleted recordings: they are unknown from then on. */
  readonly deleted: Set<string> = new Set();
  /** True if all appends fail, for every gateway. */
  failAppends = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Stored bytes of all recordings that have not expired. */
  get bytes(): number {
    return Array.from(this.#all.values()).reduce((sum, { entries }) => sum + lengthOf(entries), 0);
  }

  /** Number of running recordings. */
  get running(): number {
    return Array.from(this.#all.values()).filter(({ state }) => state === "running").length;
  }

  /** Sets the behaviour of a gateway's connection from now on. */
  setFault(gateway: number, fault: Fault): void {
    if (this.#faults[gateway] === "dead") return;
    if (fault === "dead") {
      for (const each of this.#all.values()) {
        if (each.gateway === gateway) {
          each.leaseUntil = this.#clock.monotonic() + RECORDING_LEASE_MS;
        }
      }
    }
    this.#faults[gateway] = fault;
  }

  /** Ends the leases of a gateway without its knowledge. */
  lapse(gateway: number): void {
    for (const each of this.#all.values()) if (each.gateway === gateway) each.leaseUntil = -1;
  }

  /** Removes recordings whose time is over. */
  expire(): void {
    for (const each of this.#all.values()) {
      if (each.expiresAt !== undefined && each.expiresAt <= this.#clock.now()) this.#expire(each);
    }
  }

  /** Returns the store for one gateway. */
  of(gateway: number): RecordingStore {
    const run = async <Answer>(act: () => Answer): Promise<Answer> => {
      await Promise.resolve();
      const fault = this.#faults[gateway];
      if (fault === "dead" || fault === "fails") throw new Error("The store fails");
      return act();
    };
    const find = (id: string) => this.#describe(this.#all.get(id));
    const settled = async (
      id: string,
      isThere: (found: Recorded) => boolean,
      wait: Omit<RecordingRead, "offset">,
    ) => {
      const found = this.#all.get(id);
      if (found?.state === "running" && !isThere(found) && this.#isHeld(found)) {
        await this.#change(found, wait);
      }
    };
    return {
      gatherMs: 20,
      claim: (claim, holder) =>
        run(() => this.#lose(this.#claim(claim, { gateway, holder }), gateway)),
      isNamed: (name) => run(() => this.#names.has(name)),
      find: (id) => run(() => find(id)),
      waitForHead: async (id, waitMs, signal) => {
        await settled(id, ({ entries }) => entries.length > 0, { waitMs, signal });
        return await run(() => find(id));
      },
      read: async (id, read) => {
        this.#all.get(id)?.holder.onRead();
        await settled(id, ({ entries }) => from(entries, read.offset).length > 0, read);
        return await run(() => this.#read(id, read));
      },
      takeOver: (id, holder) =>
        run(() => this.#lose(this.#takeOver(id, { gateway, holder }), gateway)),
      stop: (id) => run(() => this.#stop(id)),
      delete: (id) =>
        run(() => {
          this.#all.delete(id);
          this.deleted.add(id);
        }),
      list: () => Promise.resolve([]),
      close: () => Promise.resolve(),
    };
  }

  /** Drops an answer if the fault says so. The lease of a lost answer is never renewed. */
  #lose<Answer extends Claimed | HeldRecording | undefined>(
    answer: Answer,
    gateway: number,
  ): Answer {
    if (this.#faults[gateway] !== "answers get lost") return answer;
    const held = answer !== undefined && "held" in answer ? answer.held : answer;
    const recorded = held !== undefined && "append" in held ? this.#all.get(held.id) : undefined;
    if (recorded !== undefined) recorded.leaseUntil = this.#clock.monotonic() + RECORDING_LEASE_MS;
    throw new Error("The answer got lost");
  }

  #claim(
    { id, name, facts }: RecordingClaim,
    owner: Pick<Recorded, "gateway" | "holder">,
  ): Claimed {
    const named = name && this.#all.get(this.#names.get(name.text) ?? "");
    const isLost = named !== undefined && !this.#isHeld(named);
    if (named !== undefined && !isLost) return { found: this.#describe(named) ?? assert.fail() };
    const recorded: Recorded = {
      ...{ id, facts, ...owner, name: name?.text, epoch: FIRST_EPOCH, leaseUntil: Infinity },
      ...{ entries: [], state: "running", expiresAt: undefined, waiting: new Set() },
    };
    this.#all.set(id, recorded);
    if (name !== undefined) this.#names.set(name.text, id);
    return { held: this.#hold(recorded), isRestarted: isLost };
  }

  #read(id: string, { offset }: RecordingRead): RecordingPart | undefined {
    const found = this.#all.get(id);
    if (found === undefined || found.state === "expired") return undefined;
    return { entries: from(found.entries, offset), isHeld: this.#isHeld(found) };
  }

  #takeOver(id: string, owner: Pick<Recorded, "gateway" | "holder">): HeldRecording | undefined {
    const found = this.#all.get(id);
    if (found === undefined || this.#isHeld(found)) return undefined;
    const before = found.holder;
    Object.assign(found, owner, { epoch: found.epoch + 1, leaseUntil: Infinity });
    setTimeout(() => before.onLost(), 0);
    return this.#hold(found);
  }

  #stop(id: string): boolean {
    const found = this.#all.get(id);
    if (found?.state !== "running") return false;
    if (this.#faults[found.gateway] !== "dead") found.holder.onStop();
    return true;
  }

  #hold(found: Recorded): HeldRecording {
    const { id, epoch, gateway } = found;
    const isMine = () => found.epoch === epoch && found.state === "running";
    const append = async (entry: SealedEntry, then = () => {}) => {
      this.#look(id, entry);
      await Promise.resolve();
      const fault = this.#faults[gateway];
      if (this.failAppends || fault === "dead" || fault === "fails") {
        throw new Error("The store fails");
      }
      if (fault === "full") throw new RecordingsFull();
      const last = found.entries.at(-1);
      const isThere = found.epoch === epoch && last?.kind === entry.kind &&
        last.offset === entry.offset;
      if (!isThere && !isMine()) throw new RecordingLost();
      if (!isThere) {
        assert.equal(entry.offset, lengthOf(found.entries), "entries follow each other");
        found.entries.push(entry);
      }
      then();
      this.#wake(found);
      if (fault === "answers get lost") throw new Error("The answer got lost");
    };
    return {
      id,
      epoch,
      append,
      end: (entry, state) => append(entry, () => this.#end(found, state)),
      discard: async () => {
        await Promise.resolve();
        if (this.#faults[gateway] !== "dead" && isMine()) this.#expire(found);
      },
      setRead: () => {},
    };
  }

  /**
   * Checks an entry: each position of an epoch has only one content, even if the store could not
   * store it.
   */
  #look(id: string, { kind, offset, epoch, sealed }: SealedEntry): void {
    const place = `${id} ${epoch} ${kind} ${offset}`;
    const content = Buffer.from(sealed).toString("latin1");
    assert.equal(this.#sealed.get(place) ?? content, content, "a nonce was used for two contents");
    this.#sealed.set(place, content);
  }

  #end(found: Recorded, state: "complete" | "broken"): void {
    if (found.state !== "running") return;
    found.state = state;
    found.expiresAt = this.#clock.now() + found.facts.keepMs;
    if (state === "broken") this.#forget(found);
  }

  #expire(found: Recorded): void {
    found.state = "expired";
    found.entries = [];
    this.#forget(found);
    this.#wake(found);
  }

  #forget({ id, name }: Recorded): void {
    if (name !== undefined && this.#names.get(name) === id) this.#names.delete(name);
  }

  #isHeld({ state, leaseUntil }: Recorded): boolean {
    return state !== "running" || this.#clock.monotonic() < leaseUntil;
  }

  #wake({ waiting }: Recorded): void {
    for (const wake of Array.from(waiting)) wake();
  }

  #change({ waiting }: Recorded, { waitMs, signal }: Omit<RecordingRead, "offset">): Promise<void> {
    if (signal?.aborted || waitMs <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        waiting.delete(wake);
        cancelTimer();
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      const cancelTimer = this.#clock.timer(waitMs, wake);
      signal?.addEventListener("abort", wake);
      waiting.add(wake);
    });
  }

  #describe(found: Recorded | undefined): StoredRecording | undefined {
    if (found === undefined) return undefined;
    const { id, facts, state, entries, expiresAt } = found;
    return {
      id,
      facts,
      state,
      isHeld: this.#isHeld(found),
      length: lengthOf(entries),
      expiresAt,
      head: entries[0],
    };
  }
}

const endOf = ({ kind, offset, sealed }: SealedEntry): number =>
  kind === ENTRY_KIND.bytes ? offset + sealed.byteLength - TAG_BYTES : offset;

function lengthOf(entries: readonly SealedEntry[]): number {
  const last = entries.at(-1);
  return last === undefined ? 0 : endOf(last);
}

/** Returns the next two entries from an offset on: few, so that readers call again. */
function from(entries: readonly SealedEntry[], offset: number): SealedEntry[] {
  const isWanted = (entry: SealedEntry) =>
    entry.kind === ENTRY_KIND.end || (entry.kind === ENTRY_KIND.bytes && endOf(entry) > offset);
  return entries.filter(isWanted).slice(0, 2);
}
