/**
 * Changes that are made whole or not at all: everything that can fail is done beforehand.
 *
 * @module
 */

/** A change that is prepared. One of both is called, once. */
export interface Change {
  /** Makes it. Does not fail. */
  apply(): void;
  /** Takes back what was prepared. */
  abandon(): Promise<void>;
}

/**
 * Prepares several changes as one. When one can't be made, those before it are abandoned.
 *
 * @param steps Each prepares one, in this order, in which they are then made too
 * @returns All of them
 */
export async function prepareAll(...steps: readonly (() => Promise<Change>)[]): Promise<Change> {
  const changes: Change[] = [];
  const abandon = async () => {
    for (const change of changes.reverse()) await change.abandon();
  };
  for (const step of steps) {
    try {
      changes.push(await step());
    } catch (error) {
      await abandon();
      throw error;
    }
  }
  return {
    apply() {
      for (const change of changes) change.apply();
    },
    abandon,
  };
}
