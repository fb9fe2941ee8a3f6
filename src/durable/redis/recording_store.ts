/**
 * Recordings in Redis, for many gateways. A write is one script, fenced by the epoch of its holder.
 * Gateways send each other messages about recordings: the next entry wakes a waiting reader, and a
 * holder can be stopped.
 *
 * Messages can be lost. Waiting readers ask again once a second, and a holder receives all requests
 * at its next write or renewal.
 *
 * Readers do not block in Redis (`XREAD BLOCK`): on a Cluster one connection cannot wait for
 * streams of several slots, and a connection that waits for a thousand streams would have to name
 * all of them again after each entry. A message is sent only to waiting gateways, and each gateway
 * receives all messages over one connection.
 *
 * @module
 */
import type { Redis } from "ioredis";
import type { Clock } from "../../exchange/clock.ts";
import { type RedisClient, RedisFailed } from "../../storage/redis_client.ts";
import { HeldRecordings, type RecordingTimes, toFailure } from "./held_recordings.ts";
import { PATIENT_MS } from "./removed_recordings.ts";
import {
  type FoundPart,
  type FoundRecording,
  readFound,
  readNew,
  readPart,
  readTakenOver,
  toFactArguments,
  toLogKey,
  toNameKey,
  toRecordingKey,
} from "./replies.ts";
import { CHANNEL, CLAIM, FIND, INDEX, READ, STOP, TAKE_OVER } from "./scripts.ts";
import {
  type Claimed,
  type HeldRecording,
  RECORDING_LEASE_MS,
  type RecordingClaim,
  type RecordingHolder,
  type RecordingPart,
  type RecordingRead,
  RecordingsFull,
  type RecordingStore,
  type StoredRecording,
  TOMBSTONE_MS,
  toRecordingId,
} from "../recording_store.ts";
import { Waits } from "./waits.ts";

/** The longest time for which bytes are collected for an entry. Milliseconds. */
const GATHER_MS = 20;
/** Time after which a waiting reader asks again, because its message can be lost. Milliseconds. */
const ASK_AGAIN_MS = 1000;
/**
 * Time after a change of the server in which missing recordings can still appear there: other
 * gateways notice the change a little later, and then restore their recordings. Milliseconds.
 */
const SETTLE_MS = 1000;
/** Number of recordings that are looked up at once for a list. */
const PAGE = 200;

export interface RedisRecordingsOptions extends Partial<RecordingTimes> {
  readonly client: RedisClient;
  readonly clock: Clock;
  /** Returns the maximum size of all recordings together, of all gateways. Bytes. */
  readonly maxBytes: () => number;
}

type Script = ReturnType<RedisClient["script"]>;

export class RedisRecordings implements RecordingStore {
  readonly gatherMs: number = GATHER_MS;
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #gateway = crypto.randomUUID().slice(0, 8);
  readonly #scripts: Readonly<Record<"claim" | "find" | "read" | "stop" | "takeOver", Script>>;
  readonly #held: HeldRecordings;
  readonly #waits = new Waits();
  #generation: number;
  /** Time of the last change of the server. */
  #changedAt = -Infinity;
  #isClosed = false;

