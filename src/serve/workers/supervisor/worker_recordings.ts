/**
 * Recordings that the supervisor stores for its workers.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import type { RecordingServer } from "../../../durable/recording_server.ts";
import {
  packReply,
  type RecordingQuestions,
  type RecordingReplies,
  unpackMessage,
} from "../recording_messages.ts";

/** The recordings, for one worker. */
export class WorkerRecordings {
  readonly #shared: RecordingServer;
  readonly #worker: string;
  readonly #send: (replies: RecordingReplies) => void;
  #draft: RecordingReplies[number][] = [];

  constructor(shared: RecordingServer, worker: string, send: (replies: RecordingReplies) => void) {
    this.#shared = shared;
    this.#worker = worker;
    this.#send = send;
  }

  /** Handles questions in their order. Sends each reply as soon as it is ready. */
  handle(questions: RecordingQuestions): void {
    for (const each of questions) void this.#handle(each);
  }

  /** Ends the leases of the worker, because it has ended. Other workers close its recordings. */
  releaseAll(): void {
    this.#shared.leave(this.#worker);
  }

  /**
   * Handles a question. If it can't be read, it fails like a refused question, and the supervisor
   * continues.
   */
  async #handle([question, message]: RecordingQuestions[number]): Promise<void> {
    try {
      const reply = await this.#shared.handle(unpackMessage(message), this.#worker);
      this.#reply([question, packReply(reply)]);
    } catch {
      this.#reply([question, null]);
    }
  }

  #reply(reply: RecordingReplies[number]): void {
    if (this.#draft.length === 0) setImmediate(() => this.#send(this.#draft.splice(0)));
    this.#draft.push(reply);
  }
}
