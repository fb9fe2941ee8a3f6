/**
 * One request and its answer, from the first header to the last byte, and how it ended.
 *
 * @module
 */
import type { ByteSource } from "../http/byte_source.ts";
import { type ErrorCode, GatewayError } from "../errors/gateway_error.ts";
import type { FailureCause, Outcome } from "../errors/outcomes.ts";
import { type Settlement, toOutcome } from "./settlement.ts";
import { runtimeClock } from "./timer_queue.ts";

export { ClientClosed, type Settlement, toSettlement } from "./settlement.ts";

/** What arrived, as narrow as the gateway needs it. A `Request` converts to it, and so does Node's `IncomingMessage`. */
export interface InboundRequest {
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

/** Whether something is still to come: waiting for what is there already costs a turn of the loop's queue. */
export function isPromise<T>(value: T | Promise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | undefined)?.then === "function";
}

/**
 * Drops what an embedder's code rejects with where nobody waits for it: unhandled, it would end the process.
 *
 * @param returned What the code returned: a promise, though it should not have, or anything
 */
export function dropRejection(returned: unknown): void {
  if (isPromise(returned)) returned.then(undefined, () => {});
}

/** Whether a body is there whole, and has not to be pulled. */
export function isWhole(body: Answer["body"]): body is string | Uint8Array | null {
  return body === null || typeof body === "string" || body instanceof Uint8Array;
}

/** What goes back. `Response` on fetch runtimes, written straight to the socket on Node. */
export interface Answer {
  /** HTTP status. */
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  /** Text, bytes, a body that is pulled, or nothing. */
  body: string | Uint8Array | ByteSource | null;
}

/** Time, as a part: tests pass their own instead of patching globals. */
export interface Clock {
  /** Wall clock, milliseconds since 1970: for what people read and for the expiry of keys. */
  now(): number;
  /** Milliseconds that only grow: for durations and deadlines. */
  monotonic(): number;
  /**
   * Calls `fire` once after `ms` milliseconds.
   *
   * @returns Cancels it; safe to call at any time, also again
   */
  timer(ms: number, fire: () => void): () => void;
}

/** The clock of the runtime. */
export const systemClock: Clock = runtimeClock;

/** Tokens of one answer, as its provider stated them. */
export interface TokenUsage {
  /** What limits and budgets are charged. */
  readonly total: number;
  /** Those of the prompt. */
  readonly input?: number;
  /** Those of the answer, reasoning included. */
  readonly output?: number;
  /** Those of the input that came from the provider's cache. */
  readonly cached?: number;
  /** Those of the output that the caller does not see. */
  readonly reasoning?: number;
}

/** What is known of an exchange once it is over. It holds no key, no prompt and no address. */
export interface ExchangeRecord {
  /** `x-request-id`. */
  readonly id: string;
  /** Wall clock, milliseconds since 1970. */
  readonly startedAt: number;
  /** From the first header to the last byte, milliseconds. */
  readonly durationMs: number;
  /** From the first header until the provider's answer began, milliseconds. */
  readonly firstByteMs?: number;
  /** From the first header until the first event of a stream that is no comment, milliseconds. */
  readonly firstTokenMs?: number;
  /** What of the time until then, or until the end, was the gateway's own: without waiting for a body or a provider. */
  readonly overheadMs: number;
  /** How it ended. */
  readonly outcome: Outcome;
  /** The status that was answered; 499 when the caller left before one was. */
  readonly status: number;
  /** The gateway's error, if it made one. */
  readonly code?: ErrorCode;
  /** Why the call to the provider failed, where that is how it ended. */
  readonly cause?: FailureCause;
  /** Why the first call failed that was made again, see `retries`. */
  readonly retryCause?: FailureCause;
  /** Name of the provider in the config. */
  readonly provider?: string;
  /** Id of the gateway key. */
  readonly keyId?: string;
  /** `chat.completions`, `models.list` or `models.get`. */
  readonly operation?: string;
  /** As the caller named it: at most 256 characters, without control characters. */
  readonly model?: string;
  /** Whether the caller asked for a stream. */
  readonly stream?: boolean;
  /** Bytes of the caller's body. */
  readonly bytesIn: number;
  /** Bytes of the body that was answered. */
  readonly bytesOut: number;
  /** Upstream calls beyond the first. */
  readonly retries: number;
  /** Which of the provider's replicas answered, counted from 0. */
  readonly replica?: number;
  /** As far as the provider stated it; beside an outcome other than `ok` it is a part. */
  readonly usage?: TokenUsage;
  /** The limit that refused it, such as `requests`, or `provider-requests` for one of all keys together. */
  readonly limit?: string;
  /** The limit that would have refused it, had it not been set to observe. */
  readonly observedLimit?: string;
  /** The error behind `internal_error` or an upstream failure. May name addresses: for the operator alone. */
  readonly error?: unknown;
}

