/**
 * Counts of durable exchanges at one gateway, for its metrics.
 *
 * @module
 */

/**
 * Cause to give a recording up: the answer is too large, the store fails, it was taken over, there
 * is no answer.
 */
export type GiveUpCause = "size" | "store" | "lost" | "refused";

/** The counts since the start. */
export class DurableCounts {
  /**
   * Callers that were attached: to an answer that was complete, to a call that ran, or by an
   * address. A reader by long-polls counts once.
   */
  readonly attached: Record<"replay" | "retry" | "resume", number> = {
    replay: 0,
    retry: 0,
    resume: 0,
  };
  /** Recordings that were given up while their exchange went on, by cause. */
  readonly givenUp: Record<Exclude<GiveUpCause, "refused">, number> = {
    size: 0,
    store: 0,
    lost: 0,
  };
  /** Calls that were made again, since the gateway of the first had died. */
  restarted = 0;

  /** Counts the end of a recording. @param cause Why it was given up; `undefined` if it was not */
  over(cause: GiveUpCause | undefined): void {
    if (cause !== undefined && cause !== "refused") this.givenUp[cause]++;
  }
}
