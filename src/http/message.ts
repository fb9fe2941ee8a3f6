/**
 * HTTP messages as the gateway looks at them, without web objects: each listener converts to and
 * from its own.
 *
 * @module
 */

/** Receiver of a body that is pushed. */
export interface ByteSink {
  /**
   * Takes bytes.
   *
   * @param bytes The next bytes; no other code writes to them
   * @returns False if nothing more should come, not even the end, until it asks for it
   */
  write(bytes: Uint8Array): boolean;
  /** Reports that the body is complete. */
  end(): void;
  /** Reports that the body broke off. @param error Why */
  fail(error: unknown): void;
}

/** A body that pushes itself to its receiver. */
export interface PushedBody {
  /** True if all of it is there, so that it is pushed at once. Left out where that is not known. */
  readonly isWhole?: boolean;
  /**
   * Pushes the body: at once what is there, the rest as it comes.
   *
   * @param sink Receives it
   * @returns A function that asks for more after a `write` that returned false; without effect
   * after any other
   */
  pushTo(sink: ByteSink): () => void;
  /**
   * Gives the rest up and frees what is behind it: nothing is pushed any more. Never throws; safe
   * to call again.
   *
   * @param reason Why
   */
  cancel(reason?: unknown): void;
  /**
   * Sends bytes without a meaning before the first ones, if the body's format has any: for
   * listeners that send the headers only together with the first bytes.
   */
  announce?(): void;
}

/** A body that is pulled: one `read` at a time. */
export interface ByteSource {
  /** True if the first `read` brings all of it. */
  readonly isWhole?: boolean;
  /**
   * Returns the same body in pieces, where it would come whole: for a reader that counts bytes as
   * they arrive. To be called before the first `read`, and read instead.
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
}

/** A body, pushed or pulled. */
export type AnyBody = PushedBody | ByteSource;

/**
 * Pushes a body into a sink; a pulled body is read for it.
 *
 * @param source The body
 * @param sink Receives it
 * @returns A function that asks for more after a `write` that returned false
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
 * Reads once. No async function: that took 2 % of a plain call on Deno (2026-11-23, 4 starts in
 * turns).
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
 * A request, as narrow as the gateway needs it. A `Request` converts to it, and so does Node's
 * `IncomingMessage`.
 */
export interface GatewayRequest {
  /** Method as sent, for example `POST`. */
  readonly method: string;
  /** Absolute URL, or the path with its query. Not looked at before the Host was checked. */
  readonly url: string;
  /** Headers, with names in lower case; a field that was given twice is joined with `", "`. */
  readonly headers: {
    get(name: string): string | null;
    forEach(act: (value: string, name: string) => void): void;
  };
  /** The body, unread. */
  readonly body: AnyBody | null;
  /** True once the caller has left; `undefined` where it would cost much to find out. */
  readonly isGone?: boolean | undefined;
  /**
   * Aborted when the caller is gone; an abort after a complete answer is ignored. Not asked for in
   * a quick exchange: to make a signal costs the runtimes more than most other work of the gateway.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Calls a function once the caller is gone: where that costs less than a `signal`, and instead of
   * it.
   *
   * @param act Called once, at once if the caller is gone already
   * @returns Removes it
   */
  onGone?(act: () => void): () => void;
}

/**
 * Calls a function once the caller of a request is gone, as far as the request tells.
 *
 * @param request The request
 * @param act Called once; also after a complete answer
 * @returns Removes it
 */
export function whenGone(request: GatewayRequest, act: () => void): () => void {
  if (request.onGone !== undefined) return request.onGone(act);
  const { signal } = request;
  if (signal?.aborted) act();
  signal?.addEventListener("abort", act);
  return () => signal?.removeEventListener("abort", act);
}

/** A response: a `Response` on fetch runtimes, written straight to the socket on Node. */
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

/** Returns whether a status says that the call succeeded: every 2xx does (RFC 9110 §15.3). */
export function isSuccess(status: number): boolean {
  return status >= 200 && status <= 299;
}

/** Returns whether a body is in memory as a whole and need not be pulled. */
export function isWhole(body: GatewayResponse["body"]): body is string | Uint8Array | null {
  return body === null || typeof body === "string" || body instanceof Uint8Array;
}

/**
 * The size up to which a body is small: it is received or sent in one piece, and drained by the
 * server where nobody reads it, since a larger one costs its connection. Bytes.
 */
export const SMALL_BODY_BYTES = 65_536;

/**
 * Tells whether the connection of a request can be used again although its body was not read.
 *
 * @param request The request
 * @returns Whether there is no body, or a small one, which the server drains
 */
export function isDrainable({ body, headers }: GatewayRequest): boolean {
  return body === null || Number(headers.get("content-length") ?? Infinity) <= SMALL_BODY_BYTES;
}
