/**
 * The supervisor's part of the exchange of keys between workers: it passes a question to all other
 * workers, and returns their answers.
 *
 * @module
 */
import { systemClock } from "../../../exchange/clock.ts";
import { ANSWER_MS, type FoundKey, type KeyMessage } from "../key_messages.ts";

/** Parts of {@link WorkerKeys}. */
export interface WorkerKeysOptions<Worker> {
  /** The serving workers. */
  readonly serving: () => readonly Worker[];
  readonly send: (worker: Worker, message: KeyMessage) => void;
}

/** A question that waits for the answers of workers. */
interface PendingQuestion {
  readonly answer: (found: readonly (FoundKey | null)[], isLast: boolean) => void;
  /** Workers that have not answered. */
  left: number;
}

/** Finds keys at workers for other workers. */
export class WorkerKeys<Worker> {
  readonly #options: WorkerKeysOptions<Worker>;
  readonly #open = new Map<number, PendingQuestion>();
  #calls = 0;

  constructor(options: WorkerKeysOptions<Worker>) {
    this.#options = options;
  }

  /** Handles a message of a worker. */
  handle(worker: Worker, message: KeyMessage): void {
    if (message.type === "findKeys") return this.#ask(worker, message);
    const { call, found } = message;
    const question = this.#open.get(call);
    if (question === undefined) return;
    question.left--;
    const isLast = question.left === 0;
    if (isLast || found.some((key) => key !== null)) question.answer(found, isLast);
  }

  #ask(asker: Worker, { call, digests }: KeyMessage & { type: "findKeys" }): void {
    const { serving, send } = this.#options;
    const others = serving().filter((worker) => worker !== asker);
    const number = ++this.#calls;
    // A worker that ends in the meantime does not answer.
    const cancelTimer = systemClock.timer(ANSWER_MS, () => answer([], true));
    const answer = (found: readonly (FoundKey | null)[], isLast: boolean): void => {
      if (isLast) {
        cancelTimer();
        this.#open.delete(number);
      }
      send(asker, { type: "foundKeys", call, found, isLast });
    };
    if (others.length === 0) return answer([], true);
    this.#open.set(number, { answer, left: others.length });
    for (const worker of others) send(worker, { type: "findKeys", call: number, digests });
  }
}
