/**
 * Recordings of a worker's durable exchanges. The supervisor stores them, so that every worker
 * finds them.
 *
 * Most of the cost of a message is the same for one question or for twenty. A message is therefore sent
 * at the end of a turn of the event loop, with all questions of that turn.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import type { RecordingMessage, RecordingReply } from "../../../durable/recording_server.ts";
import { RECORDING_LEASE_MS } from "../../../durable/recording_store.ts";
import { RemoteRecordings } from "../../../durable/recording_store_remote.ts";
import { systemClock } from "../../../exchange/clock.ts";
import {
  packMessage,
  type RecordingQuestions,
  type RecordingReplies,
  unpackReply,
} from "../recording_messages.ts";

/** The longest time that a worker collects bytes for an entry. Milliseconds. */
const GATHER_MS = 20;

/** A question that waits for its reply. */
interface Waiting {
  readonly resolve: (reply: RecordingReply) => void;
  readonly reject: (error: Error) => void;
  readonly cancelTimer: () => void;
}

/** Calls of a worker to the recordings of its supervisor. */
export class RecordingsClient {
  /** The store that makes the calls. */
  readonly store: RemoteRecordings = new RemoteRecordings({
    send: (message) => this.#ask(message),
    clock: systemClock,
    gatherMs: GATHER_MS,
  });
  readonly #send: (questions: RecordingQuestions) => void;
  #draft: RecordingQuestions[number][] = [];
  readonly #waiting = new Map<number, Waiting>();
  #lastQuestion = 0;
  #isAlone = false;

  constructor(send: (questions: RecordingQuestions) => void) {
    this.#send = send;
  }

  /** Handles replies, in any order. */
  receive(replies: RecordingReplies): void {
    for (const [question, reply] of replies) {
      const waiting = this.#waiting.get(question);
      this.#waiting.delete(question);
      waiting?.cancelTimer();
      try {
        if (reply !== null) waiting?.resolve(unpackReply(reply));
        else waiting?.reject(new Error("Cannot record: the supervisor has failed"));
      } catch (error) {
        waiting?.reject(error as Error);
      }
    }
  }

  /** Rejects waiting and later calls, because the supervisor no longer answers. */
  close(): void {
    this.#isAlone = true;
    for (const { reject, cancelTimer } of this.#waiting.values()) {
      cancelTimer();
      reject(toGone());
    }
    this.#waiting.clear();
  }

  #ask(message: RecordingMessage): Promise<RecordingReply> {
    if (this.#isAlone) return Promise.reject(toGone());
    const question = ++this.#lastQuestion;
    if (this.#draft.length === 0) setImmediate(() => this.#send(this.#draft.splice(0)));
    this.#draft.push([question, packMessage(message)]);
    return new Promise((resolve, reject) => {
      // A question waits at most as long as a lease lasts.
      const cancelTimer = systemClock.timer(
        RECORDING_LEASE_MS,
        () => this.receive([[question, null]]),
      );
      this.#waiting.set(question, { resolve, reject, cancelTimer });
    });
  }
}

const toGone = (): Error => new Error("Cannot record: the supervisor is gone");
