/**
 * Standard output as the destination of a log.
 *
 * @module
 */
import { write } from "node:fs";
import { Buffer } from "node:buffer";
import type { WriteLog } from "../observe/access_log.ts";

/** The part of Deno's types that is used here. */
interface DenoOutput {
  readonly stdout: { write(bytes: Uint8Array): Promise<number> };
}

const STDOUT = 1;
/** Pause before a full pipe is written to again. Milliseconds. */
const FULL_MS = 20;

function toDenoOutput({ stdout }: DenoOutput): WriteLog {
  const writeAll = async (text: string) => {
    for (let bytes: Uint8Array = Buffer.from(text); bytes.length > 0;) {
      bytes = bytes.subarray(await stdout.write(bytes));
    }
  };
  return (text, done) => void writeAll(text).then(() => done(null), done);
}

/**
 * Writes to standard output without ever blocking the process: `process.stdout` is synchronous for pipes on Linux, and
 * would wait for a reader that has stopped reading.
 *
 * @param pause Calls back after the given number of milliseconds
 * @returns A function that writes a whole text
 */
export function toStandardOutput(pause: (ms: number, then: () => void) => void): WriteLog {
  // Deno's node:fs waits for the reader too; its own output does not.
  if ("Deno" in globalThis) return toDenoOutput((globalThis as unknown as { Deno: DenoOutput }).Deno);
  return (text, done) => {
    const bytes = Buffer.from(text);
    const from = (start: number): void =>
      write(STDOUT, bytes, start, bytes.length - start, null, (error, written) => {
        if (error?.code === "EAGAIN") return pause(FULL_MS, () => from(start));
        if (error !== null) return done(error);
        if (start + written < bytes.length) return from(start + written);
        done(null);
      });
    from(0);
  };
}
