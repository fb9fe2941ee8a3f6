/**
 * One upstream call: its replica, its deadlines, its single retry, and the conversion of all
 * failures to gateway errors.
 *
 * @module
 */
import type { ProviderConfig } from "../config/provider.ts";
import type { ErrorCode } from "../errors/codes.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import type { Exchange } from "../exchange/exchange.ts";
import { toUpstreamError } from "./failure_cause.ts";
import type { Replica, Replicas } from "./replicas.ts";
import {
  type HeldBody,
  NeverSent,
  type Transport,
  type UpstreamCall,
  type UpstreamResponse,
} from "./transport.ts";
import { toIdentityCoding } from "./unpack.ts";

/** Deadlines of a call. */
export type Deadlines = ProviderConfig["deadlines"];

/** Header with the caller's own timeout in seconds, as the OpenAI client libraries send it. */
const CALLER_TIMEOUT = "x-stainless-timeout";
const SECONDS = /^\d+(?:\.\d+)?$/;

/**
 * Converts the caller's timeout to milliseconds. Client libraries truncate it to whole seconds
 * (`Math.trunc` in openai-node, `int` in openai-go): 1 means a timeout below 2 s, and 0 a timeout
 * below 1 s.
 */
function toCallerMs(text: string): number {
  if (!SECONDS.test(text)) return NaN;
  return (text.includes(".") ? Number(text) : Number(text) + 1) * 1000;
}

/**
 * Shortens the deadlines to the caller's own timeout. In the client libraries, the timeout covers a
 * stream until its header, and a plain answer until its last byte.
 *
 * @param canStream False if the answer is certainly plain
 */
export function shortenDeadlines(
  deadlines: Deadlines,
  headers: { get(name: string): string | null },
  canStream: boolean,
): Deadlines {
  const callerMs = toCallerMs(headers.get(CALLER_TIMEOUT) ?? "");
  if (!(callerMs > 0)) return deadlines;
  return {
    ...deadlines,
    firstByteMs: Math.min(deadlines.firstByteMs, callerMs),
    totalMs: canStream ? deadlines.totalMs : Math.min(deadlines.totalMs, callerMs),
  };
}

/** A call to send to a provider. */
export interface ForwardCall {
  /** Path below the base URL. */
  readonly path: string;
  readonly method: string;
  readonly headers: Record<string, string>;
  readonly body: HeldBody | null;
  readonly deadlines: Deadlines;
}

/** Dependencies of {@link forward}. */
export interface ForwardParts {
  readonly replicas: Replicas;
  readonly transport: Transport;
  readonly clock: Clock;
}

/**
 * Sends a call and waits for the header of its response.
 *
 * A second call is made only if the first one was certainly never sent, and only to another
 * replica. A reused connection that breaks before a response does not qualify: its bytes can have
 * arrived, and a call that arrives twice is billed twice.
 *
 * @param exchange Its abort ends the call. The total deadline applies until it is settled
 * @returns The response, identity-coded
 * @throws {GatewayError} `upstream_unreachable`, `upstream_bad_response`,
 * `upstream_unsupported_encoding`, `upstream_*_timeout`
 * @throws {ClientClosed} When the caller left
 */
export async function forward(
  call: ForwardCall,
  exchange: Exchange,
  { replicas, transport, clock }: ForwardParts,
): Promise<UpstreamResponse> {
  exchange.onSettled(expireIn(call.deadlines.totalMs, exchange, clock));
  let replica = replicas.pick(clock.monotonic());
  for (let isSecond = false;; isSecond = true) {
    exchange.facts.replica = replica.index;
    const sentAt = exchange.elapsed();
    exchange.facts.calledMs ??= sentAt;
    const cancelFirstByte = abortIn(
      call.deadlines.firstByteMs,
      "upstream_first_byte_timeout",
      exchange,
      clock,
    );
    let response: UpstreamResponse;
    try {
      response = await transport.send(toUpstreamCall(call, replica, exchange));
    } catch (error) {
      const { reason, isNeverSent } = noteFailure(error, replica, { exchange, replicas, clock });
      const other = isNeverSent && !isSecond
        ? replicas.pickAgain(clock.monotonic(), replica)
        : undefined;
      if (other === undefined) throw reason;
      exchange.beginRetry(reason);
      replica = other;
      continue;
    } finally {
      exchange.addUpstreamWait(sentAt);
      cancelFirstByte();
    }
    // This applies to any status, because a 503 for one model must not eject the replica for other
    // models.
    replicas.succeeded(replica);
    return receive(response, exchange, transport);
  }
}

