/**
 * Runs of one gateway key in a Durable Object. They are stored at every change, because the object
 * can be removed from memory at any time. Open calls are not stored: their gateways continue them.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { MemoryRuns } from "../runs/memory_runs.ts";
import { ancestorsOf, type StoredRun } from "../runs/run_chain.ts";
import { type RunMessage, type RunReply, RunServer } from "../runs/run_server.ts";
import type { ObjectStorage } from "./bindings.ts";

/** Prefix of the names of stored runs. */
const PREFIX = "run:";

interface StoredEntry {
  readonly keyId: string;
  readonly run: StoredRun;
}

/** Returns whether a stored value is a run. */
export const isStoredRun = (name: string): boolean => name.startsWith(PREFIX);

/** Sorts runs by their last use. A call uses its run and, at the same time, the runs above it. */
function sortByUse(entries: StoredEntry[]): void {
  const runs = new Map(entries.map(({ run }) => [run.id, run]));
  const depths = new Map(entries.map(({ run }) => [run, ancestorsOf(runs, run).length]));
  const depthOf = ({ run }: StoredEntry): number => depths.get(run) ?? 0;
  entries.sort((one, other) => one.run.usedAt - other.run.usedAt || depthOf(other) - depthOf(one));
}

/** The runs of an object. */
export class StoredRuns {
  readonly #runs: MemoryRuns;
  readonly #server: RunServer;

  /** @param expiresAt Receives the time at which a run can be deleted. Milliseconds since 1970 */
  constructor({ kv }: ObjectStorage, clock: Clock, expiresAt: (at: number) => void) {
    const runs = this.#runs = new MemoryRuns(clock, {
      put(keyId, run) {
        kv.put(PREFIX + run.id, { keyId, run } satisfies StoredEntry);
        expiresAt(run.expiresAt);
      },
      delete: (_keyId, id) => void kv.delete(PREFIX + id),
    });
    const stored = Array.from(kv.list<StoredEntry>({ prefix: PREFIX }), ([, entry]) => entry);
    sortByUse(stored);
    for (const { keyId, run } of stored) runs.restore(keyId, run);
    this.#server = new RunServer(runs, clock);
  }

  /** Handles a message of a gateway. */
  handle(message: RunMessage): Promise<RunReply> {
    return this.#server.handle(message);
  }

  /**
   * Deletes runs that have not been used for long.
   *
   * @returns The latest time at which a run can be deleted; 0 if there is none
   */
  deleteIdle(now: number): number {
    return this.#runs.forgetIdle(now);
  }
}
