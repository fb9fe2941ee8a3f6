/**
 * Messages about gateway keys between workers, through their supervisor. They contain digests and
 * records of keys, never a key.
 *
 * @module
 */

/** A key in a message. */
export interface FoundKey {
  /** Its record. */
  readonly record: string;
  readonly ageMs: number;
}

/**
 * A question for the keys with some digests, from a worker to its supervisor and from the
 * supervisor to the other workers; or a reply, in the order of the digests. Several workers
 * answer a question: `isLast` marks the end.
 */
export type KeyMessage =
  | { readonly type: "findKeys"; readonly question: number; readonly digests: readonly string[] }
  | {
    readonly type: "foundKeys";
    readonly question: number;
    readonly found: readonly (FoundKey | null)[];
    readonly isLast: boolean;
  };

/** The longest wait for a reply. Milliseconds. */
export const REPLY_MS = 500;