  constructor(options: RedisRecordingsOptions) {
    const { client, clock, maxBytes, leaseMs = RECORDING_LEASE_MS, tombstoneMs = TOMBSTONE_MS } =
      options;
    this.#client = client;
    this.#clock = clock;
    this.#held = new HeldRecordings({
      client,
      clock,
      maxBytes,
      times: { leaseMs, tombstoneMs },
      gateway: this.#gateway,
    });
    this.#generation = client.generation;
    client.onUp(() => this.#serverIsUp());
    this.#scripts = {
      claim: client.script("sallyportRecordingClaim", CLAIM, { isBinary: true }),
      find: client.script("sallyportRecordingFind", FIND, { isBinary: true }),
      read: client.script("sallyportRecordingRead", READ, { isBinary: true }),
      stop: client.script("sallyportRecordingStop", STOP),
      takeOver: client.script("sallyportRecordingTakeOver", TAKE_OVER),
    };
    client.listen(CHANNEL + this.#gateway, (message) => this.#hear(message));
  }

  async isNamed(name: string): Promise<boolean> {
    const key = toNameKey(toRecordingId(name), name);
    return await this.#client.run((redis) => redis.exists(key), (count) => count === 1);
  }

  async claim(claim: RecordingClaim, holder: RecordingHolder): Promise<Claimed> {
    const { id, name, facts } = claim;
    const { leaseMs, tombstoneMs } = this.#held.times;
    const life = leaseMs + facts.keepMs;
    const keys = [toRecordingKey(id), ...(name === undefined ? [] : [toNameKey(id, name.text)])];
    const args = [
      id,
      this.#gateway,
      name?.kind ?? "-",
      name?.isRetry === true ? 1 : 0,
      leaseMs,
      life + tombstoneMs,
      life,
      ...toFactArguments(facts),
      name?.text ?? "",
    ];
    if (name?.kind === "key" || name?.isRetry === true) await this.#settled();
    const hasRoom = await this.#held.budget.hasRoom(claim);
    const { generation } = this.#client;
    try {
      // Without room, the claim can still find an earlier recording.
      const send = (redis: Redis) => this.#scripts.claim(redis, keys, [...args, hasRoom ? 1 : 0]);
      const claimed = await this.#client.run(send, readClaimed);
      if (claimed === "full") throw new RecordingsFull("The recordings in Redis have no room");
      if (claimed === undefined) throw new RedisFailed("no answer to a claim");
      if ("isRestarted" in claimed) {
        return {
          ...claimed,
          held: this.#held.add({ id, epoch: 1, facts, holder, generation, claim }),
        };
      }
      this.#held.budget.add({ id, change: "deleted" });
      return { found: claimed.stored };
    } catch (error) {
      this.#held.budget.add({ id, change: "deleted" });
      const late = error instanceof RedisFailed ? error.late : undefined;
      // Redis can have begun it nevertheless, but no gateway writes it.
      late?.catch(() => {}).then(() => this.#held.discard(id, 1));
      throw toFailure(error);
    }
  }

  async find(id: string): Promise<StoredRecording | undefined> {
    return (await this.#unlessChanged(() => this.#find(id, false)))?.stored;
  }

  async waitForHead(
    id: string,
    waitMs: number,
    signal?: AbortSignal,
  ): Promise<StoredRecording | undefined> {
    const found = await this.#waitFor(id, { waitMs, signal }, async (isWaiting) => {
      const reply = await this.#find(id, isWaiting);
      const isDue = reply !== undefined && isHeadDue(reply.stored);
      return { reply, restMs: isDue ? reply.leaseMs : undefined };
    });
    return found?.stored;
  }

  async read(
    id: string,
    { offset, waitMs, signal }: RecordingRead,
  ): Promise<RecordingPart | undefined> {
    const found = await this.#waitFor(id, { waitMs, signal }, async (isWaiting) => {
      const reply = await this.#read(id, offset, isWaiting);
      const isThere = reply === undefined || reply.part.entries.length > 0 || !reply.isRunning ||
        !reply.part.isHeld;
      return { reply, restMs: isThere ? undefined : reply.leaseMs };
    });
    return found?.part;
  }

  async takeOver(id: string, holder: RecordingHolder): Promise<HeldRecording | undefined> {
    await this.#settled();
    const { generation } = this.#client;
    const args = [id, this.#gateway, this.#held.times.leaseMs];
    const takeOver = (redis: Redis) => this.#scripts.takeOver(redis, [toRecordingKey(id)], args);
    const taken = await this.#client.run(takeOver, readTakenOver, PATIENT_MS);
    return taken && this.#held.add({ id, epoch: taken.epoch, facts: taken, holder, generation });
  }

  async stop(id: string): Promise<boolean> {
    const stop = (redis: Redis) => this.#scripts.stop(redis, [toRecordingKey(id)], [id]);
    return await this.#client.run(stop, Number, PATIENT_MS) === 1;
  }

  async delete(id: string): Promise<void> {
    await this.#held.delete(id);
  }

  async list(limit: number): Promise<readonly StoredRecording[]> {
    const listed: StoredRecording[] = [];
    const gone: string[] = [];
    for (let start = 0; listed.length < limit; start += PAGE) {
      const ids = await this.#client.ask(
        (redis) => redis.zrevrange(INDEX, start, start + PAGE - 1),
        readIds,
      );
      const all = await Promise.all(ids.map(async (id) => ({ id, stored: await this.find(id) })));
      for (const { id, stored } of all) {
        if (stored !== undefined && stored.state !== "expired") listed.push(stored);
        else gone.push(id);
      }
      if (ids.length < PAGE) break;
    }
    if (gone.length > 0) await this.#client.ask((redis) => redis.zrem(INDEX, ...gone), () => {});
    return listed.slice(0, limit);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#waits.wakeAll();
    await this.#held.close();
  }

  /**
   * Asks until the awaited state is reached, or the time is over. A failure does not end the wait,
   * because Redis can be back in time.
   *
   * @param ask Asks once. Its `restMs` is `undefined` if the awaited state is reached, else the
   * remaining time of the lease
   */
  async #waitFor<Reply>(
    id: string,
    { waitMs, signal }: Pick<RecordingRead, "waitMs" | "signal">,
    ask: (isWaiting: boolean) => Promise<{ reply: Reply; restMs: number | undefined }>,
  ): Promise<Reply> {
    const until = this.#clock.monotonic() + waitMs;
    for (;;) {
      const leftMs = until - this.#clock.monotonic();
      const isWaiting = leftMs > 0 && signal?.aborted !== true && !this.#isClosed;
      // The wait begins before the request, because a message can arrive before the answer.
      const wait = isWaiting ? this.#waits.add(id) : undefined;
      try {
        await this.#held.restore(id);
        const { reply, restMs } = await this.#unlessChanged(
          () => ask(isWaiting),
          ({ reply }) => reply === undefined,
        );
        if (restMs === undefined || wait === undefined) return reply;
        await wait.until(this.#clock, Math.min(leftMs, restMs + 1, ASK_AGAIN_MS), signal);
        if (signal?.aborted === true) return reply;
      } catch (error) {
        if (wait === undefined) throw error;
        await wait.until(this.#clock, Math.min(leftMs, ASK_AGAIN_MS), signal);
      } finally {
        if (wait !== undefined) this.#waits.delete(id, wait);
      }
    }
  }

  #serverIsUp(): void {
    if (this.#client.generation === this.#generation) return;
    // The first server of all has no predecessor.
    if (this.#generation > 0) this.#changedAt = this.#clock.monotonic();
    this.#generation = this.#client.generation;
    void this.#held.restoreAll();
  }

  /** Waits until all gateways have had time to restore recordings that the server lacks. */
  async #settled(): Promise<void> {
    const leftMs = this.#changedAt + SETTLE_MS - this.#clock.monotonic();
    if (leftMs > 0) await new Promise<void>((resolve) => this.#clock.timer(leftMs, resolve));
  }

  /** Asks again if nothing was found and the server has changed recently. */
  async #unlessChanged<Reply>(
    ask: () => Promise<Reply>,
    isNothing: (reply: Reply) => boolean = (reply) => reply === undefined,
  ): Promise<Reply> {
    const reply = await ask();
    const isNew = this.#clock.monotonic() - this.#changedAt < SETTLE_MS;
    if (!isNew || !isNothing(reply)) return reply;
    await this.#settled();
    return await ask();
  }

  async #find(id: string, isWaiting: boolean): Promise<FoundRecording | undefined> {
    const find = (redis: Redis) =>
      this.#scripts.find(redis, [toRecordingKey(id)], [id, isWaiting ? this.#gateway : "-"]);
    return await this.#client.run(find, readFound, PATIENT_MS);
  }

  async #read(id: string, offset: number, isWaiting: boolean): Promise<FoundPart | undefined> {
    const args = [id, this.#gateway, isWaiting ? 1 : 0, offset + 1];
    const read = (redis: Redis) =>
      this.#scripts.read(redis, [toRecordingKey(id), toLogKey(id)], args);
    return await this.#client.run(read, readPart, PATIENT_MS);
  }

  #hear(message: string): void {
    const [word = "", id = "", epoch = "0"] = message.split(" ");
    if (word === "more") this.#waits.wake(id);
    else this.#held.tell(word, id, Number(epoch));
  }
}

/** Returns whether a recording runs at its holder, and its answer has not begun. */
function isHeadDue({ state, isHeld, head }: StoredRecording): boolean {
  return state === "running" && isHeld && head === undefined;
}

function readClaimed(
  reply: unknown,
): FoundRecording | { readonly isRestarted: boolean } | "full" | undefined {
  const isRestarted = readNew(reply);
  if (isRestarted === "full") return isRestarted;
  return isRestarted === undefined ? readFound(reply) : { isRestarted };
}

function readIds(reply: unknown): string[] {
  if (!Array.isArray(reply)) throw new Error("no list");
  return reply.map(String);
}
