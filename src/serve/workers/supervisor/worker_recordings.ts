/**
 * Recordings that the supervisor stores for its workers.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import type { RecordingServer } from "../../../durable/recording_server.ts";
import {
  packAnswer,
  type RecordingAnswers,
  type RecordingCalls,
  unpackMessage,
} from "../recording_messages.ts";

/** The recordings, for one worker. */
export class WorkerRecordings {
  readonly #shared: RecordingServer;
  readonly #worker: string;
  readonly #send: (answers: RecordingAnswers) => void;
  #draft: RecordingAnswers[number][] = [];

  constructor(shared: RecordingServer, worker: string, send: (answers: RecordingAnswers) => void) {
    this.#shared = shared;
    this.#worker = worker;
    this.#send = send;
  }

  /** Handles calls in their order. Answers each as soon as its answer is ready. */
  handle(calls: RecordingCalls): void {
    for (const each of calls) void this.#handle(each);
  }

  /** Ends the leases of the worker, because it has ended. Other workers close its recordings. */
  releaseAll(): void {
    this.#shared.leave(this.#worker);
  }

  /**
   * Handles a call. A call that can't be read fails like a call that is refused, and the supervisor
   * continues.
   */
  async #handle([call, message]: RecordingCalls[number]): Promise<void> {
    try {
      const answer = await this.#shared.handle(unpackMessage(message), this.#worker);
      this.#answer([call, packAnswer(answer)]);
    } catch {
      this.#answer([call, null]);
    }
  }

  #answer(answer: RecordingAnswers[number]): void {
    if (this.#draft.length === 0) setImmediate(() => this.#send(this.#draft.splice(0)));
    this.#draft.push(answer);
  }
}
