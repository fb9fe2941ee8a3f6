/**
 * Lines of files and of standard input, read as they arrive and in bounded memory.
 *
 * @module
 */
import { createReadStream } from "node:fs";
import process from "node:process";
import { CommandLineError } from "../command.ts";

/** The longest line. A longer one is cut, and is then not a line of the log. Characters. */
const MAX_LINE = 1_000_000;

async function* readFrom(
  input: AsyncIterable<Uint8Array | string>,
): AsyncGenerator<readonly string[]> {
  const decoder = new TextDecoder();
  let rest = "";
  let isCut = false;
  for await (const part of input) {
    const text = typeof part === "string" ? part : decoder.decode(part, { stream: true });
    const lines = (rest + text).split("\n");
    rest = lines.pop() as string; // a text has at least one line
    // The rest of a line that was already cut.
    if (isCut && lines.length > 0) lines.shift();
    if (lines.length > 0) isCut = false;
    if (rest.length > MAX_LINE) {
      if (!isCut) lines.push(rest.slice(0, MAX_LINE));
      isCut = true;
      rest = "";
    }
    if (lines.length > 0) yield lines.map((line) => line.endsWith("\r") ? line.slice(0, -1) : line);
  }
  if (rest !== "" && !isCut) yield [rest];
}

/**
 * Yields lines without their ends, some at a time, as soon as they arrive. Invalid UTF-8 is
 * replaced.
 *
 * @param files Names of files, `-` for standard input. Without names, reads standard input
 * @throws {CommandLineError} If a file can't be read, or standard input is a terminal
 */
export async function* readLines(files: readonly string[]): AsyncGenerator<readonly string[]> {
  for (const file of files.length === 0 ? ["-"] : files) {
    if (file === "-" && process.stdin.isTTY) {
      throw new CommandLineError("nothing to read: name a file, or pipe the log into it");
    }
    try {
      yield* readFrom(file === "-" ? process.stdin : createReadStream(file));
    } catch (error) {
      const { code } = error as { code?: unknown };
      throw new CommandLineError(`cannot read ${file}: ${code ?? error}`);
    }
  }
}
