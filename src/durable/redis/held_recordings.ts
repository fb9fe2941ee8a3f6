/**
 * Recordings in Redis that this gateway writes: their entries, and the renewal of their leases.
 *
 * Redis replicates asynchronously, so a failover can lose the latest writes: until all gateways
 * have left it, a former primary accepts entries that the new primary never receives. After each
 * change of the server, the holder first restores the data that the new server lacks.
 *
 * @module
 */
import type { Buffer } from "node:buffer";
import type { Redis } from "ioredis";
import type { Clock } from "../../exchange/clock.ts";
import { type RedisClient, RedisFailed } from "../../storage/redis_client.ts";
import { sizeOf } from "../memory_recording.ts";
import { RecentEntries, RecentLog } from "./recent_entries.ts";
import { type RecordingReport, RedisRecordingBudget } from "./budget.ts";
import {
  readWritten,
  toBuffer,
  toDeletedKey,
  toEntryId,
  toFactArguments,
  toLogKey,
  toNameKey,
  toRecordingKey,
} from "./replies.ts";
import { APPEND, END, RENEW, RESTORE } from "./scripts.ts";
import {
  type HeldRecording,
  lengthAfter,
  type RecordingClaim,
  type RecordingFacts,
  type RecordingHolder,
  RecordingLost,
  RecordingsFull,
  type SealedEntry,
} from "../recording_store.ts";
import { PATIENT_MS, RemovedRecordings } from "./removed_recordings.ts";

/**
 * Number of leases that are renewed at once. Bounded, because many scripts in a row would block
 * Redis for all clients.
 */
const BATCH = 100;
/** Number of recordings that are restored at once. Each can have several hundred kilobytes. */
const RESTORED_AT_ONCE = 20;
/** Number of renewals within the time of one lease. */
const RENEWALS = 4;

export interface RecordingTimes {
  /** Milliseconds. */
  readonly leaseMs: number;
  /** Time for which the id of an expired recording stays known. Milliseconds. */
  readonly tombstoneMs: number;
}

export interface HeldRecordingsOptions {
  readonly client: RedisClient;
  readonly clock: Clock;
  readonly times: RecordingTimes;
  readonly gateway: string;
  /** Returns the maximum size of all recordings together, of all gateways. Bytes. */
  readonly maxBytes: () => number;
}

/** A recording that this gateway has begun or taken over. */
interface WrittenRecording {
  readonly id: string;
  readonly epoch: number;
  readonly facts: RecordingReport["facts"] & Pick<RecordingFacts, "keepMs">;
  readonly holder: RecordingHolder;
  /** Generation of the server that has it. */
  readonly generation: number;
  /** The claim; `undefined` if it was taken over, and is not restored. */
  readonly claim?: RecordingClaim | undefined;
}

type Script = ReturnType<RedisClient["script"]>;

/** The recordings that this gateway writes. */
export class HeldRecordings {
  readonly #options: HeldRecordingsOptions;
  readonly #scripts: Readonly<Record<"append" | "end" | "renew" | "restore", Script>>;
  readonly #held = new Map<string, RedisHeldRecording>();
  /** Recordings that have ended recently. */
  readonly #ended = new Set<RedisHeldRecording>();
  readonly #removed: RemovedRecordings;
  readonly #recent: RecentEntries;
  /** The budget of all recordings. */
  readonly budget: RedisRecordingBudget;
  #cancelRenewal: (() => void) | undefined;
  #isClosed = false;

