/**
 * What all commands share.
 *
 * @module
 */

/** The version that `package.json` and `deno.json` state too. */
export const VERSION = "0.1.0";

/** A mistake of the person at the terminal: one line that says what to do. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** What the options of all commands can say. */
export interface CommandOptions {
  readonly config?: string | undefined;
  readonly once: boolean;
  readonly server?: string | undefined;
}