/** Is told of every exchange, once. What it throws is dropped. */
export interface ExchangeObserver {
  /** An exchange is over. @param record What is known, complete and for ever */
  settled(record: ExchangeRecord): void;
}

/** An upstream call that is about to leave. */
export interface TracedCall {
  /** In upper case. */
  readonly method: string;
  /** Holds no query. */
  readonly url: URL;
  /** Lower-case names. */
  readonly headers: Record<string, string>;
}

/** Follows one exchange and its upstream calls. Does not throw. */
export interface ExchangeTrace {
  /** A call is about to leave. @returns The headers that it goes out with */
  called(call: TracedCall): Record<string, string>;
  /** The call was answered. @param status HTTP status */
  answered(status: number): void;
  /** The call failed; another may follow. @param reason As for {@link toSettlement} */
  failed(reason: unknown): void;
}

/** What of an exchange those who follow it see. */
export interface TracedExchange extends Pick<ExchangeRecord, "startedAt" | "retries"> {
  /** What is known of it so far. */
  readonly facts: Readonly<ExchangeFacts>;
  /** Milliseconds since the first header. */
  elapsed(): number;
  /** Registers what to do when it is over. @param act Called once, with the closed books */
  onSettled(act: (record: ExchangeRecord) => void): void;
}

/** Port: who follows exchanges from their first header on. Costs nothing where there is none. */
export interface Tracer {
  /**
   * A request has arrived.
   * @param exchange The exchange, just opened
   * @param request What arrived; its Host was not checked yet
   * @returns Who follows it
   */
  begin(exchange: TracedExchange, request: InboundRequest): ExchangeTrace;
}

/** What the steps learn on the way. */
export type ExchangeFacts = {
  -readonly [
    Name in
      | ("provider" | "keyId" | "operation" | "model" | "stream" | "usage")
      | ("limit" | "observedLimit" | "replica" | "retryCause")
  ]?: ExchangeRecord[Name];
};

/** Milliseconds to the nearest hundredth: what is finer is the clock's noise. */
const toTiming = (ms: number): number => Math.max(0, Math.round(ms * 100) / 100);

/** One request and its answer. */
export class Exchange {
  /** `x-request-id`. */
  readonly id: string = crypto.randomUUID();
  /** Wall clock, milliseconds since 1970. */
  readonly startedAt: number;
  /** What the steps have learned so far. */
  readonly facts: ExchangeFacts = {};
  /** The status that goes out; 499 until one does. */
  status = 499;
  /** Bytes of the caller's body so far. */
  bytesIn = 0;
  /** Bytes of the answer's body so far. */
  bytesOut = 0;
  /** Upstream calls beyond the first. */
  retries = 0;
  /** Milliseconds waited for the caller's body and for the provider, until its answer began. */
  waitedMs = 0;
  /** What of that was for the provider, over all calls; none before the first one ended. */
  upstreamMs: number | undefined;
  /** Who follows it. */
  trace: ExchangeTrace | undefined;
  /** Its place among the open ones, see `OpenExchanges`. */
  place = -1;
  /** What the answer carries of the gateway's own, whichever answer it is. */
  headers: Readonly<Record<string, string>> = {};
  readonly #clock: Clock;
  readonly #startedMonotonic: number;
  #controller: AbortController | undefined;
  #reason: Error | undefined;
  #lastReason: Error | undefined;
  readonly #onAbort: (() => void)[] = [];
  readonly #onSettled: ((record: ExchangeRecord) => void)[] = [];
  #firstByteMs: number | undefined;
  #firstTokenMs: number | undefined;
  #isSettled = false;
  /** @param clock Where its times come from */
  constructor(clock: Clock) {
    this.#clock = clock;
    this.startedAt = clock.now();
    this.#startedMonotonic = clock.monotonic();
  }

