/**
 * Recordings of a worker's durable exchanges. The supervisor stores them, so that every worker
 * finds them.
 *
 * Most of the cost of a message is the same for one call or for twenty. A message is therefore sent
 * at the end of a turn of the event loop, with all calls of that turn.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import type { RecordingAnswer, RecordingMessage } from "../../../durable/recording_server.ts";
import { RECORDING_LEASE_MS } from "../../../durable/recording_store.ts";
import { RemoteRecordings } from "../../../durable/recording_store_remote.ts";
import { systemClock } from "../../../exchange/clock.ts";
import {
  packMessage,
  type RecordingAnswers,
  type RecordingCalls,
  unpackAnswer,
} from "../recording_messages.ts";

/** The longest time that a worker collects bytes for an entry. Milliseconds. */
const GATHER_MS = 20;

/** A call that waits for its answer. */
interface Waiting {
  readonly resolve: (answer: RecordingAnswer) => void;
  readonly reject: (error: Error) => void;
  readonly cancelTimer: () => void;
}

/** Calls of a worker to the recordings of its supervisor. */
export class RecordingsClient {
  /** The store that makes the calls. */
  readonly store: RemoteRecordings = new RemoteRecordings({
    send: (message) => this.#call(message),
    clock: systemClock,
    gatherMs: GATHER_MS,
  });
  readonly #send: (calls: RecordingCalls) => void;
  #draft: RecordingCalls[number][] = [];
  readonly #waiting = new Map<number, Waiting>();
  #calls = 0;
  #isAlone = false;

  constructor(send: (calls: RecordingCalls) => void) {
    this.#send = send;
  }

  /** Handles answers, in any order. */
  answered(answers: RecordingAnswers): void {
    for (const [call, answer] of answers) {
      const waiting = this.#waiting.get(call);
      this.#waiting.delete(call);
      waiting?.cancelTimer();
      try {
        if (answer !== null) waiting?.resolve(unpackAnswer(answer));
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

  #call(message: RecordingMessage): Promise<RecordingAnswer> {
    if (this.#isAlone) return Promise.reject(toGone());
    const call = ++this.#calls;
    if (this.#draft.length === 0) setImmediate(() => this.#send(this.#draft.splice(0)));
    this.#draft.push([call, packMessage(message)]);
    return new Promise((resolve, reject) => {
      // A call waits at most as long as a lease lasts.
      const cancelTimer = systemClock.timer(
        RECORDING_LEASE_MS,
        () => this.answered([[call, null]]),
      );
      this.#waiting.set(call, { resolve, reject, cancelTimer });
    });
  }
}

const toGone = (): Error => new Error("Cannot record: the supervisor is gone");
