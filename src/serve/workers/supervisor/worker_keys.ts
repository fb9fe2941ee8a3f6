/**
 * The supervisor's part of the exchange of keys between workers: it passes a question to all other
 * workers, and returns their replies.
 *
 * @module
 */
import { systemClock } from "../../../exchange/clock.ts";
import { type FoundKey, type KeyMessage, REPLY_MS } from "../key_messages.ts";

/** Parts of {@link WorkerKeys}. */
export interface WorkerKeysOptions<Worker> {
  /** The serving workers. */
  readonly serving: () => readonly Worker[];
  readonly send: (worker: Worker, message: KeyMessage) => void;
}

/** A question that waits for the replies of workers. */
interface PendingQuestion {
  readonly reply: (found: readonly (FoundKey | null)[], isLast: boolean) => void;
  /** Workers that have not answered. */
  left: number;
}

/** Finds keys at workers for other workers. */
export class WorkerKeys<Worker> {
  readonly #options: WorkerKeysOptions<Worker>;
  readonly #pending = new Map<number, PendingQuestion>();
  #lastQuestion = 0;

  constructor(options: WorkerKeysOptions<Worker>) {
    this.#options = options;
  }

  /** Handles a message of a worker. */
  handle(worker: Worker, message: KeyMessage): void {
    if (message.type === "findKeys") return this.#ask(worker, message);
    const { question, found } = message;
    const pending = this.#pending.get(question);
    if (pending === undefined) return;
    pending.left--;
    const isLast = pending.left === 0;
    if (isLast || found.some((key) => key !== null)) pending.reply(found, isLast);
  }

  #ask(asker: Worker, { question, digests }: KeyMessage & { type: "findKeys" }): void {
    const { serving, send } = this.#options;
    const others = serving().filter((worker) => worker !== asker);
    const number = ++this.#lastQuestion;
    // A worker that ends in the meantime does not answer.
    const cancelTimer = systemClock.timer(REPLY_MS, () => reply([], true));
    const reply = (found: readonly (FoundKey | null)[], isLast: boolean): void => {
      if (isLast) {
        cancelTimer();
        this.#pending.delete(number);
      }
      send(asker, { type: "foundKeys", question, found, isLast });
    };
    if (others.length === 0) return reply([], true);
    this.#pending.set(number, { reply, left: others.length });
    for (const worker of others) send(worker, { type: "findKeys", question: number, digests });
  }
}