  /** Why everything that is done on behalf of this exchange is to stop: that is the answer. */
  get reason(): Error | undefined {
    return this.#reason;
  }

  /** The same as a signal, for those who take nothing else; made when it is asked for. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#reason !== undefined) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  /**
   * Registers what an abort stops.
   *
   * @param act Called at the abort, with {@link reason} set
   * @returns Takes it back
   */
  onAbort(act: () => void): () => void {
    this.#onAbort.push(act);
    return () => {
      const at = this.#onAbort.lastIndexOf(act);
      if (at !== -1) this.#onAbort.splice(at, 1);
    };
  }

  /** Whether the books are closed. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Milliseconds since the first header. */
  elapsed(): number {
    return this.#clock.monotonic() - this.#startedMonotonic;
  }

  /** Marks that the provider's answer began. */
  markFirstByte(): void {
    this.#firstByteMs ??= this.elapsed();
  }

  /** Marks that the first event of a stream came. */
  markFirstToken(): void {
    this.#firstTokenMs ??= this.elapsed();
  }

  /**
   * Counts the time of one upstream call.
   *
   * @param sinceMs When it was sent, as {@link elapsed} said then
   */
  waitedUpstream(sinceMs: number): void {
    const ms = this.elapsed() - sinceMs;
    this.waitedMs += ms;
    this.upstreamMs = (this.upstreamMs ?? 0) + ms;
  }

  /** `Server-Timing` (https://www.w3.org/TR/server-timing/): milliseconds until the provider's answer began, or now. */
  get serverTiming(): string {
    const gateway = `gateway;dur=${toTiming((this.#firstByteMs ?? this.elapsed()) - this.waitedMs)}`;
    return this.upstreamMs === undefined ? gateway : `${gateway}, upstream;dur=${toTiming(this.upstreamMs)}`;
  }

  /**
   * Stops the work. Whoever is stopped rethrows the reason.
   *
   * @param reason A `GatewayError` (a deadline, the drain) or {@link ClientClosed}; the first one stays
   */
  abort(reason: Error): void {
    if (this.#isSettled) return;
    this.#lastReason = reason;
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#controller?.abort(reason);
    for (const act of Array.from(this.#onAbort)) act();
  }

  /**
   * Goes on with a fresh {@link signal} after an abort that ended one upstream call only.
   *
   * @param overcome Why that call failed; any other that came meanwhile stays in force
   */
  resume(overcome: unknown): void {
    this.retries++;
    if (GatewayError.is(overcome)) this.facts.retryCause = overcome.failureCause ?? "unknown";
    if (this.#reason === undefined) return;
    this.#controller = this.#reason = undefined;
    if (this.#lastReason !== undefined && this.#lastReason !== overcome) this.abort(this.#lastReason);
  }

  /**
   * Registers what must be given back when the exchange is over.
   *
   * @param give Called once, with the closed books
   */
  onSettled(give: (record: ExchangeRecord) => void): void {
    this.#onSettled.push(give);
  }

  /**
   * Closes the books. The first call wins, whichever way the exchange ended.
   *
   * @param settlement How it ended
   */
  settle(settlement: Settlement): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    const { code, cause, error } = settlement;
    const durationMs = this.elapsed();
    const record: { -readonly [Name in keyof ExchangeRecord]: ExchangeRecord[Name] } = {
      ...this.facts, // first: the runtimes copy an object faster than they add one to another
      id: this.id,
      startedAt: this.startedAt,
      durationMs,
      overheadMs: Math.max(0, (this.#firstByteMs ?? durationMs) - this.waitedMs),
      outcome: toOutcome(settlement, this.status),
      status: this.status,
      bytesIn: this.bytesIn,
      bytesOut: this.bytesOut,
      retries: this.retries,
    };
    if (this.#firstByteMs !== undefined) record.firstByteMs = this.#firstByteMs;
    if (this.#firstTokenMs !== undefined) record.firstTokenMs = this.#firstTokenMs;
    if (code !== undefined) record.code = code;
    if (cause !== undefined) record.cause = cause;
    if (error !== undefined) record.error = error;
    Object.freeze(record);
    for (const give of this.#onSettled) {
      try {
        dropRejection(give(record));
      } catch {
        // One failing observer must not keep the others from giving back what they hold.
      }
    }
  }
}
