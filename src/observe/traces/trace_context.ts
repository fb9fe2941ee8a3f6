/**
 * Headers that propagate a trace from the caller to the provider: `traceparent` and `tracestate`
 * (W3C Trace Context, https://www.w3.org/TR/trace-context-2/).
 *
 * @module
 */

/** The trace context of a request or a call: its trace and its parent span. */
export interface TraceParent {
  /** 32 hexadecimal digits, not all 0. */
  readonly traceId: string;
  /** The caller's span, 16 hexadecimal digits, not all 0. */
  readonly spanId: string;
  /** Bits, see {@link SAMPLED} and {@link RANDOM}. */
  readonly flags: number;
  /** The `tracestate` field, which contains values of tracing systems. Empty if there is none. */
  readonly state: string;
}

/** The caller can have recorded its span (§3.2.2.5.1). */
export const SAMPLED = 1;
/** The trace id is random enough to base sampling on it (§3.2.2.5.2). */
export const RANDOM = 2;

const PARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NOTHING = /^0+$/;

/**
 * Limits of a `tracestate`: the number of members, and the number of characters that must at least
 * be propagated (§3.3.1.3).
 */
const MAX_MEMBERS = 32;
const MAX_STATE_LENGTH = 512;
// §3.3.1.3.1: a key is a name or `tenant@system`. A value does not end in a space.
const MEMBER =
  /^([a-z0-9][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})=[ -+\--<>-~]{0,255}[!-+\--<>-~]$/;

/**
 * Reads a `tracestate`. Returns an empty text if it is too long, a member is malformed or a key
 * occurs twice.
 */
function readState(text: string): string {
  if (text.length > MAX_STATE_LENGTH) return "";
  const members = text.split(",")
    .map((member) => member.replace(/^[ \t]+|[ \t]+$/g, ""))
    .filter((member) => member !== "");
  const keys = members.map((member) => MEMBER.exec(member)?.[1]);
  const isGood = members.length <= MAX_MEMBERS && !keys.includes(undefined) &&
    new Set(keys).size === keys.length;
  return isGood ? members.join(",") : "";
}

/**
 * Reads the caller's trace strictly: a malformed `traceparent` or `tracestate` is ignored.
 *
 * @param headers The caller's headers. A field that was given twice is joined with `", "`
 * @returns The trace; `undefined` if there is none, or it cannot be continued
 */
export function readTraceParent(
  headers: { get(name: string): string | null },
): TraceParent | undefined {
  const [, version, traceId = "", spanId = "", flags = "", rest] =
    PARENT.exec(headers.get("traceparent") ?? "") ?? [];
  if (version === undefined || version === "ff") return undefined;
  // A later version can append fields. Version 00 cannot (§4.3).
  if (version === "00" && rest !== undefined) return undefined;
  if (NOTHING.test(traceId) || NOTHING.test(spanId)) return undefined;
  return {
    traceId,
    spanId,
    flags: Number.parseInt(flags, 16) & (SAMPLED | RANDOM),
    state: readState(headers.get("tracestate") ?? ""),
  };
}

/**
 * Adds `traceparent` and `tracestate` to the headers of a call that has a span.
 *
 * @param headers The call's headers, lower-case names. Fields of another trace are replaced
 */
export function withTraceParent(
  headers: Readonly<Record<string, string>>,
  parent: TraceParent,
): Record<string, string> {
  const { traceId, spanId, flags, state } = parent;
  const { traceparent: _theirs, tracestate: _state, ...others } = headers;
  const traceparent = `00-${traceId}-${spanId}-${flags.toString(16).padStart(2, "0")}`;
  return { ...others, traceparent, ...(state !== "" && { tracestate: state }) };
}
