/**
 * Counts by name.
 *
 * @module
 */

/** Adds to the count of a name, which is 0 at first. */
export function addCount<Name>(counts: Map<Name, number>, name: Name, more = 1): void {
  counts.set(name, (counts.get(name) ?? 0) + more);
}