/**
 * Sets a deadline. Separate from {@link forward}, because on Bun (JavaScriptCore) a closure created
 * in an async function keeps all parameters of that function: here the call's headers and body,
 * until the answer ends.
 */
const abortIn = (ms: number, code: ErrorCode, exchange: Exchange, clock: Clock) =>
  clock.timer(ms, () => exchange.abort(new GatewayError(code)));

/**
 * Sets the total deadline. A caller that does not read can delay its answer until then, so an
 * answer that is read further without its caller has the same time again.
 */
function expireIn(ms: number, exchange: Exchange, clock: Clock): () => void {
  let cancel = clock.timer(ms, () => {
    if (exchange.caller.name === "bound" || !exchange.isDelayed) {
      return exchange.abort(new GatewayError("upstream_timeout"));
    }
    cancel = abortIn(ms, "upstream_timeout", exchange, clock);
    exchange.endCallerPart(new GatewayError("upstream_timeout"));
  });
  return () => cancel();
}

/** Makes the call of one attempt. @throws The reason of an earlier abort */
function toUpstreamCall(call: ForwardCall, replica: Replica, exchange: Exchange): UpstreamCall {
  if (exchange.reason !== undefined) throw exchange.reason;
  const { method, headers } = call;
  const { base } = replica;
  return {
    base,
    target: replica.path + call.path,
    method,
    headers: exchange.trace?.called({ method, base, headers }) ?? headers,
    body: call.body,
    connectMs: call.deadlines.connectMs,
    exchange,
  };
}

/**
 * Notes that an answer has begun, and decodes it. Refuses redirects, invalid statuses and encodings
 * that cannot be unpacked.
 */
function receive(
  response: UpstreamResponse,
  exchange: Exchange,
  transport: Transport,
): UpstreamResponse {
  const { status, headers, body } = response;
  exchange.markFirstByte(status);
  exchange.trace?.answered(status);
  try {
    // Redirects are never followed, because upstreams are config. A 1xx or 9xx here is not a
    // response.
    const isRedirect = status >= 300 && status < 400;
    const isUnusable = isRedirect || status < 200 || status > 599;
    if (isUnusable) {
      body?.cancel();
      throw new GatewayError(
        "upstream_bad_response",
        isRedirect ? { failureCause: "redirect" } : {},
      );
    }
    return headers.get("content-encoding") ? toIdentityCoding(response, transport) : response;
  } catch (error) {
    exchange.trace?.failed(error);
    throw error;
  }
}

/** Reports a failed attempt to its replica and to the trace, and converts the error. */
function noteFailure(
  thrown: unknown,
  replica: Replica,
  { exchange, replicas, clock }: { exchange: Exchange; replicas: Replicas; clock: Clock },
): { readonly reason: unknown; readonly isNeverSent: boolean } {
  // Runtimes wrap or replace the reason of an abort, so it is read from the exchange.
  const error = exchange.reason ?? thrown;
  const code = GatewayError.is(error) ? error.code : undefined;
  const isNeverSent = error instanceof NeverSent || code === "upstream_connect_timeout";
  const isForeign = exchange.reason === undefined && code === undefined;
  const isReplicaFailure = isForeign || isNeverSent || code === "upstream_bad_response";
  // A slow response, or a caller that left, is not the replica's failure.
  if (!isReplicaFailure) replicas.undecided(replica);
  else replicas.failed(replica, clock.monotonic(), !isNeverSent);
  const cause = error instanceof NeverSent ? error.reason : error;
  const reason = isForeign ? toUpstreamError("upstream_unreachable", cause) : error;
  exchange.trace?.failed(reason);
  return { reason, isNeverSent };
}
