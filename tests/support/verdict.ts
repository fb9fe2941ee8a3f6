/**
 * The results of a client library for a stream: the events that it yields, and the error that it
 * throws.
 */

/** A verdict on one stream. */
export interface Verdict {
  readonly events: unknown[];
  /** The error in a form that can be compared; `undefined` for success. */
  readonly error: Record<string, unknown> | undefined;
}

/**
 * Reads a stream to its end. @param open Makes the call @param read Its events; the stream itself
 * if left out
 */
export async function verdictOf(open: () => PromiseLike<AsyncIterable<unknown>>): Promise<Verdict> {
  const events: unknown[] = [];
  try {
    for await (const event of await open()) events.push(event);
    return { events, error: undefined };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const { message, status, code, param, type, errorCode } = error as
      & Error
      & Record<string, unknown>;
    return {
      events,
      error: { class: error.constructor.name, message, status, code, param, type, errorCode },
    };
  }
}

/**
 * Lengths at which a stream of this length is cut: spread over all of it, and each of the last
 * ones.
 */
export function cutsOf(length: number): readonly number[] {
  return Array.from({ length }, (_, at) => at).filter((at) => at % 97 === 41 || at >= length - 6);
}
