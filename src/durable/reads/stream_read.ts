/**
 * Reads of a recorded answer as requests state them: natively, by the number of bytes that the
 * caller has, or by the read side of the durable-streams protocol
 * (https://github.com/durable-streams/durable-streams, PROTOCOL.md §5 to §8).
 *
 * @module
 */
import { GatewayError } from "../../errors/gateway_error.ts";

/** Offset of the first byte that is wanted; `now` for the end of what there is. */
export type WantedOffset = number | "now";

/**
 * A read of a recorded answer:
 *
 * - `native`: the remaining bytes, then live.
 * - `catch-up`: what there is now.
 * - `long-poll`: the same, but if there is nothing, waits for the next bytes.
 * - `sse`: what there is, then live, wrapped in events of the protocol.
 */
export interface StreamRead {
  readonly mode: "native" | "catch-up" | "long-poll" | "sse";
  readonly offset: WantedOffset;
  /** True if events get ids: of native reads only. */
  readonly hasIds: boolean;
  /**
   * True if the caller goes on after the event that it had last: an `EventSource` that connects
   * again.
   */
  readonly isReconnect: boolean;
  /** The cursor that the caller had last. */
  readonly cursor: number;
  /** The longest time that a long-poll waits. Milliseconds. */
  readonly waitMs: number;
}

/**
 * The longest time that a long-poll waits if its caller names none: below the 30 s after which many
 * proxies give up.
 */
const WAIT_S = 20;
const MAX_WAIT_S = 60;
/** An offset of the protocol, as {@link toToken} writes it. */
const TOKEN = /^\d{15}b$/;
/** A number of bytes: not so many digits that it would be rounded. */
const BYTES = /^\d{1,15}$/;
/** Length of the intervals that cursors count (PROTOCOL.md §8.1). Milliseconds. */
const INTERVAL_MS = 20_000;
/** Begin of the first interval (PROTOCOL.md §8.1). */
const EPOCH = Date.UTC(2024, 9, 9);
/** The most intervals that a cursor jumps ahead: an hour (PROTOCOL.md §8.1). */
const MAX_JUMP = 180;

/**
 * Writes an offset of the protocol. These sort as texts like the offsets themselves, and none looks
 * like a number of bytes: a native read never goes by them.
 */
export function toToken(offset: number): string {
  return `${String(offset).padStart(15, "0")}b`;
}

/**
 * Reads the read that a request states.
 *
 * @throws {GatewayError} `invalid_offset`, `invalid_read`
 */
export function toStreamRead(query: string, lastEventId: string | null): StreamRead {
  const params = new URLSearchParams(query);
  const offsets = params.getAll("offset");
  const [text] = offsets;
  if (offsets.length > 1) throw new GatewayError("invalid_offset");
  const live = toLive(params.getAll("live"));
  if (live !== undefined && text === undefined) throw new GatewayError("invalid_offset");
  const isNative = live === undefined && (text === undefined || BYTES.test(text));
  const hasIds = isNative && params.get("ids") === "1";
  const isReconnect = hasIds && lastEventId !== null && lastEventId !== "";
  return {
    mode: live ?? (isNative ? "native" : "catch-up"),
    offset: toOffset(isReconnect ? lastEventId : text),
    hasIds,
    isReconnect,
    cursor: toNumber(params.get("cursor"), 0),
    waitMs: Math.min(toNumber(params.get("timeout"), WAIT_S), MAX_WAIT_S) * 1000,
  };
}

/** Reads how a caller wants to get what is still to come. @throws {GatewayError} `invalid_read` */
function toLive(sent: readonly string[]): "long-poll" | "sse" | undefined {
  const [live] = sent;
  const isKnown = live === undefined || live === "long-poll" || live === "sse";
  if (sent.length <= 1 && isKnown) return live;
  throw new GatewayError("invalid_read");
}

/** Reads an offset in any of its forms. @throws {GatewayError} `invalid_offset` */
function toOffset(text: string | undefined): WantedOffset {
  if (text === undefined || text === "-1") return 0;
  if (text === "now") return text;
  if (!BYTES.test(text) && !TOKEN.test(text)) throw new GatewayError("invalid_offset");
  return parseInt(text, 10);
}

/** Reads a number that is not needed: junk is as good as none. */
function toNumber(text: string | null, otherwise: number): number {
  return text !== null && BYTES.test(text) ? Number(text) : otherwise;
}

/**
 * Returns the cursor for an answer that comes live: the number of the interval, or more if the
 * caller has that already, so that no cache answers it with the same again (PROTOCOL.md §8.1).
 *
 * @param now Wall clock, milliseconds since 1970
 * @param had The cursor that the caller had last
 */
export function toCursor(now: number, had: number): string {
  const interval = Math.floor((now - EPOCH) / INTERVAL_MS);
  return String(had < interval ? interval : had + 1 + Math.floor(Math.random() * MAX_JUMP));
}

/**
 * Tells whether a header `If-None-Match` names an entity tag (RFC 9110 §13.1.2).
 *
 * @param tag The tag, in its quotes
 */
export function matchesTag(sent: string | null, tag: string): boolean {
  const tags = sent?.split(",").map((one) => one.trim().replace(/^W\//, "")) ?? [];
  return tags.includes(tag) || tags.includes("*");
}
