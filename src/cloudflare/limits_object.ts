/**
 * The Durable Object that counts limits and runs.
 *
 * @module
 */
import { DurableObject } from "cloudflare:workers";
import { MemoryLimiter, type WindowCounts } from "../limits/memory_limiter.ts";
import { type LimiterMessage, type LimiterReply, LimiterServer } from "../limits/limiter_server.ts";
import type { RunMessage, RunReply } from "../runs/run_server.ts";
import type { ObjectState } from "./bindings.ts";
import { isStoredRun, StoredRuns } from "./stored_runs.ts";
import { clock as objectClock } from "./worker_clock.ts";

/**
 * Time after the end of a window when its counts are deleted, with all others that have ended.
 * Milliseconds.
 */
const CLEAR_AFTER_MS = 60_000;

/** The alarm for idle runs is rounded up, because each call of a run moves it. Milliseconds. */
const HOUR_MS = 3_600_000;

/**
 * Returns the time when the last count ends. An earlier version stored fewer counts, and a later
 * one can store more.
 */
const endOf = (counts: Partial<WindowCounts>): number =>
  Math.max(...Object.values(counts).map(({ until }) => until));

/**
 * Counts the limits of a gateway key, of a team with its keys, or of all keys, or the runs of a
 * gateway key; see `createParts` in `bindings.ts`.
 */
export class SallyportLimits extends DurableObject {
  readonly #limiter: LimiterServer;
  #runs: StoredRuns | undefined;
  #alarmAt = 0;

  constructor(ctx: ObjectState, env: unknown) {
    super(ctx, env);
    const { kv } = ctx.storage;
    // The wall clock continues in another process, so windows use it as the monotonic clock too.
    const clock = { now: Date.now, monotonic: Date.now, timer: () => () => {} };
    this.#limiter = new LimiterServer(new MemoryLimiter(clock), Date.now, {
      get: (subject) => kv.get<WindowCounts>(subject),
      put: (subject, counts) => {
        kv.put(subject, counts);
        this.#clearLater(endOf(counts));
      },
    });
  }

  /** Handles a message of a gateway. See {@link LimiterServer.handle}. */
  handle(message: LimiterMessage): LimiterReply {
    return this.#limiter.handle(message);
  }

  /** Handles a message of a gateway about runs. See {@link RunServer.handle}. */
  handleRuns(message: RunMessage): Promise<RunReply> {
    return this.#storedRuns.handle(message);
  }

  /** Deletes idle runs, and counts of ended windows, so that a removed key leaves no data behind. */
  alarm(): void {
    const { kv } = this.ctx.storage;
    this.#alarmAt = 0;
    let next = this.#storedRuns.deleteIdle(Date.now());
    for (const [subject, counts] of Array.from(kv.list<WindowCounts>())) {
      if (isStoredRun(subject)) continue;
      const end = endOf(counts);
      if (end <= Date.now()) kv.delete(subject);
      else next = Math.max(next, end);
    }
    if (next > 0) this.#clearLater(next);
  }

  get #storedRuns(): StoredRuns {
    const { storage } = this.ctx;
    const deleteAfter = (at: number) => this.#clearLater(Math.ceil(at / HOUR_MS) * HOUR_MS);
    return this.#runs ??= new StoredRuns(storage, objectClock, deleteAfter);
  }

  #clearLater(end: number): void {
    if (this.#alarmAt >= end) return;
    this.#alarmAt = end + CLEAR_AFTER_MS;
    this.ctx.storage.setAlarm(this.#alarmAt);
  }
}
