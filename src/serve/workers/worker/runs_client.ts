/**
 * The runs of a worker: its supervisor counts them for all workers.
 *
 * @module
 */
import { GatewayError } from "../../../errors/gateway_error.ts";
import { systemClock } from "../../../exchange/clock.ts";
import { RemoteRuns } from "../../../runs/remote_runs.ts";
import type { RunRegistry } from "../../../runs/run_registry.ts";
import type { RunAnswer, RunMessage } from "../../../runs/run_server.ts";

/** A message that waits for its answer. */
interface Waiting {
  readonly resolve: (answer: RunAnswer) => void;
  readonly reject: (error: Error) => void;
}

/** The runs of a worker. */
export class RunsClient {
  readonly runs: RunRegistry;
  readonly #waiting = new Map<number, Waiting>();
  #calls = 0;
  #isClosed = false;

  constructor(send: (call: number, message: RunMessage) => void) {
    const ask = (message: RunMessage) =>
      new Promise<RunAnswer>((resolve, reject) => {
        if (this.#isClosed) return reject(new GatewayError("gateway_draining"));
        const call = ++this.#calls;
        this.#waiting.set(call, { resolve, reject });
        send(call, message);
      });
    this.runs = new RemoteRuns(ask, systemClock);
  }

  /** Handles the answer to a message. */
  answered(call: number, answer: RunAnswer): void {
    this.#waiting.get(call)?.resolve(answer);
    this.#waiting.delete(call);
  }

  /** Refuses waiting and later calls of runs, because the supervisor no longer answers. */
  close(): void {
    this.#isClosed = true;
    for (const { reject } of this.#waiting.values()) reject(new GatewayError("gateway_draining"));
    this.#waiting.clear();
  }
}
