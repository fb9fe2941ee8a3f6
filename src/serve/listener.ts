/**
 * Types and functions that the listeners of the three runtimes share.
 *
 * @module
 */
import { type AnyBody, type ByteSource, push, SMALL_BODY_BYTES } from "../http/message.ts";
import { systemClock } from "../exchange/clock.ts";
import { fromReadableStream, type Handler } from "../http/web.ts";

/**
 * The longest time for the header of a request, and for the preceding TLS handshake. Milliseconds.
 */
export const HEADERS_MS = 10_000;
/** The longest time that a caller can leave its answer unread, if not configured. Milliseconds. */
export const WRITE_STALL_MS = 120_000;
/** The longest time that the rest of a refused body is read and discarded. Milliseconds. */
const DISCARD_MS = 10_000;
/**
 * The longest silence of a caller while the rest of its body is discarded. After it, the caller has
 * seen the answer, or never will. Milliseconds.
 */
const DISCARD_QUIET_MS = 2_000;

/** A certificate and its private key, as PEM text. */
export interface TlsIdentity {
  readonly cert: string;
  readonly key: string;
}

/** One address to listen on. */
export interface ListenOptions {
  readonly hostname: string;
  /** The port; 0 for any free port. */
  readonly port: number;
  /** Certificate and key for HTTPS. Default: plain HTTP. */
  readonly tls?: TlsIdentity | undefined;
  /**
   * The gateway's own deadline for a caller's body. The listener's deadline must be later.
   * Milliseconds.
   */
  readonly bodyTimeMs: number;
  /**
   * The longest time that a caller can leave its answer unread. Default: {@link WRITE_STALL_MS}.
   * Milliseconds.
   */
  readonly writeStallMs?: number | undefined;
  /**
   * The longest time for a header and a TLS handshake. Default: {@link HEADERS_MS}. Milliseconds.
   */
  readonly headersMs?: number | undefined;
  /** True when other processes listen on the same port. */
  readonly isShared?: boolean | undefined;
}

/** An open listener. */
export interface Listener {
  /** The address that it listens on, such as `http://127.0.0.1:8787`. */
  readonly url: string;
  /** Stops accepting and closes idle connections. Resolves when the open ones are closed. */
  stop(): Promise<void>;
  /**
   * Changes the deadlines for bodies and for unread answers, and the certificate for new
   * connections.
   *
   * @param options The new options, for the same address
   * @returns True if all of them were applied. If not, the listener must be opened again
   */
  adjust?(options: ListenOptions): boolean;
  /** Closes idle connections, if stopping alone leaves them open. */
  closeIdle?(): void;
  /** Closes all connections at once. */
  kill(): void;
}

/** Opens a listener. Each runtime has its own function of this type. */
export type Serve = (handler: Handler, options: ListenOptions) => Promise<Listener>;

/** Formats the address of a listener on the given port, such as `https://127.0.0.1:8788`. */
export function toListenerUrl({ hostname, tls }: ListenOptions, port: number): string {
  const scheme = tls === undefined ? "http" : "https";
  const host = hostname.includes(":") ? `[${hostname}]` : hostname;
  return `${scheme}://${host}:${port}`;
}

/**
 * Reads the rest of a body and discards it. Never rejects.
 *
 * @param maxMs The longest time to read, milliseconds. Ends earlier if nothing arrives
 * @returns True if the body ended
 */
export function discard(body: AnyBody, maxMs: number = DISCARD_MS): Promise<boolean> {
  return new Promise((resolve) => {
    let isOver = false;
    let isQuiet = false;
    let leftMs = maxMs;
    let cancelTimer = (): void => {};
    const end = (isComplete: boolean): void => {
      isOver = true;
      cancelTimer();
      resolve(isComplete);
    };
    const watch = (): void => {
      if (isQuiet || leftMs <= 0) return end(false);
      isQuiet = true;
      const stepMs = Math.min(leftMs, DISCARD_QUIET_MS);
      leftMs -= stepMs;
      cancelTimer = systemClock.timer(stepMs, watch);
    };
    const write = (): boolean => {
      isQuiet = false;
      return !isOver;
    };
    watch();
    push(body, { write, end: () => end(true), fail: () => end(true) }); // broken: the caller left
  });
}

/**
 * Returns the unread part of a web request's body.
 *
 * @param body Its body, as passed to the handler
 * @returns The rest, possibly empty; `null` if there certainly is none
 */
export function bodyLeft(request: Request, body: ByteSource | null): ByteSource | null {
  if (body?.isWhole !== true) return body;
  return request.bodyUsed || request.body === null ? null : fromReadableStream(request.body);
}

/**
 * Delays the end of an answer to a caller that is still sending. The answer's bytes are sent at
 * once. The answer, and with it the connection, ends only after the rest of the caller's body was
 * read and discarded. A connection that is closed with unread bytes is reset, and the caller could
 * then miss the answer.
 *
 * @param rest The unread part of the caller's body
 */
export function endLate(answer: string | Uint8Array, rest: AnyBody): ByteSource {
  let isSent = false;
  return {
    async read() {
      if (isSent) return void await discard(rest);
      isSent = true;
      return typeof answer === "string" ? new TextEncoder().encode(answer) : answer;
    },
    cancel() {},
  };
}

/**
 * True if a body in memory is sent in pieces. A single long write would look like a stalled one
 * even while it progresses.
 */
export function isLarge(body: string | Uint8Array): boolean {
  return body.length > SMALL_BODY_BYTES;
}

/** Divides a body into pieces for a slow caller. */
export function inPieces(body: string | Uint8Array): ByteSource {
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  let at = 0;
  return {
    read() {
      const piece = bytes.subarray(at, at += SMALL_BODY_BYTES);
      return Promise.resolve(piece.length === 0 ? undefined : piece);
    },
    cancel() {},
  };
}
