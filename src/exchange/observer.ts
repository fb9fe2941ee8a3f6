/**
 * Ports: observers, which receive the records of settled exchanges, and tracers, which follow
 * exchanges from their first header on.
 *
 * @module
 */
import type { Attribution } from "../config/dimensions.ts";
import type { GatewayRequest } from "../http/message.ts";
import type { TokenUsage } from "./billing.ts";
import type { ExchangeFacts, ExchangeRecord } from "./record.ts";

/**
 * Port: receives the record of every exchange, once. Errors that it throws are dropped.
 *
 * @example Print the outcome of each exchange
 * ```ts
 * import { createGateway, type ExchangeObserver, parseConfig } from "sallyport";
 *
 * const printer: ExchangeObserver = {
 *   settled({ id, outcome, status, durationMs }) {
 *     console.log(`${id} ${outcome} ${status} ${Math.round(durationMs)} ms`);
 *   },
 * };
 * const config = parseConfig({
 *   providers: { a: { upstream: "openai" } },
 *   keys: [{ id: "me", key: "a-key-of-your-own" }],
 * });
 * export default { fetch: createGateway(config, { observers: [printer] }).fetch };
 * ```
 */
export interface ExchangeObserver {
  /**
   * True if records must list the headers that were withheld. Read once, when the gateway is made.
   */
  readonly wantsWithheld?: boolean;
  /** An exchange is over. @param record Its record, complete and frozen */
  settled(record: ExchangeRecord): void;
  /** The provider has stated the usage of an earlier exchange, whose usage was unknown. */
  restated?(call: RestatedCall): void;
}

/** An earlier exchange whose usage was unknown, and is now stated: facts of its record. */
export interface RestatedCall {
  /** Wall clock, milliseconds since 1970. */
  readonly startedAt: number;
  /** Milliseconds. */
  readonly durationMs: number;
  /** Id of the gateway key. */
  readonly keyId: string;
  /** Team of the key. */
  readonly team: string | undefined;
  /** Plan in the claims of an identity token. */
  readonly plan: string | undefined;
  /** Values of the configured headers, by dimension. */
  readonly attribution?: Attribution | undefined;
  /** True if a provider key was sent that the gateway holds. */
  readonly usesHeldKey?: boolean | undefined;
  /** Name of the provider. */
  readonly provider: string;
  /** Model as the caller named it; empty if none was named. */
  readonly model: string;
  /** Name of the operation, such as `responses`. */
  readonly operation: string;
  /** The estimate that its record has; `undefined` if it has none, as for a batch. */
  readonly estimate: TokenUsage | undefined;
  /** The usage that the provider states. */
  readonly stated: TokenUsage;
}

/** An upstream call that will be sent. */
export interface TracedCall {
  /** HTTP method in upper case. */
  readonly method: string;
  /** Base URL of the provider. */
  readonly base: URL;
  /** Headers with lower-case names. */
  readonly headers: Record<string, string>;
}

/** Follows one exchange and its upstream calls. Does not throw. */
export interface ExchangeTrace {
  /** A call will be sent. @returns The headers to send */
  called(call: TracedCall): Record<string, string>;
  /** The call was answered. @param status HTTP status */
  answered(status: number): void;
  /** The call failed. Another one can follow. @param reason As for {@link toExchangeEnd} */
  failed(reason: unknown): void;
}

/** The part of an exchange that a tracer sees. */
export interface TracedExchange extends Pick<ExchangeRecord, "startedAt" | "retries"> {
  /** Facts that are known so far. */
  readonly facts: Readonly<ExchangeFacts>;
  /** Milliseconds since the first header. */
  elapsed(): number;
  /** Registers a function for the end of the exchange. @param act Called once, with the record */
  onSettled(act: (record: ExchangeRecord) => void): void;
}

/**
 * Port: follows exchanges from their first header on. Without a tracer, tracing costs nothing.
 *
 * @example Print each upstream call
 * ```ts
 * import { createGateway, parseConfig, type Tracer } from "sallyport";
 *
 * const tracer: Tracer = {
 *   begin: (exchange) => ({
 *     called({ method, base, headers }) {
 *       console.log(`${method} to ${base} after ${exchange.elapsed()} ms`);
 *       return headers;
 *     },
 *     answered: (status) => console.log(`answered with ${status}`),
 *     failed: (reason) => console.log(`failed: ${reason}`),
 *   }),
 * };
 * const config = parseConfig({
 *   providers: { a: { upstream: "openai" } },
 *   keys: [{ id: "me", key: "a-key-of-your-own" }],
 * });
 * export default { fetch: createGateway(config, { tracer }).fetch };
 * ```
 */
export interface Tracer {
  /**
   * A request has arrived.
   * @param exchange The exchange, just opened
   * @param request The request. Its Host was not checked yet
   * @returns The trace, which follows this exchange
   */
  begin(exchange: TracedExchange, request: GatewayRequest): ExchangeTrace;
}
