/**
 * The store of a worker's usage: the supervisor, which stores the usage of all workers.
 *
 * @module
 */
import process from "node:process";
import { systemClock } from "../../../exchange/clock.ts";
import type { UsageBatch, UsageRow, UsageStore } from "../../../usage/counts.ts";

/** The longest time that a worker waits until its supervisor has received usage. Milliseconds. */
const USAGE_MS = 1000;

/** Usage of a worker, which its supervisor stores. */
export class UsageClient implements UsageStore {
  readonly backend = "memory";
  readonly #send: (batch: UsageBatch) => void;
  #received = (_batch: number): void => {};
  /** Ends the wait for the supervisor. */
  #endWait = (): void => {};
  #isSupervisorGone = false;

  constructor(send: (batch: UsageBatch) => void) {
    this.#send = send;
  }

  add(batch: UsageBatch): Promise<void> {
    return new Promise((resolve, reject) => {
      // There is no receiver. A retry would only delay the end of the worker.
      if (this.#isSupervisorGone || !process.connected) return resolve();
      const cancel = systemClock.timer(
        USAGE_MS,
        () => reject(new Error("the supervisor does not answer")),
      );
      this.#endWait = () => {
        cancel();
        resolve();
      };
      this.#received = (number) => {
        if (number === batch.number) this.#endWait();
      };
      this.#send(batch);
    });
  }

  /** Confirms that the supervisor has received the batch with this number. */
  received(batch: number): void {
    this.#received(batch);
  }

  /** Notes that the supervisor is gone, and waits for it no longer. */
  supervisorIsGone(): void {
    this.#isSupervisorGone = true;
    this.#endWait();
  }

  /** Yields nothing: the supervisor creates the reports, never a worker. */
  async *read(): AsyncIterable<readonly UsageRow[]> {}

  close(): Promise<void> {
    return Promise.resolve();
  }
}
