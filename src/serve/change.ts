/**
 * Changes that are made as a whole or not at all: everything that can fail is done beforehand.
 *
 * @module
 */

/** A change that is prepared. Exactly one of its methods is called, once. */
export interface Change {
  /** Makes the change. Never fails. */
  apply(): void;
  /** Discards the change and closes what was opened for it. */
  abandon(): Promise<void>;
}

/**
 * Prepares several changes as one. When one can't be made, those before it are abandoned.
 *
 * @param steps Functions that each prepare one change; the changes are prepared and made in this
 * order
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