  constructor(options: HeldRecordingsOptions) {
    const { client, clock, times, maxBytes } = this.#options = options;
    this.#removed = new RemovedRecordings({ client, clock, tombstoneMs: times.tombstoneMs });
    this.#recent = new RecentEntries(clock);
    const onFull = (id: string) => this.#held.get(id)?.refuse();
    this.budget = new RedisRecordingBudget({ client, clock, times, maxBytes, onFull });
    this.#scripts = {
      append: client.script("sallyportRecordingAppend", APPEND),
      end: client.script("sallyportRecordingEnd", END),
      renew: client.script("sallyportRecordingRenew", RENEW),
      restore: client.script("sallyportRecordingRestore", RESTORE),
    };
  }

  get times(): RecordingTimes {
    return this.#options.times;
  }

  get gateway(): string {
    return this.#options.gateway;
  }

  get generation(): number {
    return this.#options.client.generation;
  }

  add(begun: WrittenRecording): HeldRecording {
    const held = new RedisHeldRecording(this, begun);
    this.#held.get(begun.id)?.lose();
    this.#held.set(begun.id, held);
    held.report();
    this.budget.flushSoon();
    this.#renewLater();
    return held;
  }

  /** Forgets a recording that is not written here any more. */
  forget(held: RedisHeldRecording): void {
    if (this.#held.get(held.id) === held) this.#held.delete(held.id);
    this.#ended.delete(held);
  }

  /** Notes that a recording has ended, because a failover can still lose its end. */
  ended(held: RedisHeldRecording): void {
    this.forget(held);
    this.#ended.add(held);
  }

  /** Keeps an entry that Redis has, for some time. */
  keep(entry: SealedEntry, log: RecentLog): void {
    this.#recent.add(entry, log);
  }

  /** Restores the data that a new primary lacks. */
  async restoreAll(): Promise<void> {
    await this.#restoreHeld();
    // Not awaited, because there can be thousands, and leases must be renewed in the meantime.
    void this.#removed.repeat();
  }

  async #restoreHeld(): Promise<void> {
    const all = [...this.#held.values(), ...this.#ended].filter((held) =>
      held.generation !== this.generation
    );
    for (let start = 0; start < all.length; start += RESTORED_AT_ONCE) {
      // Failures are retried by the next write or renewal.
      await Promise.allSettled(
        all.slice(start, start + RESTORED_AT_ONCE).map((held) => held.restore()),
      );
    }
  }

  /** Restores the missing data of one recording, if this gateway writes it. Never rejects. */
  async restore(id: string): Promise<void> {
    const held = this.#held.get(id);
    if (held !== undefined && held.generation !== this.generation) {
      await held.restore().catch(() => {});
    }
  }

  /**
   * Passes a request of another gateway to a holder. @param epoch With `lost`, the epoch of the
   * next holder
   */
  tell(word: string, id: string, epoch: number): void {
    const held = this.#held.get(id);
    if (held === undefined) return;
    if (word === "stop") held.stop();
    else if (word === "read") held.begun.holder.onRead();
    else if (word === "lost" && held.epoch < epoch) held.lose();
  }

  /**
   * Discards a recording that is written here, or that a failed claim can have begun. Retried for
   * the duration of a lease.
   */
  async discard(id: string, epoch: number): Promise<void> {
    await this.#removed.discard(id, epoch);
    this.#renewLater();
  }

  /** Deletes a recording, even if another gateway writes it. */
  async delete(id: string): Promise<void> {
    await this.#removed.delete(id);
    this.budget.add({ id, change: "deleted" });
    this.#renewLater();
  }

  /**
   * Runs a script of one recording. @param args Arguments after the id @param more Keys after the
   * common ones
   */
  async run(
    script: "append" | "end" | "renew" | "restore",
    id: string,
    args: (string | number | Buffer)[],
    more: readonly string[] = [],
  ): Promise<unknown> {
    const keys = [toRecordingKey(id), toLogKey(id), ...more];
    const run = (redis: Redis) => this.#scripts[script](redis, keys, [id, ...args]);
    return await this.#options.client.run(run, (reply) => reply, PATIENT_MS);
  }

  /** Ends the renewals. Never rejects. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRenewal?.();
    await this.budget.close();
  }

  #renewLater(): void {
    if (this.#cancelRenewal !== undefined || this.#isClosed) return;
    if (this.#held.size + this.#ended.size + this.#removed.size === 0) return;
    const { clock, times } = this.#options;
    this.#cancelRenewal = clock.timer(times.leaseMs / RENEWALS, () => {
      void this.#renewAll().finally(() => {
        this.#cancelRenewal = undefined;
        this.#renewLater();
      });
    }, { isBackground: true });
  }

  async #renewAll(): Promise<void> {
    this.#recent.trim();
    for (const held of this.#ended) if (held.log.entries.length === 0) this.#ended.delete(held);
    await this.#restoreHeld();
    const all = Array.from(this.#held.values());
    for (let start = 0; start < all.length; start += BATCH) {
      const batch = all.slice(start, start + BATCH);
      for (const held of batch) held.report();
      await Promise.all([this.budget.flush(), ...batch.map((held) => held.renew())]);
    }
    void this.#removed.repeat();
  }
}

/** A recording in Redis that this gateway writes. */
class RedisHeldRecording implements HeldRecording {
  readonly begun: WrittenRecording;
  readonly #all: HeldRecordings;
  /** Entries that a failover can lose. */
  readonly log: RecentLog = new RecentLog();
  /** Generation of the server that has all of it. */
  #generation: number;
  #restoring: Promise<void> | undefined;
  #state: "r" | "c" | "b" = "r";
  /** Counted size; `undefined` if another gateway began it. Bytes. */
  #bytes: number | undefined;
  #isFull = false;
  #isRead = true;
  #isStopped = false;
  #isEnding = false;
  #isOver = false;

  constructor(all: HeldRecordings, begun: WrittenRecording) {
    this.#all = all;
    this.begun = begun;
    this.#generation = begun.generation;
    this.#bytes = begun.claim && sizeOf();
  }

  get generation(): number {
    return this.#generation;
  }

  get id(): string {
    return this.begun.id;
  }

  get epoch(): number {
    return this.begun.epoch;
  }

