/**
 * Calls of a worker whose usage is stated later. The supervisor stores them, because another worker
 * can receive the later call.
 *
 * @module
 */
import { systemClock } from "../../../exchange/clock.ts";
import type { AwaitedCall } from "../../../steps/awaited_call.ts";
import type { AwaitedCalls, AwaitedName } from "../../../usage/awaited_calls.ts";
import type { AwaitedMessage, TakenMessage } from "../messages.ts";

/** The longest wait for a reply. Afterwards the call counts as unknown. Milliseconds. */
const REPLY_MS = 5000;

/** Awaited calls in the supervisor, from the view of a worker. */
export class AwaitedCallsClient implements AwaitedCalls<AwaitedCall> {
  readonly #send: (message: AwaitedMessage) => void;
  readonly #questions = new Map<number, (awaited: AwaitedCall | undefined) => void>();
  #lastQuestion = 0;

  constructor(send: (message: AwaitedMessage) => void) {
    this.#send = send;
  }

  put(name: AwaitedName, awaited: AwaitedCall): void {
    this.#send({ type: "putAwaited", name, awaited });
  }

  take(name: AwaitedName): Promise<AwaitedCall | undefined> {
    const question = ++this.#lastQuestion;
    return new Promise((resolve) => {
      const cancelTimer = systemClock.timer(
        REPLY_MS,
        () => this.taken({ question, awaited: null }),
        {
          isBackground: true,
        },
      );
      this.#questions.set(question, (awaited) => {
        cancelTimer();
        resolve(awaited);
      });
      this.#send({ type: "takeAwaited", name, question });
    });
  }

  /** Handles a reply. */
  taken({ question, awaited }: Pick<TakenMessage, "question" | "awaited">): void {
    this.#questions.get(question)?.(awaited ?? undefined);
    this.#questions.delete(question);
  }
}
