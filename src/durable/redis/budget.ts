/**
 * The budget of recordings in Redis, for one gateway: reports its writes, asks for room, and evicts
 * recordings. See `budget_script.ts`.
 *
 * Reports are collected, and sent with the next recording that begins. A budget that does not
 * answer refuses nothing.
 *
 * @module
 */
import type { Redis } from "ioredis";
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { sizeOf } from "../memory_recording.ts";
import { BUDGET_KEYS, REPORT, type ReportCall } from "./budget_script.ts";
import { toLogKey, toRecordingKey } from "./replies.ts";
import { EVICT } from "./scripts.ts";
import type { RecordingClaim, RecordingFacts } from "../recording_store.ts";
import { PATIENT_MS } from "./removed_recordings.ts";

/** The longest time for which reports are collected. Milliseconds. */
const GATHER_MS = 1000;
/** Growth of recordings up to which reports are collected. Bytes. */
const GATHER_BYTES = 262_144;
/**
 * Number of recordings in one report. Bounded, because a long script would block Redis for all
 * clients.
 */
const BATCH = 100;
/** Maximum number of reports that are kept while Redis fails. */
const MAX_KEPT = 2000;
/** Time for which a gateway relies on an answer that reports plenty of room. Milliseconds. */
const FRESH_MS = 2000;
/** Free size, and free part of the budget, from which there is plenty of room. */
const PLENTY_BYTES = 1_048_576;
const PLENTY_PART = 1 / 8;
/** Maximum length of the list of recordings. */
const MAX_LISTED = 10_000;

/** Report of a recording. */
export interface RecordingReport {
  readonly id: string;
  readonly change: ReportCall["reports"][number]["change"];
  /** Size that is counted for it; left out if another gateway began it. Bytes. */
  readonly bytes?: number | undefined;
  /** Left out for a recording that is removed. */
  readonly facts?: ReportedFacts | undefined;
}

type ReportedFacts =
  & Pick<RecordingFacts, "startedAt" | "keepMs">
  & Partial<Pick<RecordingFacts, "keyId">>;

export interface RedisRecordingBudgetOptions {
  readonly client: RedisClient;
  readonly clock: Clock;
  readonly times: { readonly leaseMs: number; readonly tombstoneMs: number };
  /** Returns the maximum size of all recordings together, of all gateways. Bytes. */
  readonly maxBytes: () => number;
  /** Called when there is no room for the growth of a recording. */
  readonly onFull: (id: string) => void;
}

type Word = "full" | "expire" | "forget";

export class RedisRecordingBudget {
  readonly #options: RedisRecordingBudgetOptions;
  readonly #report: RedisCommand<readonly RecordingReport[], BudgetReply>;
  readonly #evict: ReturnType<RedisClient["script"]>;
  /** The latest report of each recording that is not sent yet. */
  readonly #gathered = new Map<string, RecordingReport>();
  #gatheredBytes = 0;
  /**
   * Bytes that were free at the last answer, minus the bytes of recordings that have begun here
   * since.
   */
  #free = 0;
  #answeredAt = -Infinity;
  #cancelTimer: (() => void) | undefined;
  #isFlushing = false;
  #isClosed = false;

