/**
 * Bodies that arrive in a Node stream.
 *
 * @module
 */
import type { IncomingMessage } from "node:http";
import type { ServerHttp2Stream } from "node:http2";
import type { ByteSink, PushedBody } from "../http/message.ts";

/** The body of a request or of an answer that arrives in a Node stream. */
export class IncomingBody implements PushedBody {
  readonly #stream: IncomingMessage | ServerHttp2Stream;
  #isWatched = false;
  /** Receiver of the body; `undefined` before there is one, and after the end. */
  #sink: ByteSink | undefined;

  /** @param stream This object must be its only reader */
  constructor(stream: IncomingMessage | ServerHttp2Stream) {
    this.#stream = stream;
  }

  /**
   * Pushes the remaining body. Can be called again: the former receiver then receives nothing more.
   */
  pushTo(sink: ByteSink): () => void {
    const stream = this.#stream;
    this.#sink = sink;
    if (!this.#isWatched) this.#watch();
    if (stream.destroyed || stream.readableEnded) this.#end();
    else stream.resume();
    return () => void stream.resume();
  }

  cancel(): void {
    this.#sink = undefined;
    this.#stream.on("error", () => {}); // destroying can report an error that nothing else handles
    this.#stream.destroy();
  }

  /**
   * Adds the listeners when the body is read. Not earlier: the server never discards an unread body
   * that has listeners.
   */
  #watch(): void {
    const stream = this.#stream;
    this.#isWatched = true;
    stream.on("data", (chunk) => this.#sink?.write(chunk) === false && stream.pause());
    stream.on("end", () => this.#end());
    stream.on("error", (error) => this.#end(error));
    stream.on("close", () => this.#end());
  }

  get #isComplete(): boolean {
    const stream = this.#stream;
    if ("complete" in stream) return stream.complete;
    return stream.readableEnded && !stream.aborted; // an HTTP/2 stream also ends when it is reset
  }

  #end(
    error: Error | undefined = this.#isComplete
      ? undefined
      : new Error("The connection closed early"),
  ): void {
    const sink = this.#sink;
    this.#sink = undefined;
    if (error === undefined) sink?.end();
    else sink?.fail(error);
  }
}
