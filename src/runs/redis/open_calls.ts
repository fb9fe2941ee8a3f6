/**
 * The open calls of a gateway whose runs are in Redis. While there are any, the gateway asks twice in
 * {@link STOP_MS} whether their runs were stopped, and renews them from time to time.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import type { CountedRun } from "../memory_runs.ts";
import { STOP_MS } from "../run_registry.ts";
import { toRunKeys, WATCH, type WatchCall } from "./scripts.ts";

/** Time after which an open call of a dead gateway is no longer listed. Milliseconds. */
export const OPEN_MS = 10_000;
const ASK_MS = STOP_MS / 2;
/** Number of questions after which the calls are renewed. Two renewals can be lost. */
const RENEW_EVERY = 6;

/** An open call. */
export interface OpenCall {
  readonly keyId: string;
  /** Its name in Redis. */
  readonly name: string;
  readonly counted: readonly CountedRun[];
  readonly idleMs: number;
  readonly onStopped: () => void;
}

/** The open calls of one gateway key. */
interface AskedCalls {
  readonly keyId: string;
  readonly calls: readonly OpenCall[];
  /** The runs that they count in, each with the most runs below it. */
  readonly runs: ReadonlyMap<string, number>;
  readonly isRenewal: boolean;
}

/** The open calls of this gateway. */
export class OpenCalls {
  readonly #clock: Clock;
  readonly #watch: RedisCommand<AskedCalls, ReadonlySet<string>>;
  readonly #calls = new Map<string, Set<OpenCall>>();
  /** Calls that were stopped, and have not ended yet. */
  readonly #stopped = new WeakSet<OpenCall>();
  #asked = 0;
  #cancel: (() => void) | undefined;

  constructor(client: RedisClient, clock: Clock) {
    this.#clock = clock;
    this.#watch = client.command({ script: WATCH, write: toCall, read: readStopped });
  }

  /** Adds a call. @returns A function that removes it */
  add(call: OpenCall): () => void {
    const calls = this.#calls.get(call.keyId) ?? new Set();
    this.#calls.set(call.keyId, calls.add(call));
    this.#askLater();
    return () => {
      calls.delete(call);
      if (calls.size > 0 || this.#calls.get(call.keyId) !== calls) return;
      this.#calls.delete(call.keyId);
      if (this.#calls.size === 0) this.close();
    };
  }

  /** Asks no more. */
  close(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #askLater(): void {
    this.#cancel ??= this.#clock.timer(ASK_MS, () => {
      void this.#ask().finally(() => {
        this.#cancel = undefined;
        if (this.#calls.size > 0) this.#askLater();
      });
    });
  }

  async #ask(): Promise<void> {
    const isRenewal = ++this.#asked % RENEW_EVERY === 0;
    const keys = Array.from(this.#calls, ([keyId, calls]) => ({ keyId, calls: [...calls] }));
    await Promise.all(keys.map(async ({ keyId, calls }) => {
      const asked = { keyId, calls, runs: runsOf(calls), isRenewal };
      const stopped = await this.#watch(asked).catch(() => undefined); // it is asked again
      if (stopped === undefined || stopped.size === 0) return;
      for (const call of calls) {
        const isNew = !this.#stopped.has(call) && call.counted.some(({ id }) => stopped.has(id));
        if (!isNew) continue;
        this.#stopped.add(call);
        call.onStopped();
      }
    }));
  }
}

function runsOf(calls: readonly OpenCall[]): ReadonlyMap<string, number> {
  const runs = new Map<string, number>();
  for (const { counted } of calls) {
    for (const [below, { id }] of counted.entries()) {
      runs.set(id, Math.max(below, runs.get(id) ?? 0));
    }
  }
  return runs;
}

function toCall({ keyId, calls, runs, isRenewal }: AskedCalls): WatchCall {
  return {
    ...toRunKeys(keyId),
    isRenewal,
    openMs: OPEN_MS,
    idleMs: Math.max(...calls.map(({ idleMs }) => idleMs)),
    open: isRenewal ? calls.map(({ name }) => name) : [],
    runs: Array.from(runs, ([id, below]) => ({ id, below })),
  };
}

function readStopped(reply: unknown, { runs }: AskedCalls): ReadonlySet<string> {
  if (!Array.isArray(reply) || reply.length !== runs.size) throw new Error("no states of runs");
  return new Set([...runs.keys()].filter((_, index) => reply[index] === 1));
}
