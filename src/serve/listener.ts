/**
 * What the listeners of the three runtimes have in common.
 *
 * @module
 */
import { type ByteSource, fromReadableStream } from "../http/byte_source.ts";
import { systemClock } from "../exchange/clock.ts";
import type { Handler } from "../http/web.ts";

/** The longest that a caller may take for the header of a request, and for the TLS handshake before it. Milliseconds. */
export const HEADERS_MS = 10_000;
/** The longest that the rest of a refused body is read and thrown away. Milliseconds. */
const DISCARD_MS = 10_000;
/** A caller that sends nothing of it for this long has seen the answer, or never will. Milliseconds. */
const DISCARD_QUIET_MS = 2_000;

/** PEM texts. */
export interface TlsIdentity {
  readonly cert: string;
  readonly key: string;
}

/** One address to listen on. */
export interface ListenOptions {
  readonly hostname: string;
  /** 0 takes any free one. */
  readonly port: number;
  /** With it the listener speaks https. */
  readonly tls?: TlsIdentity | undefined;
  /** The longest that a caller's body may take, milliseconds: the gateway's own deadline, which must come first. */
  readonly bodyTimeMs: number;
  /** The longest that a header and a TLS handshake may take; {@link HEADERS_MS} if left out. */
  readonly headersMs?: number | undefined;
  /** Whether other processes listen on the same port. */
  readonly isShared?: boolean | undefined;
}

/** A listener that is open. */
export interface Listener {
  /** Where it listens, such as `http://127.0.0.1:8787`. */
  readonly url: string;
  /** Accepts nothing new, closes idle connections, and resolves when the open ones are over. */
  stop(): Promise<void>;
  /**
   * Takes over another deadline for bodies and another certificate, for connections from now on.
   *
   * @param options What is asked for now, at the same address
   * @returns Whether all of it holds; else the listener has to be opened anew
   */
  adjust?(options: ListenOptions): boolean;
  /** Closes connections on which nothing goes on, where stopping alone leaves them open. */
  closeIdle?(): void;
  /** Cuts what is still open. */
  kill(): void;
}

/** Opens a listener; one such function a runtime. */
export type Serve = (handler: Handler, options: ListenOptions) => Promise<Listener>;

/**
 * The address of a listener.
 *
 * @param options What was asked for
 * @param port The port that was given
 * @returns Such as `https://127.0.0.1:8788`
 */
export function toListenerUrl({ hostname, tls }: ListenOptions, port: number): string {
  return `${tls === undefined ? "http" : "https"}://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}

/**
 * Reads what is left of a body and keeps nothing of it. Never rejects.
 *
 * @param body The body
 * @param maxMs For how long at most, milliseconds; less where nothing comes
 * @returns Whether it came to its end
 */
export function discard(body: ByteSource, maxMs: number = DISCARD_MS): Promise<boolean> {
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
    const read = async (): Promise<void> => {
      while (!isOver && await body.read() !== undefined) isQuiet = false;
    };
    watch();
    read().then(() => end(true), () => end(true)); // broken: the caller left
  });
}

/**
 * The part of a web request's body that is still to come.
 *
 * @param request The request
 * @param body Its body, as it was handed to who answered
 * @returns The rest, possibly nothing; `null` where there is surely nothing
 */
export function bodyLeft(request: Request, body: ByteSource | null): ByteSource | null {
  if (body?.isWhole !== true) return body;
  return request.bodyUsed || request.body === null ? null : fromReadableStream(request.body);
}

/**
 * The bytes of an answer to a caller that is still sending. They go out at once, but the answer ends, and with it the
 * connection, only when the rest of the caller's body was thrown away: a connection that is closed with unread bytes is
 * reset, and the caller may then never see the answer.
 *
 * @param answer The body of the answer
 * @param rest What is left of the caller's body
 * @returns The same bytes as a source that ends late
 */
export function endLate(answer: string | Uint8Array, rest: ByteSource): ByteSource {
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
