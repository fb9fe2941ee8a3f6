/**
 * Questions that the supervisor asks all of its workers.
 *
 * @module
 */

/** The longest time to wait for the answers. Milliseconds. */
const POLL_MS = 1000;

/** Collects the answers of several workers to the same question. */
export class Poll<Answer> {
  readonly #open = new Map<number, (answer: Answer) => void>();
  #calls = 0;

  /**
   * Asks workers, and waits for their answers. Workers that do not answer in time are omitted.
   *
   * @param ask Asks one of them, with the number of the call
   */
  async ask<Worker>(
    workers: readonly Worker[],
    ask: (worker: Worker, call: number) => void,
  ): Promise<readonly Answer[]> {
    const answers: Answer[] = [];
    if (workers.length === 0) return answers;
    const call = ++this.#calls;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, POLL_MS);
      this.#open.set(call, (answer) => {
        if (answers.push(answer) < workers.length) return;
        clearTimeout(timer);
        resolve();
      });
      for (const worker of workers) ask(worker, call);
    });
    this.#open.delete(call);
    return answers;
  }

  /** Handles a worker's answer to a call. */
  answered(call: number, answer: Answer): void {
    this.#open.get(call)?.(answer);
  }
}
