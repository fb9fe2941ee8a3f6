/**
 * Recordings in Redis that this gateway writes: their entries, and the renewal of their leases.
 *
 * @module
 */
import type { Buffer } from "node:buffer";
import type { Redis } from "ioredis";
import type { Clock } from "../exchange/clock.ts";
import { type RedisClient, RedisFailed } from "../storage/redis_client.ts";
import { readWritten, toBuffer, toEntryId, toLength, toLogKey, toRecordingKey } from "./recording_replies_redis.ts";
import { APPEND, DISCARD, END, INDEX, NOTE, RENEW } from "./recording_scripts_redis.ts";
import {
  type HeldRecording,
  type RecordingFacts,
  type RecordingHolder,
  RecordingLost,
  RecordingsFull,
  type SealedEntry,
} from "./recording_store.ts";

/** Deadline of calls for which no caller waits, or which carry many bytes. Milliseconds. */
export const PATIENT_MS = 1000;
/** Leases that are renewed at once: a long row of scripts would hold up Redis for everybody. */
const BATCH = 100;
/** Renewals within the time of one lease. */
const RENEWALS = 4;
/** Bound of the set of all recordings. */
const MAX_NOTED = 10_000;

/** Times of recordings. */
export interface RecordingTimes {
  /** Milliseconds. */
  readonly leaseMs: number;
  /** Time for which the id of an expired recording is known. Milliseconds. */
  readonly tombstoneMs: number;
}

/** Parts of {@link HeldRecordings}. */
export interface HeldRecordingsOptions {
  readonly client: RedisClient;
  readonly clock: Clock;
  readonly times: RecordingTimes;
}

/** A recording that this gateway has begun or taken over. */
interface Begun {
  readonly id: string;
  readonly epoch: number;
  readonly facts: Pick<RecordingFacts, "startedAt" | "keepMs">;
  readonly holder: RecordingHolder;
}

type Script = ReturnType<RedisClient["script"]>;

/** The recordings that this gateway writes. */
export class HeldRecordings {
  readonly #options: HeldRecordingsOptions;
  readonly #scripts: Readonly<Record<"append" | "end" | "discard" | "renew" | "note", Script>>;
  readonly #held = new Map<string, RedisHeldRecording>();
  /** Those that could not be discarded yet, with the number of attempts that are left. */
  readonly #discarded = new Map<string, { readonly epoch: number; triesLeft: number }>();
  #cancelRenewal: (() => void) | undefined;
  #isClosed = false;

  constructor(options: HeldRecordingsOptions) {
    const { client } = this.#options = options;
    this.#scripts = {
      append: client.script("sallyportRecordingAppend", APPEND),
      end: client.script("sallyportRecordingEnd", END),
      discard: client.script("sallyportRecordingDiscard", DISCARD),
      renew: client.script("sallyportRecordingRenew", RENEW),
      note: client.script("sallyportRecordingNote", NOTE),
    };
  }

  /** Times of recordings. */
  get times(): RecordingTimes {
    return this.#options.times;
  }

  /** Adds one that was begun or taken over. */
  add(begun: Begun): HeldRecording {
    const held = new RedisHeldRecording(this, begun);
    this.#held.get(begun.id)?.lose();
    this.#held.set(begun.id, held);
    this.#note([held]);
    this.#renewLater();
    return held;
  }

  /** Removes one that is not written here any more. */
  delete(held: RedisHeldRecording): void {
    if (this.#held.get(held.id) === held) this.#held.delete(held.id);
  }

  /** Tells a holder what others want of it. @param epoch With `lost`, that of the next holder */
  tell(word: string, id: string, epoch: number): void {
    const held = this.#held.get(id);
    if (held === undefined) return;
    if (word === "stop") held.stop();
    else if (word === "read") held.begun.holder.onRead();
    else if (word === "lost" && held.epoch < epoch) held.lose();
  }

  /** Discards one that is written here, or that a failed claim may have begun. It is tried for as long as a lease. */
  async discard(id: string, epoch: number): Promise<void> {
    this.#discarded.set(id, { epoch, triesLeft: RENEWALS });
    await this.#tryDiscard(id);
    this.#renewLater();
  }

  /** Runs a script of one recording. @param args What follows the id */
  async run(
    script: "append" | "end" | "discard" | "renew",
    id: string,
    args: (string | number | Buffer)[],
  ): Promise<unknown> {
    const run = (redis: Redis) => this.#scripts[script](redis, [toRecordingKey(id), toLogKey(id)], [id, ...args]);
    return await this.#options.client.run(run, (answer) => answer, PATIENT_MS);
  }

  /** Ends the renewals. */
  close(): void {
    this.#isClosed = true;
    this.#cancelRenewal?.();
  }

  #renewLater(): void {
    if (this.#cancelRenewal !== undefined || this.#isClosed || this.#held.size + this.#discarded.size === 0) return;
    const { clock, times } = this.#options;
    this.#cancelRenewal = clock.timer(times.leaseMs / RENEWALS, () => {
      void this.#renewAll().finally(() => {
        this.#cancelRenewal = undefined;
        this.#renewLater();
      });
    }, { isBackground: true });
  }

  async #tryDiscard(id: string): Promise<void> {
    const one = this.#discarded.get(id);
    if (one === undefined) return;
    try {
      if (one.triesLeft-- > 0) await this.run("discard", id, [one.epoch, this.times.tombstoneMs]);
      this.#discarded.delete(id);
    } catch {
      // The next turn tries again.
    }
  }

  async #renewAll(): Promise<void> {
    for (const id of this.#discarded.keys()) await this.#tryDiscard(id);
    const all = Array.from(this.#held.values());
    for (let start = 0; start < all.length; start += BATCH) {
      const batch = all.slice(start, start + BATCH);
      this.#note(batch);
      await Promise.all(batch.map((held) => held.renew()));
    }
  }

  /** Notes recordings in the set of all, for lists. It can have its place on another server: so nobody waits for it. */
  #note(all: readonly RedisHeldRecording[]): void {
    const { client, times: { leaseMs } } = this.#options;
    const lifeMs = leaseMs + Math.max(...all.map(({ begun }) => begun.facts.keepMs));
    const members = all.flatMap(({ id, begun }) => [begun.facts.startedAt, id]);
    const note = (redis: Redis) => this.#scripts.note(redis, [INDEX], [lifeMs, MAX_NOTED, ...members]);
    client.run(note, () => {}, PATIENT_MS).catch(() => {});
  }
}