  async append(entry: SealedEntry): Promise<void> {
    const { leaseMs } = this.#all.times;
    const life = leaseMs + this.begun.facts.keepMs;
    this.#assertRoom();
    await this.#write("append", [
      ...this.#toArguments(entry),
      entry.kind,
      lengthAfter(entry),
      life,
    ]);
    this.#keep(entry);
    this.report(sizeOf(entry));
  }

  async end(entry: SealedEntry, state: "complete" | "broken"): Promise<void> {
    this.#assertRoom();
    this.#isEnding = true;
    const word = state === "complete" ? "c" : "b";
    await this.#write("end", [...this.#toArguments(entry), word, this.#all.times.tombstoneMs]);
    this.#keep(entry);
    this.#state = word;
    this.#isOver = true;
    this.report(sizeOf(entry));
    this.#all.ended(this);
  }

  async discard(): Promise<void> {
    // A recording that another gateway has taken over belongs to that gateway.
    if (!this.#isOver) this.#all.budget.add({ id: this.id, change: "discarded" });
    this.#leave();
    await this.#all.discard(this.id, this.epoch);
  }

  setRead(isRead: boolean): void {
    if (isRead === this.#isRead) return;
    this.#isRead = isRead;
    void this.renew();
  }

  /** Reports its size to the budget. @param grownBy Bytes added */
  report(grownBy = 0): void {
    if (this.#bytes !== undefined) this.#bytes += grownBy;
    const change = this.#state === "r" ? "running" : "ended";
    const { id, facts } = this.begun;
    this.#all.budget.add({ id, change, bytes: this.#bytes, facts }, grownBy);
  }

  /** Accepts no more entries, because the budget has no room. */
  refuse(): void {
    this.#isFull = true;
  }

  /**
   * Renews the lease. Failures are ignored: the next renewal tries again, and the next write fails
   * too.
   */
  async renew(): Promise<void> {
    if (this.#isOver) return;
    const { leaseMs, tombstoneMs } = this.#all.times;
    const life = leaseMs + this.begun.facts.keepMs;
    await this.#write("renew", [
      this.epoch,
      leaseMs,
      life + tombstoneMs,
      life,
      this.#isRead ? 1 : 0,
    ]).catch(() => {});
  }

  /**
   * Restores the data that a new primary lacks.
   *
   * @throws {RecordingLost} If another gateway has taken over, or entries are missing that were
   * dropped here
   */
  async restore(): Promise<void> {
    this.#restoring ??= this.#restore().finally(() => this.#restoring = undefined);
    await this.#restoring;
  }

  /** Notifies the holder, once, that a stop was requested. */
  stop(): void {
    if (this.#isStopped || this.#isOver) return;
    this.#isStopped = true;
    this.begun.holder.onStop();
  }

  /** Notifies the holder, once, that it has lost the recording. */
  lose(): void {
    if (this.#isOver) return;
    this.#leave();
    this.begun.holder.onLost();
  }

  #assertRoom(): void {
    if (this.#isFull) throw new RecordingsFull("The recordings in Redis have no room");
  }

  #leave(): void {
    this.#isOver = true;
    this.#all.forget(this);
  }

  #keep(entry: SealedEntry): void {
    if (this.begun.claim !== undefined) this.#all.keep(entry, this.log);
  }

  async #restore(): Promise<void> {
    const { generation, gateway, times: { leaseMs, tombstoneMs } } = this.#all;
    const { claim, facts: { keepMs } } = this.begun;
    if (claim !== undefined) {
      const { id, name, facts } = claim;
      const life = leaseMs + keepMs;
      const args = [
        this.epoch,
        gateway,
        leaseMs,
        life + tombstoneMs,
        life,
        this.log.isWhole ? 1 : 0,
        this.#state,
        tombstoneMs,
        this.#isRead ? 1 : 0,
        ...toFactArguments(facts),
        name?.kind ?? "-",
        name?.text ?? "",
        ...this.log.entries.flatMap(toRestoredEntry),
      ];
      const keys = [toDeletedKey(id), ...(name === undefined ? [] : [toNameKey(id, name.text)])];
      try {
        if (readWritten(await this.#all.run("restore", id, args, keys))) this.stop();
      } catch (error) {
        if (!(error instanceof RecordingLost)) throw error;
        this.#all.forget(this);
        this.lose();
        throw error;
      }
      this.report();
    }
    this.#generation = generation;
  }

  async #write(
    script: "append" | "end" | "renew",
    args: (string | number | Buffer)[],
  ): Promise<void> {
    try {
      if (this.#generation !== this.#all.generation) await this.restore();
      if (readWritten(await this.#all.run(script, this.id, args))) this.stop();
    } catch (error) {
      // A renewal can reach Redis after the end. It then finds a recording that does not run, but
      // nothing is lost.
      const isLate = script === "renew" && this.#isEnding;
      if (error instanceof RecordingLost && !isLate) this.lose();
      throw toFailure(error);
    }
  }

  #toArguments(entry: SealedEntry): (string | number | Buffer)[] {
    return [this.epoch, toEntryId(entry), entry.offset, toBuffer(entry.sealed)];
  }
}

function toRestoredEntry(entry: SealedEntry): (string | number | Buffer)[] {
  return [toEntryId(entry), entry.offset, lengthAfter(entry), toBuffer(entry.sealed)];
}

/** Returns the error for a full store if Redis is out of memory, else the same error. */
export function toFailure(error: unknown): unknown {
  const isFull = error instanceof RedisFailed && error.cause instanceof Error &&
    /\bOOM\b/.test(error.cause.message);
  return isFull ? new RecordingsFull("Redis has no room", { cause: error }) : error;
}
