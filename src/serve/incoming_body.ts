/**
 * Bodies of `node:http`: those of incoming requests, and of answers over the loopback.
 *
 * @module
 */
import type { IncomingMessage } from "node:http";
import type { ByteSource } from "../http/message.ts";

/**
 * Wraps a Node stream as a {@link ByteSource}. The stream is paused, so that a reader that stops also stops the sender.
 *
 * @param stream A request's or an answer's body
 * @returns The source
 */
export function fromIncomingMessage(stream: IncomingMessage): ByteSource {
  let isWatched = false;
  let isOver = false;
  let failure: Error | undefined;
  let wake = (): void => {};
  const end = (error?: Error | null) => {
    isOver = true;
    failure ??= error ?? undefined;
    wake();
  };
  const onClose = () => end(stream.complete ? undefined : new Error("The connection closed before the end"));
  /** Adds the listeners, at the first read only: the server never discards an unread body that has listeners. */
  const watch = () => {
    isWatched = true;
    stream.on("readable", () => wake());
    stream.on("end", () => end());
    stream.on("error", end);
    stream.on("close", onClose);
    if (stream.destroyed) onClose();
  };
  return {
    async read() {
      if (!isWatched) watch();
      while (true) {
        const chunk: Uint8Array | null = isOver ? null : stream.read();
        if (chunk !== null) return chunk;
        if (failure !== undefined) throw failure;
        if (isOver) return undefined;
        await new Promise<void>((resolve) => wake = resolve);
      }
    },
    cancel() {
      isOver = true;
      stream.on("error", () => {}); // destroying may report what nobody waits for
      stream.destroy();
      wake();
    },
  };
}
