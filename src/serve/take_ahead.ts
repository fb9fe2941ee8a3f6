/**
 * Reading ahead of bodies, for a runtime on which a stream in JavaScript costs as much as the rest of an answer.
 *
 * @module
 */
import type { ByteSource } from "../http/message.ts";
import { joinChunks } from "../http/read_all.ts";

/** The number of microtask turns within which available bytes arrive through the promises on their way. */
const TURNS = 16;

/**
 * Reads the part of a body that is available already, without waiting for more: the runtimes send a whole body at far
 * less cost than a stream.
 *
 * @param source The body
 * @param maxBytes The size at which reading ahead stops
 * @returns The whole body, where all of it was available; else a source that begins with what was read
 */
export async function takeAhead(source: ByteSource, maxBytes: number): Promise<Uint8Array | ByteSource> {
  const taken: Uint8Array[] = [];
  let byteLength = 0;
  let next: Promise<Uint8Array | undefined> | undefined;
  while (byteLength <= maxBytes) {
    next = source.read();
    let answer: { chunk: Uint8Array | undefined } | undefined;
    next.then((chunk) => answer = { chunk }, () => {});
    for (let turn = 0; turn < TURNS && answer === undefined; turn++) await undefined;
    if (answer === undefined) break; // still to come, or broken: whoever reads on learns it
    if (answer.chunk === undefined) return joinChunks(taken);
    taken.push(answer.chunk);
    byteLength += answer.chunk.byteLength;
    next = undefined;
  }
  return {
    read() {
      const first = taken.shift();
      if (first !== undefined) return Promise.resolve(first);
      const pending = next ?? source.read();
      next = undefined;
      return pending;
    },
    cancel: (reason) => source.cancel(reason),
    set onBroken(act: () => void) {
      source.onBroken = act;
    },
  };
}
