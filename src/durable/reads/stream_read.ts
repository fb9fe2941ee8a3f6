/**
 * Reads of a recorded answer as requests state them: native reads, by the number of bytes that the
 * caller has, or by the read side of the durable-streams protocol
 * (https://github.com/durable-streams/durable-streams, PROTOCOL.md §5 to §8).
 *
 * @module
 */
import { GatewayError } from "../../errors/gateway_error.ts";

/** Offset of the first byte to read; `now` for the current end. */
export type WantedOffset = number | "now";

/**
 * A read of a recorded answer:
 *
 * - `native`: the remaining bytes, then live.
 * - `catch-up`: the bytes so far.
 * - `long-poll`: the same, but waits for the next bytes if there are none.
 * - `sse`: the bytes so far, then live, wrapped in events of the protocol.
 */
export interface StreamRead {
  readonly mode: "native" | "catch-up" | "long-poll" | "sse";
  readonly offset: WantedOffset;
  /** True if ids are added to events. Only for native reads. */
  readonly hasIds: boolean;
  /** True if the caller continues after its last event: an `EventSource` that reconnects. */
  readonly isReconnect: boolean;
  /** The last cursor of the caller. */
  readonly cursor: number;
  /** The longest time that a long-poll waits. Milliseconds. */
  readonly waitMs: number;
}

/**
 * The longest time that a long-poll waits if its caller states none. Shorter than the usual timeout
 * of proxies, 30 s.
 */
const WAIT_S = 20;
const MAX_WAIT_S = 60;
/** An offset of the protocol, as {@link toToken} writes it. */
const TOKEN = /^\d{15}b$/;
/** A number of bytes, with few enough digits to be exact. */
const BYTES = /^\d{1,15}$/;
/** Length of the intervals that cursors count (PROTOCOL.md §8.1). Milliseconds. */
const INTERVAL_MS = 20_000;
/** Start of the first interval (PROTOCOL.md §8.1). */
const EPOCH = Date.UTC(2024, 9, 9);
/** The most intervals that a cursor jumps ahead: an hour (PROTOCOL.md §8.1). */
const MAX_JUMP = 180;

/**
 * Writes an offset of the protocol. Their order as texts is the order of the offsets. None looks
 * like a number of bytes, so a native read never uses one.
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

/** Reads the mode in which a caller waits for later bytes. @throws {GatewayError} `invalid_read` */
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

/** Reads an optional number. Invalid text counts as none. */
function toNumber(text: string | null, otherwise: number): number {
  return text !== null && BYTES.test(text) ? Number(text) : otherwise;
}

/**
 * Returns the cursor for a live answer: the number of the interval, or a larger number if the
 * caller already has that one, so that no cache repeats the same answer (PROTOCOL.md §8.1).
 *
 * @param now Wall clock, milliseconds since 1970
 * @param had The last cursor of the caller
 */
export function toStreamCursor(now: number, had: number): string {
  const interval = Math.floor((now - EPOCH) / INTERVAL_MS);
  return String(had < interval ? interval : had + 1 + Math.floor(Math.random() * MAX_JUMP));
}

/**
 * Returns whether a header `If-None-Match` names an entity tag (RFC 9110 §13.1.2).
 *
 * @param tag The tag, in its quotes
 */
export function matchesTag(sent: string | null, tag: string): boolean {
  const tags = sent?.split(",").map((one) => one.trim().replace(/^W\//, "")) ?? [];
  return tags.includes(tag) || tags.includes("*");
}
