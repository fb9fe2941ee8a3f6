/**
 * The store of a worker's history: the supervisor, which stores the history of all workers.
 *
 * @module
 */
import process from "node:process";
import type { HistoryBatch, HistoryRow, HistoryStore } from "../../../usage/history/rows.ts";

/** History of a worker, which its supervisor stores. */
export class HistoryClient implements HistoryStore {
  /** Often, because the reports of the supervisor read only its own counts. */
  readonly flushMs = 1000;
  readonly #send: (rows: readonly HistoryRow[]) => void;

  constructor(send: (rows: readonly HistoryRow[]) => void) {
    this.#send = send;
  }

  add({ rows }: HistoryBatch): Promise<void> {
    if (process.connected) this.#send(rows); // else there is no receiver
    return Promise.resolve();
  }

  /** Yields nothing: the supervisor creates the reports, never a worker. */
  async *read(): AsyncIterable<readonly HistoryRow[]> {}

  close(): Promise<void> {
    return Promise.resolve();
  }
}
