/**
 * Parts that all commands share.
 *
 * @module
 */
import process from "node:process";

/** The version that `package.json` and `deno.json` state too. */
export const VERSION = "0.1.0";

/** A mistake of the person at the terminal: one line that says what to do. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** The options and operands of all commands. */
export interface CommandOptions {
  readonly config?: string | undefined;
  readonly once: boolean;
  readonly server?: string | undefined;
  readonly workers?: string | undefined;
  readonly log?: string | undefined;
  /** `keys`: the verb, and the id that it is about. `doctor`: the provider. `certificate`: the name of its files. */
  readonly operands?: readonly string[] | undefined;
  readonly name?: string | undefined;
  readonly providers?: string | undefined;
  readonly models?: string | undefined;
  readonly requests?: string | undefined;
  readonly tokens?: string | undefined;
  readonly concurrency?: string | undefined;
  readonly budget?: string | undefined;
  readonly mode?: string | undefined;
  readonly expires?: string | undefined;
  readonly metadata?: readonly string[] | undefined;
  readonly overlap?: string | undefined;
  readonly now?: boolean | undefined;
  readonly replace?: boolean | undefined;
  readonly limit?: string | undefined;
  readonly search?: string | undefined;
  readonly live?: boolean | undefined;
  readonly json?: boolean | undefined;
  readonly csv?: boolean | undefined;
  readonly by?: string | undefined;
  readonly last?: string | undefined;
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  readonly key?: string | undefined;
  readonly provider?: string | undefined;
  readonly model?: string | undefined;
  readonly "key-env"?: string | undefined;
  readonly hosts?: string | undefined;
  readonly force?: boolean | undefined;
}

/**
 * Writes text to an output. A write that fails (a full disk, a reader that is gone) does not throw: the stream emits an
 * `error` event. Node's streams do so by themselves; those of Deno throw.
 *
 * @param text Lines with their ends
 * @param stream Standard output if left out
 */
export function print(text: string, stream: NodeJS.WriteStream = process.stdout): void {
  try {
    stream.write(text);
  } catch (error) {
    stream.emit("error", error);
  }
}
