/**
 * Bodies that lie ready, for a runtime on which a stream in JavaScript costs as much as everything else about an answer.
 *
 * @module
 */
import { type ByteSource, joinChunks } from "../http/byte_source.ts";

/** Turns of the microtask queue in which what is there has come through the promises on its way. */
const TURNS = 16;

/**
 * Takes what of a body is there already, and waits for nothing: bytes that lie ready as a whole cost the runtimes far
 * less than a stream.
 *
 * @param source The body
 * @param maxBytes More than this is not taken ahead
 * @returns All of it, where that was there; else a source that begins with what was taken
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
