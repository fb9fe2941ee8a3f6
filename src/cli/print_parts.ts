/**
 * Output that can be larger than memory.
 *
 * @module
 */
import process from "node:process";
import { print } from "./command.ts";

/**
 * Prints a text part by part, and waits where its reader is slow. It ends early where its reader is
 * gone.
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
