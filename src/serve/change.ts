/**
 * Changes that are applied completely or not at all: every step that can fail is done in advance.
 *
 * @module
 */

/** A prepared change. Exactly one of its methods is called, once. */
export interface Change {
  /** Applies the change. Never fails. */
  apply(): void;
  /** Discards the change and closes the resources opened for it. */
  abandon(): Promise<void>;
}

/**
 * Prepares several changes as one. If one fails, the ones before it are abandoned.
 *
 * @param steps Functions that each prepare one change. They are prepared and applied in this order
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