/** A recording in Redis that this gateway writes. */
class RedisHeldRecording implements HeldRecording {
  readonly begun: Begun;
  readonly #all: HeldRecordings;
  #isRead = true;
  #isStopped = false;
  #isEnding = false;
  #isOver = false;

  constructor(all: HeldRecordings, begun: Begun) {
    this.#all = all;
    this.begun = begun;
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
    await this.#write("append", [...this.#toArguments(entry), entry.kind, toLength(entry), life]);
  }

  async end(entry: SealedEntry, state: "complete" | "broken"): Promise<void> {
    this.#isEnding = true;
    await this.#write("end", [
      ...this.#toArguments(entry),
      state === "complete" ? "c" : "b",
      this.#all.times.tombstoneMs,
    ]);
    this.#leave();
  }

  async discard(): Promise<void> {
    this.#leave();
    await this.#all.discard(this.id, this.epoch);
  }

  setRead(isRead: boolean): void {
    if (isRead === this.#isRead) return;
    this.#isRead = isRead;
    void this.renew();
  }

  /** Renews the lease. A failure is for the next renewal, or for the next write, which fails too. */
  async renew(): Promise<void> {
    if (this.#isOver) return;
    const { leaseMs, tombstoneMs } = this.#all.times;
    const life = leaseMs + this.begun.facts.keepMs;
    await this.#write("renew", [this.epoch, leaseMs, life + tombstoneMs, life, this.#isRead ? 1 : 0]).catch(() => {});
  }

  /** Tells the holder, once, that somebody stops it. */
  stop(): void {
    if (this.#isStopped || this.#isOver) return;
    this.#isStopped = true;
    this.begun.holder.onStop();
  }

  /** Tells the holder, once, that it does not hold it any more. */
  lose(): void {
    if (this.#isOver) return;
    this.#leave();
    this.begun.holder.onLost();
  }

  #leave(): void {
    this.#isOver = true;
    this.#all.delete(this);
  }

  async #write(script: "append" | "end" | "renew", args: (string | number | Buffer)[]): Promise<void> {
    try {
      if (readWritten(await this.#all.run(script, this.id, args))) this.stop();
    } catch (error) {
      // A renewal can come to Redis after the end: it finds a recording that does not run, and nothing is lost.
      const isLate = script === "renew" && this.#isEnding;
      if (error instanceof RecordingLost && !isLate) this.lose();
      throw toFailure(error);
    }
  }

  #toArguments(entry: SealedEntry): (string | number | Buffer)[] {
    return [this.epoch, toEntryId(entry), entry.offset, toBuffer(entry.sealed)];
  }
}

/** Returns the error of a store that has no room, where Redis fails for that. */
export function toFailure(error: unknown): unknown {
  const isFull = error instanceof RedisFailed && error.cause instanceof Error && /\bOOM\b/.test(error.cause.message);
  return isFull ? new RecordingsFull("Redis has no room", { cause: error }) : error;
}
