/**
 * HTTP messages in the form of the gateway, without web objects. Each listener converts to and from
 * its own form.
 *
 * @module
 */

/** Receiver of a body that is pushed. */
export interface ByteSink {
  /**
   * Receives bytes.
   *
   * @param bytes The next bytes. No other code writes to them
   * @returns False if no more must be pushed, not even the end, until it is requested
   */
  write(bytes: Uint8Array): boolean;
  /** Reports that the body is complete. */
  end(): void;
  /** Reports that the body broke off. @param error The reason */
  fail(error: unknown): void;
}

/** A body that pushes itself to its receiver. */
export interface PushedBody {
  /**
   * True if all of it is available, so that it is pushed at once. Left out if that is not known.
   */
  readonly isWhole?: boolean;
  /**
   * Pushes the body: the available bytes at once, the rest as it arrives.
   *
   * @param sink Receives it
   * @returns A function that requests more after a `write` that returned false. No effect after any
   * other `write`
   */
  pushTo(sink: ByteSink): () => void;
  /**
   * Drops the rest and frees its resources. No more bytes are pushed. Never throws. Safe to call
   * again.
   *
   * @param reason The reason
   */
  cancel(reason?: unknown): void;
  /**
   * Sends bytes without meaning before the first ones, if the body's format has such bytes. For
   * listeners that send the headers only together with the first bytes.
   */
  announce?(): void;
}

/** A body that is pulled: one `read` at a time. */
export interface ByteSource {
  /** True if the first `read` returns all of it. */
  readonly isWhole?: boolean;
  /**
   * Returns the same body in pieces if it would be returned whole, for a reader that counts bytes
   * as they arrive. Call it before the first `read`, and read its result instead.
   *
   * @returns The source; `null` if there is none
   */
  inPieces?(): ByteSource | null;
  /**
   * Waits for more.
   *
   * @returns The next bytes (possibly none, but rarely), or `undefined` at the end
   * @throws The error that broke the body
   */
  read(): Promise<Uint8Array | undefined>;
  /**
   * Drops the rest and frees its resources. Never throws. Safe to call again.
   *
   * @param reason The reason
   */
  cancel(reason?: unknown): void;
}

/**
 * Unpacks a body with a content encoding, only as fast as it is read. Reading rejects if the body
 * ends too early, or if other bytes follow it.
 *
 * @param coding One coding, lower case, such as `gzip`
 * @param body The packed body
 * @param mostBytes Set for a body in one piece that is known to be complete: the most bytes that
 * are wanted. Reading can reject with a `RangeError` if there are more
 * @returns The unpacked body; `undefined` for an unsupported coding
 */
export type Unpack = (
  coding: string,
  body: ByteSource,
  mostBytes?: number,
) => ByteSource | undefined;

/** A body, pushed or pulled. */
export type AnyBody = PushedBody | ByteSource;

/**
 * Pushes a body into a sink. A pulled body is read for it.
 *
 * @param source The body
 * @param sink Receives it
 * @returns A function that requests more after a `write` that returned false
 */
export function push(source: AnyBody, sink: ByteSink): () => void {
  return "pushTo" in source ? source.pushTo(sink) : pull(source, sink);
}

function pull(source: ByteSource, sink: ByteSink): () => void {
  if (source.isWhole) return pullWhole(source, sink);
  let wake = (): void => {};
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

/**
 * Reads once. Not an async function, because that cost 2 % of a plain call on Deno (2026-11-23, 4
 * starts in turns).
 */
function pullWhole(source: ByteSource, sink: ByteSink): () => void {
  let wake = (): void => {};
  const take = (bytes: Uint8Array | undefined) => {
    if (bytes === undefined || sink.write(bytes)) return sink.end();
    wake = () => {
      wake = () => {};
      sink.end();
    };
  };
  source.read().then(take).catch((error: unknown) => sink.fail(error));
  return () => wake();
}

/**
 * A request, with only the members that the gateway needs. `Request` and Node's `IncomingMessage`
 * are converted to it.
 */
export interface GatewayRequest {
  /** Method as sent, for example `POST`. */
  readonly method: string;
  /** Absolute URL, or the path with its query. Not read before the check of Host. */
  readonly url: string;
  /** Headers, with names in lower case. Repeated fields are joined with `", "`. */
  readonly headers: {
    get(name: string): string | null;
    forEach(act: (value: string, name: string) => void): void;
  };
  /** The body, unread. */
  readonly body: AnyBody | null;
  /** True once the caller has left; `undefined` if the check would be expensive. */
  readonly isGone?: boolean | undefined;
  /**
   * Aborted when the caller is gone. An abort after a complete answer is ignored. Not read in a
   * quick exchange, because making a signal costs the runtimes more than most other work of the
   * gateway.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Calls a function once the caller is gone. Used instead of `signal` if it costs less.
   *
   * @param act Called once, immediately if the caller is gone already
   * @returns Removes it
   */
  onGone?(act: () => void): () => void;
}

/**
 * Calls a function once the caller of a request is gone, if the request reports that.
 *
 * @param request The request
 * @param act Called once, also after a complete answer
 * @returns Removes it
 */
export function whenGone(request: GatewayRequest, act: () => void): () => void {
  if (request.onGone !== undefined) return request.onGone(act);
  const { signal } = request;
  if (signal?.aborted) act();
  signal?.addEventListener("abort", act);
  return () => signal?.removeEventListener("abort", act);
}

/** A response: a `Response` on fetch runtimes, written directly to the socket on Node. */
export interface GatewayResponse {
  /** HTTP status. */
  status: number;
  /** Headers, with names in lower case. */
  headers: Record<string, string>;
  /** Text, bytes, a body that is pushed or pulled, or nothing. */
  body: string | Uint8Array | AnyBody | null;
}

/** Methods of requests that an operation can have. */
export const METHODS: readonly string[] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/** Returns whether a status means success: any 2xx (RFC 9110 §15.3). */
export function isSuccess(status: number): boolean {
  return status >= 200 && status <= 299;
}

/** Returns whether a whole body is in memory, so that it does not have to be pulled. */
export function isWhole(body: GatewayResponse["body"]): body is string | Uint8Array | null {
  return body === null || typeof body === "string" || body instanceof Uint8Array;
}

/**
 * The size up to which a body is small. A small body is received or sent in one piece. If it is
 * unread, the server drains it, while a larger one closes its connection. Bytes.
 */
export const SMALL_BODY_BYTES = 65_536;

/**
 * Returns whether the connection of a request can be reused although its body was not read.
 *
 * @param request The request
 * @returns Whether there is no body, or a small one, which the server drains
 */
export function isDrainable({ body, headers }: GatewayRequest): boolean {
  return body === null || Number(headers.get("content-length") ?? Infinity) <= SMALL_BODY_BYTES;
}