  constructor(options: RedisRecordingBudgetOptions) {
    this.#options = options;
    this.#report = options.client.command({
      script: REPORT,
      write: (reports: readonly RecordingReport[]) => this.#toCall(reports),
      read: readReply,
    });
    this.#evict = options.client.script("sallyportRecordingEvict", EVICT);
  }

  /**
   * Returns whether there is room for a new recording. While there is plenty, no request is sent.
   */
  async hasRoom({ id, facts }: RecordingClaim): Promise<boolean> {
    if (this.#hasPlenty) {
      this.#free -= sizeOf();
      return true;
    }
    // Sent first, so that the answer includes the growth of recordings.
    void this.flush();
    try {
      const words = await this.#send([{ id, change: "asked", bytes: sizeOf(), facts }]);
      return words.get(id) !== "full";
    } catch {
      return true;
    }
  }

  /** Reports a recording soon. @param grownBy Bytes added since its last report */
  add(report: RecordingReport, grownBy = 0): void {
    this.#gathered.set(report.id, report);
    this.#gatheredBytes += grownBy;
    if (this.#gatheredBytes >= GATHER_BYTES) void this.flush();
    else this.#flushLater();
  }

  /**
   * Sends the collected reports soon, together with reports of other recordings whose answers
   * arrive at the same time.
   */
  flushSoon(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    queueMicrotask(() => {
      this.#isFlushing = false;
      void this.flush();
    });
  }

  /** Sends the collected reports. Never rejects. */
  async flush(): Promise<void> {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#gatheredBytes = 0;
    const all = Array.from(this.#gathered.values());
    this.#gathered.clear();
    const sent: Promise<void>[] = [];
    for (let start = 0; start < all.length; start += BATCH) {
      sent.push(this.#try(all.slice(start, start + BATCH)));
    }
    await Promise.all(sent);
  }

  /** Sends the collected reports for the last time. Never rejects. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.flush();
  }

  get #hasPlenty(): boolean {
    const { clock, maxBytes } = this.#options;
    const isFresh = clock.monotonic() - this.#answeredAt < FRESH_MS;
    return isFresh && this.#free >= Math.max(PLENTY_BYTES, PLENTY_PART * maxBytes());
  }

  #flushLater(): void {
    if (this.#cancelTimer !== undefined || this.#isClosed) return;
    this.#cancelTimer = this.#options.clock.timer(GATHER_MS, () => void this.flush(), {
      isBackground: true,
    });
  }

  async #try(reports: readonly RecordingReport[]): Promise<void> {
    try {
      const words = await this.#send(reports, PATIENT_MS);
      for (const [id, word] of words) if (word === "full") this.#options.onFull(id);
    } catch {
      // Running recordings are reported with each renewal.
      for (const report of reports) if (report.change !== "running") this.#keep(report);
    }
  }

  #keep(report: RecordingReport): void {
    const isOld = this.#gathered.has(report.id);
    if (isOld || this.#gathered.size >= MAX_KEPT) return;
    this.#gathered.set(report.id, report);
    this.#flushLater();
  }

  async #send(
    reports: readonly RecordingReport[],
    deadlineMs?: number,
  ): Promise<ReadonlyMap<string, Word>> {
    const { free, words } = await this.#report(reports, { deadlineMs });
    this.#free = free;
    this.#answeredAt = this.#options.clock.monotonic();
    void this.#makeRoom(words);
    return words;
  }

  #toCall(all: readonly RecordingReport[]): ReportCall {
    const { times, maxBytes } = this.#options;
    const { leaseMs, tombstoneMs } = times;
    const reports = all.map(({ id, change, bytes = -1, facts }) => {
      const { startedAt = 0, keepMs = 0, keyId: owner = "" } = facts ?? {};
      return { id, change, bytes, startedAt, keepMs, owner };
    });
    const lifeMs = leaseMs + Math.max(tombstoneMs, ...reports.map(({ keepMs }) => keepMs));
    const limits = { maxBytes: maxBytes(), maxListed: MAX_LISTED };
    return { ...BUDGET_KEYS, ...limits, leaseMs, tombstoneMs, lifeMs, reports };
  }

  /**
   * Removes the recordings that the budget names. If that fails, they expire later. Never rejects.
   */
  async #makeRoom(words: ReadonlyMap<string, Word>): Promise<void> {
    const { client, times: { tombstoneMs } } = this.#options;
    const removals = Array.from(words).filter(([, word]) => word !== "full");
    await Promise.allSettled(removals.map(([id, word]) => {
      const evict = (redis: Redis) =>
        this.#evict(redis, [toRecordingKey(id), toLogKey(id)], [id, word, tombstoneMs]);
      return client.run(evict, () => {}, PATIENT_MS);
    }));
  }
}

interface BudgetReply {
  /** Bytes that are free. */
  readonly free: number;
  readonly words: ReadonlyMap<string, Word>;
}

function readReply(reply: unknown): BudgetReply {
  if (!Array.isArray(reply)) throw new Error("no report");
  const [free, ...rest] = reply;
  const words = new Map<string, Word>();
  for (let index = 0; index < rest.length; index += 2) {
    words.set(String(rest[index]), rest[index + 1]);
  }
  return { free: Number(free), words };
}
