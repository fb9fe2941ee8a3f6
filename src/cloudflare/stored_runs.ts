/**
 * Runs of one gateway key in a Durable Object. They are stored at every change, because the object
 * can be removed from memory at any time. Open calls are not stored: their gateways continue them.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { MemoryRuns, type StoredRun } from "../runs/memory_runs.ts";
import { type RunAnswer, type RunMessage, RunServer } from "../runs/run_server.ts";
import type { ObjectStorage } from "./bindings.ts";

/** Prefix of the names of stored runs. */
const PREFIX = "run:";

interface StoredEntry {
  readonly keyId: string;
  readonly run: StoredRun;
}

/** Returns whether a stored value is a run. */
export const isStoredRun = (name: string): boolean => name.startsWith(PREFIX);

/** The runs of an object. */
export class StoredRuns {
  readonly #server: RunServer;
  readonly #kv: ObjectStorage["kv"];

  /** @param expiresAt Receives the time at which a run can be deleted. Milliseconds since 1970 */
  constructor({ kv }: ObjectStorage, clock: Clock, expiresAt: (at: number) => void) {
    this.#kv = kv;
    const runs = new MemoryRuns(clock, {
      put(keyId, run) {
        kv.put(PREFIX + run.id, { keyId, run } satisfies StoredEntry);
        expiresAt(run.expiresAt);
      },
      delete: (_keyId, id) => void kv.delete(PREFIX + id),
    });
    const stored = Array.from(kv.list<StoredEntry>({ prefix: PREFIX }), ([, entry]) => entry);
    stored.sort((one, other) => one.run.usedAt - other.run.usedAt);
    for (const { keyId, run } of stored) runs.restore(keyId, run);
    this.#server = new RunServer(runs, clock);
  }

  /** Handles a message of a gateway. */
  handle(message: RunMessage): Promise<RunAnswer> {
    return this.#server.handle(message);
  }

  /**
   * Deletes runs that have not been used for long.
   *
   * @returns The time at which the next one can be deleted; 0 if there is none
   */
  deleteIdle(now: number): number {
    let next = 0;
    for (const [name, { run }] of Array.from(this.#kv.list<StoredEntry>({ prefix: PREFIX }))) {
      if (run.expiresAt <= now) this.#kv.delete(name);
      else next = Math.max(next, run.expiresAt);
    }
    return next;
  }
}
