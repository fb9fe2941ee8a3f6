/**
 * The runs of a worker: its supervisor counts them for all workers.
 *
 * @module
 */
import { GatewayError } from "../../../errors/gateway_error.ts";
import { systemClock } from "../../../exchange/clock.ts";
import { RemoteRuns } from "../../../runs/remote_runs.ts";
import type { RunRegistry } from "../../../runs/run_registry.ts";
import type { RunMessage, RunReply } from "../../../runs/run_server.ts";

/** A message that waits for its reply. */
interface Waiting {
  readonly resolve: (reply: RunReply) => void;
  readonly reject: (error: Error) => void;
}

/** The runs of a worker. */
export class RunsClient {
  readonly runs: RunRegistry;
  readonly #waiting = new Map<number, Waiting>();
  #lastQuestion = 0;
  #isClosed = false;

  constructor(send: (question: number, message: RunMessage) => void) {
    const ask = (message: RunMessage) =>
      new Promise<RunReply>((resolve, reject) => {
        if (this.#isClosed) return reject(new GatewayError("gateway_draining"));
        const question = ++this.#lastQuestion;
        this.#waiting.set(question, { resolve, reject });
        send(question, message);
      });
    this.runs = new RemoteRuns(ask, systemClock);
  }

  /** Handles the reply to a message. */
  receive(question: number, reply: RunReply): void {
    this.#waiting.get(question)?.resolve(reply);
    this.#waiting.delete(question);
  }

  /** Refuses waiting and later calls of runs, because the supervisor no longer answers. */
  close(): void {
    this.#isClosed = true;
    for (const { reject } of this.#waiting.values()) reject(new GatewayError("gateway_draining"));
    this.#waiting.clear();
  }
}
