/**
 * Parts that all commands share.
 *
 * @module
 */
import process from "node:process";

/** The version that `package.json` and `deno.json` state too. */
export const VERSION = "0.2.0";

/** A mistake of the person at the terminal: one line that says what to do. */
export class CommandLineError extends Error {
  override readonly name = "CommandLineError";
  /**
   * The command, or its first word, whose help shows how it is meant; `undefined` where the one
   * that runs is meant.
   */
  readonly topic: string | undefined;

  /**
   * @param message Without a full stop
   * @param topic The command whose help to name
   */
  constructor(message: string, topic?: string) {
    super(message);
    this.topic = topic;
  }
}

/**
 * Writes text to an output. A write that fails (a full disk, a reader that is gone) does not throw:
 * the stream emits an `error` event. Node's streams do so by themselves; those of Deno throw.
 *
 * @param text Lines with their ends
 */
export function print(text: string, stream: NodeJS.WriteStream = process.stdout): void {
  try {
    stream.write(text);
  } catch (error) {
    stream.emit("error", error);
  }
}

/** Writes one line to standard error. @param text Without the program's name and without its end */
export function report(text: string): void {
  print(`sallyport: ${text}\n`, process.stderr);
}

/**
 * Prints a text that can be larger than memory: part by part, waiting where its reader is slow. It
 * ends early where its reader is gone.
 */
export async function printParts(parts: AsyncIterable<string>): Promise<void> {
  const { stdout } = process;
  let isGone = false;
  stdout.once("error", () => isGone = true);
  for await (const part of parts) {
    print(part);
    if (stdout.writableNeedDrain) {
      await new Promise<void>((resolve) => {
        for (const event of ["drain", "error", "close"]) stdout.once(event, () => resolve());
      });
    }
    if (isGone) return; // its reader has closed its end, as `| head` does
  }
}
