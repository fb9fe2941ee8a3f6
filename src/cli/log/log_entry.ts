/**
 * Lines of the JSON access log, as `sallyport log` reads them.
 *
 * @module
 */
import { type Attribution, type Dimension, DIMENSIONS } from "../../config/dimensions.ts";
import type { ErrorCode } from "../../errors/codes.ts";
import { FAILURE_CAUSES, type FailureCause, OUTCOMES } from "../../errors/outcomes.ts";
import type { Outcome } from "../../errors/outcomes.ts";
import type { FilteredExchange } from "../../observe/live/exchange_filter.ts";

/** An exchange of the log. */
export interface LogEntry extends FilteredExchange {
  /** Start of the exchange, milliseconds since 1970. */
  readonly startedAt: number;
  readonly tokens?: number | undefined;
  readonly isEstimated: boolean;
  readonly limit?: string | undefined;
}

/** An event of the log, such as a reload, or a change that an operator made. */
export interface LogEvent {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly event: string;
  readonly instance: string | undefined;
  readonly message: string;
}

/** Content of a line: an exchange, an event, or the number of lines that the gateway dropped. */
export type LogLine =
  | { readonly entry: LogEntry }
  | { readonly event: LogEvent }
  | { readonly dropped: number };

const toText = (value: unknown): string | undefined =>
  typeof value === "string" ? value : undefined;
const toNumber = (value: unknown): number | undefined =>
  typeof value === "number" ? value : undefined;

/**
 * Returns the JSON object of a line: the whole line, or the rest after a log collector's prefix.
 */
function findObject(line: string): Record<string, unknown> | undefined {
  const start = line.startsWith("{") ? 0 : line.indexOf('{"time":"');
  if (start < 0) return undefined;
  try {
    const value: unknown = JSON.parse(start === 0 ? line : line.slice(start));
    return typeof value === "object" && value !== null
      ? value as Record<string, unknown>
      : undefined;
  } catch {
    return undefined;
  }
}

/** Reads the values of the dimensions that this version knows. */
function toAttribution(value: unknown): Attribution | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const known = Object.entries(value).filter(([name, text]) =>
    DIMENSIONS.includes(name as Dimension) && typeof text === "string"
  );
  return Object.fromEntries(known);
}

/** Reads an event; `undefined` if it is none. */
function toLogEvent(object: Record<string, unknown>, at: number): LogEvent | undefined {
  const event = toText(object.event);
  const message = toText(object.message);
  const instance = toText(object.instance);
  if (event !== undefined && message !== undefined) return { at, event, instance, message };
  const { audit, target, outcome, who, reason } = object;
  if (typeof audit !== "string") return undefined;
  const words = [audit, target, outcome, `by ${who}`, reason && `reason: ${reason}`];
  return { at, event: "audit", instance, message: words.filter(Boolean).join("  ") };
}

/** Reads a line. Returns `undefined` if it is not a line of the log. */
export function parseLogLine(line: string): LogLine | undefined {
  const object = findObject(line);
  const startedAt = Date.parse(toText(object?.time) ?? "");
  if (object === undefined || Number.isNaN(startedAt)) return undefined;
  const { id, status, outcome, dropped, cause } = object;
  if (typeof dropped === "number") return { dropped };
  const event = toLogEvent(object, startedAt);
  if (event !== undefined) return { event };
  if (typeof id !== "string" || typeof status !== "number") return undefined;
  if (typeof outcome !== "string" || !Object.hasOwn(OUTCOMES, outcome)) return undefined;
  return {
    entry: {
      startedAt,
      id,
      status,
      outcome: outcome as Outcome, // checked against the table
      keyId: toText(object.key),
      keyName: toText(object.keyName),
      team: toText(object.team),
      attribution: toAttribution(object.attribution),
      usesHeldKey: object.heldKey === true,
      provider: toText(object.provider),
      model: toText(object.model),
      operation: toText(object.operation),
      run: toText(object.run),
      repeats: toNumber(object.repeats),
      // A code of another version is only compared and printed.
      code: toText(object.code) as ErrorCode | undefined,
      cause: typeof cause === "string" && Object.hasOwn(FAILURE_CAUSES, cause)
        ? cause as FailureCause
        : undefined,
      stream: object.stream === true,
      durationMs: toNumber(object.durationMs) ?? 0,
      firstTokenMs: toNumber(object.firstTokenMs),
      tokens: toNumber(object.tokens),
      isEstimated: object.estimated === true,
      limit: toText(object.limit),
    } as LogEntry,
  };
}
