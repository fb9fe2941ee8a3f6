/**
 * HTTP messages as the gateway looks at them, without web objects: each listener converts to and from its own.
 *
 * @module
 */
import type { ByteSource } from "./byte_source.ts";

/** A request, as narrow as the gateway needs it. A `Request` converts to it, and so does Node's `IncomingMessage`. */
export interface GatewayRequest {
  /** As sent, such as `POST`. */
  readonly method: string;
  /** Absolute, or the path with its query. Not looked at before the Host was checked. */
  readonly url: string;
  /** Names in lower case; a field that was given twice is joined with `", "`. */
  readonly headers: { get(name: string): string | null };
  /** The body, unread. */
  readonly body: ByteSource | null;
  /** Whether the caller has left, where asking costs next to nothing. */
  readonly isGone?: boolean | undefined;
  /**
   * Aborts when the caller is gone, or after a complete answer: that is ignored. Not asked for in a quick exchange: making
   * one costs the runtimes more than most of what else the gateway does.
   */
  readonly signal?: AbortSignal | undefined;
}

/** A response: a `Response` on fetch runtimes, written straight to the socket on Node. */
export interface GatewayResponse {
  /** HTTP status. */
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  /** Text, bytes, a body that is pulled, or nothing. */
  body: string | Uint8Array | ByteSource | null;
}

/** Returns whether a body is there whole, and has not to be pulled. */
export function isWhole(body: GatewayResponse["body"]): body is string | Uint8Array | null {
  return body === null || typeof body === "string" || body instanceof Uint8Array;
}
