/**
 * Headers that carry a trace from the caller on to the provider: `traceparent` and `tracestate`
 * (W3C Trace Context, https://www.w3.org/TR/trace-context-2/).
 *
 * @module
 */

/** The trace context of a request or a call: the trace that it belongs to, and its parent span. */
export interface TraceParent {
  /** 32 hexadecimal digits, not all 0. */
  readonly traceId: string;
  /** The caller's span, 16 hexadecimal digits, not all 0. */
  readonly spanId: string;
  /** Bits, see {@link SAMPLED} and {@link RANDOM}. */
  readonly flags: number;
  /** The `tracestate` field, which holds values of tracing systems; empty if there is none. */
  readonly state: string;
}

/** The caller may have recorded its span (§3.2.2.5.1). */
export const SAMPLED = 1;
/** The trace's id is random enough to be sampled by (§3.2.2.5.2). */
export const RANDOM = 2;

const PARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NOTHING = /^0+$/;

/**
 * Limits of a `tracestate`: its members, and the characters that §3.3.1.3 asks to pass on at least.
 */
const MAX_MEMBERS = 32;
const MAX_STATE_LENGTH = 512;
// §3.3.1.3.1: a key, or a tenant's key at a system; a value does not end in a space.
const MEMBER =
  /^([a-z0-9][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})=[ -+\--<>-~]{0,255}[!-+\--<>-~]$/;

/** Reads a `tracestate`; empty if it is too long, a member is malformed or a key occurs twice. */
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
 * @param headers The caller's; a field that was given twice is joined with `", "`
 * @returns The trace; `undefined` when there is none, or none that can be continued
 */
export function readTraceParent(
  headers: { get(name: string): string | null },
): TraceParent | undefined {
  const [, version, traceId = "", spanId = "", flags = "", rest] =
    PARENT.exec(headers.get("traceparent") ?? "") ?? [];
  if (version === undefined || version === "ff") return undefined;
  // A later version may say more behind what is known; this one may not (§4.3).
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
 * Adds `traceparent` and `tracestate` to the headers of a call that a span makes.
 *
 * @param headers The call's headers, lower-case names; fields of another trace are replaced
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
