/**
 * Code that all commands share.
 *
 * @module
 */
import process from "node:process";

/** The version. `package.json` and `deno.json` have the same one. */
export const VERSION = "0.2.0";

/** A mistake of the user: one line that says what to do. */
export class CommandLineError extends Error {
  override readonly name = "CommandLineError";
  /**
   * The command, or its first word, whose help explains the correct use. Default: the running
   * command.
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
 * Writes text to an output. A failed write (a full disk, a reader that has exited) does not throw:
 * the stream emits an `error` event. Node's streams do so themselves, but Deno's streams throw.
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
 * Prints a text that can be larger than memory: part by part, waiting if its reader is slow. Ends
 * early if its reader has exited.
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
