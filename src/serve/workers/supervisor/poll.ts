/**
 * Questions that the supervisor asks all of its workers.
 *
 * @module
 */

/** The longest time to wait for the replies. Milliseconds. */
const POLL_MS = 1000;

/** Collects the replies of several workers to the same question. */
export class Poll<Reply> {
  readonly #pending = new Map<number, (reply: Reply) => void>();
  #lastQuestion = 0;

  /**
   * Asks workers, and waits for their replies. Workers that do not answer in time are omitted.
   *
   * @param ask Asks one of them, with the number of the question
   */
  async ask<Worker>(
    workers: readonly Worker[],
    ask: (worker: Worker, question: number) => void,
  ): Promise<readonly Reply[]> {
    const replies: Reply[] = [];
    if (workers.length === 0) return replies;
    const question = ++this.#lastQuestion;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, POLL_MS);
      this.#pending.set(question, (reply) => {
        if (replies.push(reply) < workers.length) return;
        clearTimeout(timer);
        resolve();
      });
      for (const worker of workers) ask(worker, question);
    });
    this.#pending.delete(question);
    return replies;
  }

  /** Handles a worker's reply to a question. */
  receive(question: number, reply: Reply): void {
    this.#pending.get(question)?.(reply);
  }
}
