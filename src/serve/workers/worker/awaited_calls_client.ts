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

/** The longest wait for an answer. Afterwards the call counts as unknown. Milliseconds. */
const ANSWER_MS = 5000;

/** Awaited calls in the supervisor, from the view of a worker. */
export class AwaitedCallsClient implements AwaitedCalls<AwaitedCall> {
  readonly #send: (message: AwaitedMessage) => void;
  readonly #questions = new Map<number, (awaited: AwaitedCall | undefined) => void>();
  #calls = 0;

  constructor(send: (message: AwaitedMessage) => void) {
    this.#send = send;
  }

  put(name: AwaitedName, awaited: AwaitedCall): void {
    this.#send({ type: "putAwaited", name, awaited });
  }

  take(name: AwaitedName): Promise<AwaitedCall | undefined> {
    const call = ++this.#calls;
    return new Promise((resolve) => {
      const cancelTimer = systemClock.timer(ANSWER_MS, () => this.taken({ call, awaited: null }), {
        isBackground: true,
      });
      this.#questions.set(call, (awaited) => {
        cancelTimer();
        resolve(awaited);
      });
      this.#send({ type: "takeAwaited", name, call });
    });
  }

  /** Handles an answer. */
  taken({ call, awaited }: Pick<TakenMessage, "call" | "awaited">): void {
    this.#questions.get(call)?.(awaited ?? undefined);
    this.#questions.delete(call);
  }
}
