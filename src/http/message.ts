/**
 * HTTP messages as the gateway looks at them, without web objects: each listener converts to and from its own.
 *
 * @module
 */
import type { ByteSource } from "./byte_source.ts";

/** A request, as narrow as the gateway needs it. A `Request` converts to it, and so does Node's `IncomingMessage`. */
export interface GatewayRequest {
  /** Method as sent, for example `POST`. */
  readonly method: string;
  /** Absolute URL, or the path with its query. Not looked at before the Host was checked. */
  readonly url: string;
  /** Headers, with names in lower case; a field that was given twice is joined with `", "`. */
  readonly headers: { get(name: string): string | null };
  /** The body, unread. */
  readonly body: ByteSource | null;
  /** True once the caller has left; `undefined` where it would cost much to find out. */
  readonly isGone?: boolean | undefined;
  /**
   * Aborted when the caller is gone; an abort after a complete answer is ignored. Not asked for in a quick exchange: to
   * make a signal costs the runtimes more than most other work of the gateway.
   */
  readonly signal?: AbortSignal | undefined;
}

/** A response: a `Response` on fetch runtimes, written straight to the socket on Node. */
export interface GatewayResponse {
  /** HTTP status. */
  status: number;
  /** Headers, with names in lower case. */
  headers: Record<string, string>;
  /** Text, bytes, a body that is pulled, or nothing. */
  body: string | Uint8Array | ByteSource | null;
}

/** Returns whether a body is in memory as a whole and need not be pulled. */
export function isWhole(body: GatewayResponse["body"]): body is string | Uint8Array | null {
  return body === null || typeof body === "string" || body instanceof Uint8Array;
}
