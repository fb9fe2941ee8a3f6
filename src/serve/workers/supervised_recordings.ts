/**
 * Recordings of a worker's durable exchanges: its supervisor keeps them, so that every worker finds
 * them.
 *
 * Most of the cost of a message is the same for one call or for twenty: one goes out when a turn of
 * the event loop ends, with all that came in during it.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import type { RecordingAnswer, RecordingMessage } from "../../durable/recording_server.ts";
import { RECORDING_LEASE_MS } from "../../durable/recording_store.ts";
import { RemoteRecordings } from "../../durable/recording_store_remote.ts";
import { systemClock } from "../../exchange/clock.ts";
import {
  packMessage,
  type RecordingAnswers,
  type RecordingCalls,
  unpackAnswer,
} from "./recording_messages.ts";

/** The longest time for which a worker gathers bytes for an entry. Milliseconds. */
const GATHER_MS = 20;

/** A call that waits for its answer. */
interface Waiting {
  readonly resolve: (answer: RecordingAnswer) => void;
  readonly reject: (error: Error) => void;
  readonly cancelTimer: () => void;
}

/** Calls of a worker to the recordings at its supervisor. */
export class SupervisedRecordings {
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

  /** Rejects waiting and later calls, because the supervisor answers no more. */
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
      // No call waits longer at the supervisor than a lease lasts.
      const cancelTimer = systemClock.timer(
        RECORDING_LEASE_MS,
        () => this.answered([[call, null]]),
      );
      this.#waiting.set(call, { resolve, reject, cancelTimer });
    });
  }
}

const toGone = (): Error => new Error("Cannot record: the supervisor is gone");
