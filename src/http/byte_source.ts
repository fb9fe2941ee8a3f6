/**
 * Bodies, both ways, as the gateway moves them: pulled one chunk at a time, so that a reader that stops also stops
 * the peer that sends. A Node adapter can write them without a web stream in between.
 *
 * @module
 */

/** A body that is pulled. One `read` at a time. */
export interface ByteSource {
  /** True if the first `read` brings all of it. */
  readonly isWhole?: boolean;
  /**
   * Returns the same body in pieces, where it would come whole: for a reader that counts bytes as they arrive. To be
   * called before the first `read`, and read instead.
   *
   * @returns The source; `null` where there is none
   */
  inPieces?(): ByteSource | null;
  /**
   * Waits for more.
   *
   * @returns The next bytes (possibly none, but rarely), or `undefined` at the end
   * @throws Whatever broke the body
   */
  read(): Promise<Uint8Array | undefined>;
  /**
   * Gives the rest up and frees what is behind it. Never throws; safe to call again.
   *
   * @param reason Why
   */
  cancel(reason?: unknown): void;
  /**
   * Ends the wait for the first bytes by bytes without a meaning, if the body's format has any: for listeners that send
   * the headers only together with the first bytes.
   */
  announce?(): void;
  /** Callback of the writer of the body: called when the body must break off although nobody reads it. */
  onBroken?: () => void;
}

/**
 * Converts a web stream to a {@link ByteSource}. The stream is locked at the first `read` or `cancel`.
 *
 * @param stream For example `request.body` or `response.body`
 * @returns The source
 */
export function fromReadableStream(stream: ReadableStream<Uint8Array>): ByteSource {
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  return {
    async read() {
      reader ??= stream.getReader();
      const { done, value } = await reader.read();
      return done ? undefined : value;
    },
    cancel(reason) {
      // A cancelled body may reject with the error that broke it; nobody is left to hear of it.
      (reader ?? stream).cancel(reason).catch(() => {});
    },
  };
}

/** An announced body of at most this size is taken in one piece, unless a listener says otherwise. Bytes. */
const SMALL_BYTES = 65536;

/**
 * Returns the body of a web request.
 *
 * @param request The request
 * @param wholeBytes An announced body of at most this size is taken in one piece
 * @returns The source; `null` where there is no body
 */
export function fromRequest(request: Request, wholeBytes: number = SMALL_BYTES): ByteSource | null {
  const length = Number(request.headers.get("content-length") ?? NaN);
  const inPieces = () => request.body && fromReadableStream(request.body);
  // A stream costs the runtimes more than everything else about a small body.
  if (!(length > 0 && length <= wholeBytes)) return inPieces();
  let isRead = false;
  return {
    isWhole: true,
    inPieces,
    read() {
      if (isRead) return Promise.resolve(undefined);
      isRead = true;
      return request.arrayBuffer().then((bytes) => new Uint8Array(bytes)); // `bytes()` is missing, or broken, in some frameworks
    },
    cancel() {},
  };
}

/**
 * Converts a {@link ByteSource} to a web stream, for a `Response`. Nothing is read ahead.
 *
 * @param source The source
 * @returns A stream that pulls from it and cancels it
 */
export function toReadableStream(source: ByteSource): ReadableStream<Uint8Array> {
  let isOpen = true;
  return new ReadableStream<Uint8Array>({
    start(controller) {
      source.onBroken = () => {
        if (isOpen) controller.error(new Error("The body broke off"));
        isOpen = false;
      };
    },
    async pull(controller) {
      try {
        const chunk = await source.read();
        // After a cancel the pending read still resolves, and close() on a cancelled stream throws.
        if (!isOpen) return;
        if (chunk !== undefined) return controller.enqueue(chunk);
        isOpen = false;
        controller.close();
      } catch (error) {
        if (isOpen) controller.error(error);
        isOpen = false;
      }
    },
    cancel(reason) {
      isOpen = false;
      source.cancel(reason);
    },
  }, { highWaterMark: 0 });
}

/**
 * Joins pieces into one.
 *
 * @param chunks In order
 * @returns Their bytes; a single piece as it is
 */
export function joinChunks(chunks: readonly Uint8Array[]): Uint8Array {
  const [first] = chunks;
  if (chunks.length === 1 && first !== undefined) return first;
  const bytes = new Uint8Array(chunks.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let offset = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return bytes;
}
