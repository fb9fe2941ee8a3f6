/**
 * Bodies as direct streams, to which bytes are written without a queue: an event costs 0.6 of its
 * cost in a pulling stream (500 streams of 20 events a second, Bun 1.4.5; scripts/bench/results.json).
 *
 * @module
 */
import { type AnyBody, type ByteSink, push, SMALL_BODY_BYTES } from "../http/message.ts";
import { joinChunks } from "../http/read_all.ts";

/** Controller of a direct stream (https://bun.com/docs/runtime/streams#direct-readablestream). */
interface DirectController {
  /** Returns a promise if the caller reads too slowly. */
  write(bytes: Uint8Array): number | Promise<number>;
  flush(): unknown;
  end(): unknown;
}

const ignore = (): void => {};

/**
 * A body that is pushed into a stream as soon as Bun reads it. This is also the stream's source, a
 * type that no type library has. It is one object, because a quiet stream keeps all of it in memory
 * (docs/reliability.md).
 */
class DirectBody implements ByteSink {
  readonly type = "direct";
  readonly #source: AnyBody;
  readonly #askForMore: () => void;
  readonly #onEnd: () => void;
  /** Bytes that arrived before Bun started to read. */
  #ahead: Uint8Array[] = [];
  #aheadBytes = 0;
  #controller: DirectController | undefined;
  #isOver = false;
  #failure: { readonly error: unknown } | undefined;
  #resolve: () => void = ignore;
  #reject: (error: unknown) => void = ignore;

  constructor(source: AnyBody, onEnd: () => void) {
    this.#source = source;
    this.#onEnd = onEnd;
    this.#askForMore = push(source, this);
  }

  /** The whole body, if it was available at once. */
  get whole(): Uint8Array | undefined {
    return this.#isOver && this.#failure === undefined ? joinChunks(this.#ahead) : undefined;
  }

  /**
   * Starts the stream. The answer is complete when this resolves, so it must reject if the body
   * broke off.
   */
  pull(controller: DirectController): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#begin(controller);
    });
  }

  cancel(reason: unknown): void {
    this.#isOver = true;
    this.#source.cancel(reason);
    this.#resolve();
  }

  write(bytes: Uint8Array): boolean {
    const controller = this.#controller;
    if (controller === undefined) {
      this.#ahead.push(bytes);
      this.#aheadBytes += bytes.byteLength;
      return this.#aheadBytes < SMALL_BODY_BYTES;
    }
    const written = controller.write(bytes);
    controller.flush();
    if (typeof written === "number") return true;
    written.then(this.#askForMore, this.#askForMore);
    return false;
  }

  end(): void {
    this.#isOver = true;
    if (this.#controller === undefined) return;
    this.#onEnd();
    this.#controller.end();
    this.#resolve();
  }

  fail(error: unknown): void {
    this.#isOver = true;
    this.#failure = { error };
    if (this.#controller !== undefined) this.#reject(error);
  }

  #begin(controller: DirectController): void {
    const ahead = this.#ahead;
    const isHeld = this.#aheadBytes >= SMALL_BODY_BYTES;
    this.#ahead = [];
    this.#controller = controller;
    const isRead = ahead.length === 0 || this.write(joinChunks(ahead));
    if (this.#failure !== undefined) this.fail(this.#failure.error);
    else if (this.#isOver) this.end();
    else if (isHeld && isRead) this.#askForMore();
  }
}

/**
 * Pushes a body.
 *
 * @param onEnd Called when a stream is complete
 * @returns Its bytes, if all of them are available, because Bun sends a whole body at far less
 * cost; else a stream
 */
export function toDirectBody(
  source: AnyBody,
  onEnd: () => void,
): Uint8Array | ReadableStream<Uint8Array> {
  const body = new DirectBody(source, onEnd);
  return body.whole ?? new ReadableStream(body as unknown as UnderlyingDefaultSource<Uint8Array>);
}
