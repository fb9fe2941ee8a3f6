/**
 * Bodies that push, where a runtime asks for every piece, and bodies that are read, where it takes what comes.
 *
 * @module
 */
import type { ByteSink, ByteSource } from "./message.ts";

const ignore = (): void => {};

/**
 * Pushes a body into a sink; one that can only be read is read for it.
 *
 * @param source The body
 * @param sink Receives it
 * @returns A function that asks for more after a `write` that returned false
 */
export function push(source: ByteSource, sink: ByteSink): () => void {
  if (source.pushTo !== undefined) return source.pushTo(sink);
  let wake = ignore;
  source.onBroken = () => sink.fail(new Error("The body broke off"));
  const run = async () => {
    try {
      for (let chunk = await source.read(); chunk !== undefined; chunk = await source.read()) {
        if (!sink.write(chunk)) await new Promise<void>((resolve) => wake = resolve);
      }
      sink.end();
    } catch (error) {
      sink.fail(error);
    }
  };
  void run();
  return () => wake();
}

/** Keeps what is pushed until it is read: one piece, since it asks for more only when it is read again. */
class Reader implements ByteSink {
  readonly #onBroken: () => void;
  readonly #askForMore: () => void;
  readonly #chunks: Uint8Array[] = [];
  #isOver = false;
  #failure: { readonly error: unknown } | undefined;
  #wake: (() => void) | undefined;

  constructor(source: Required<Pick<ByteSource, "pushTo">>, onBroken: () => void) {
    this.#onBroken = onBroken;
    this.#askForMore = source.pushTo(this);
  }

  get isReady(): boolean {
    return this.#isOver || this.#chunks.length > 0;
  }

  async read(): Promise<Uint8Array | undefined> {
    if (!this.isReady) this.#askForMore();
    if (!this.isReady) await new Promise<void>((resolve) => this.#wake = resolve);
    const chunk = this.#chunks.shift();
    if (chunk === undefined && this.#failure !== undefined) throw this.#failure.error;
    return chunk;
  }

  write(bytes: Uint8Array): boolean {
    this.#chunks.push(bytes);
    this.wake();
    return false;
  }

  end(): void {
    this.#isOver = true;
    this.wake();
  }

  fail(error: unknown): void {
    this.#failure = { error };
    const isAwaited = this.#wake !== undefined;
    this.end();
    if (!isAwaited) this.#onBroken();
  }

  wake(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}

/** A body that pushes, and can be read as well. */
export abstract class PushedBody implements ByteSource {
  onBroken?: () => void;
  #reader: Reader | undefined;

  abstract pushTo(sink: ByteSink): () => void;
  abstract cancel(reason?: unknown): void;

  /** Returns the next bytes, or `undefined` at the end. */
  read(): Promise<Uint8Array | undefined> {
    this.#reader ??= new Reader(this, () => this.onBroken?.());
    return this.#reader.read();
  }

  /** Ends a read that waits, since nothing will be pushed any more. */
  protected endRead(): void {
    this.#reader?.end();
  }
}
