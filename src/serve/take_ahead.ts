/**
 * Reading ahead of bodies, for a runtime on which a stream in JavaScript costs as much as the rest of an answer.
 *
 * @module
 */
import type { ByteSource } from "../http/message.ts";
import { joinChunks } from "../http/read_all.ts";

/**
 * Reads the part of a body that is there already, without waiting for more: the runtimes send a whole body at far less
 * cost than a stream.
 *
 * @param source The body
 * @param maxBytes The size at which reading ahead stops
 * @returns The whole body, where all of it was there; else a source that begins with what was read
 */
export async function takeAhead(source: ByteSource, maxBytes: number): Promise<Uint8Array | ByteSource> {
  const taken: Uint8Array[] = [];
  let byteLength = 0;
  let failed: Promise<never> | undefined;
  while (source.isReady === true && byteLength <= maxBytes) {
    try {
      const chunk = await source.read();
      if (chunk === undefined) return joinChunks(taken);
      taken.push(chunk);
      byteLength += chunk.byteLength;
    } catch (error) {
      failed = Promise.reject(error);
      failed.catch(() => {}); // whoever reads on learns it
      break;
    }
  }
  return {
    read() {
      const first = taken.shift();
      return first === undefined ? failed ?? source.read() : Promise.resolve(first);
    },
    cancel: (reason) => source.cancel(reason),
    set onBroken(act: () => void) {
      source.onBroken = act;
    },
  };
}
