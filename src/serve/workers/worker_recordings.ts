/**
 * Recordings that the supervisor keeps for its workers.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import type { SharedRecordings } from "../../durable/shared_recordings.ts";
import { packAnswer, type RecordingAnswers, type RecordingCalls, unpackMessage } from "./recording_messages.ts";

/** The recordings, as one worker uses them. */
export class WorkerRecordings {
  readonly #shared: SharedRecordings;
  readonly #worker: string;
  readonly #send: (answers: RecordingAnswers) => void;
  #draft: RecordingAnswers[number][] = [];

  /**
   * @param shared The recordings of all workers
   * @param worker Name of the worker
   * @param send Sends answers to it
   */
  constructor(shared: SharedRecordings, worker: string, send: (answers: RecordingAnswers) => void) {
    this.#shared = shared;
    this.#worker = worker;
    this.#send = send;
  }

  /** Handles calls, in their order, and answers each as soon as there is an answer. */
  handle(calls: RecordingCalls): void {
    for (const [call, message] of calls) {
      this.#shared.handle(unpackMessage(message), this.#worker).then(
        (answer) => this.#answer([call, packAnswer(answer)]),
        () => this.#answer([call, null]),
      );
    }
  }

  /** Ends the leases of the worker, because it has ended: others close what it had begun. */
  leave(): void {
    this.#shared.leave(this.#worker);
  }

  #answer(answer: RecordingAnswers[number]): void {
    if (this.#draft.length === 0) setImmediate(() => this.#send(this.#draft.splice(0)));
    this.#draft.push(answer);
  }
}
