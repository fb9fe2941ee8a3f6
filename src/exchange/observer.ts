/**
 * Ports: who is told of exchanges when they are over, and who follows them from their first header on.
 *
 * @module
 */
import type { GatewayRequest } from "../http/message.ts";
import type { ExchangeFacts, ExchangeRecord } from "./record.ts";

/** Returns whether something is still to come: waiting for what is there already costs a turn of the loop's queue. */
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
  begin(exchange: TracedExchange, request: GatewayRequest): ExchangeTrace;
}
