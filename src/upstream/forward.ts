/**
 * One upstream call: its replica, its deadlines, its one guarded retry, and every foreign failure translated where it
 * occurs.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import type { Exchange } from "../exchange/exchange.ts";
import { toUpstreamError } from "./failure_cause.ts";
import type { Replica, Replicas } from "./replicas.ts";
import { NeverSent, type Transport, type UpstreamAnswer, type UpstreamCall } from "./transport.ts";
import { toIdentityCoding } from "./unpack.ts";

/** Deadlines of a call. Milliseconds from when it is sent, unless stated otherwise. */
export interface Deadlines {
  /** Deadline for the connection. */
  readonly connectMs: number;
  /** Deadline for the answer's header. */
  readonly firstByteMs: number;
  /** Deadline for the first event of a stream, counted from its header. */
  readonly firstEventMs: number;
  /** The longest silence in an answer; after the first event of a stream, comments do not end it. */
  readonly idleMs: number;
  /** Deadline for the complete answer. */
  readonly totalMs: number;
}

/** Header with the caller's own timeout in seconds, as the OpenAI client libraries send it. */
const CALLER_TIMEOUT = "x-stainless-timeout";
const SECONDS = /^\d+(?:\.\d+)?$/;

/**
 * Converts the caller's timeout to milliseconds. Client libraries cut it to whole seconds (`Math.trunc` in openai-node,
 * `int` in openai-go): 1 stands for a timeout below 2 s, and 0 for one below 1 s.
 */
function toCallerMs(text: string): number {
  if (!SECONDS.test(text)) return NaN;
  return (text.includes(".") ? Number(text) : Number(text) + 1) * 1000;
}

/**
 * Shortens the deadlines to the caller's own timeout: nobody waits for what comes later. In the client libraries, the
 * timeout of a stream ends with its header, that of a plain answer with its last byte.
 *
 * @param deadlines Deadlines of the provider
 * @param headers The caller's headers
 * @param isStream Whether the caller asked for a stream
 * @returns The deadlines of this call
 */
export function shorten(
  deadlines: Deadlines,
  headers: { get(name: string): string | null },
  isStream: boolean,
): Deadlines {
  const callerMs = toCallerMs(headers.get(CALLER_TIMEOUT) ?? "");
  if (!(callerMs > 0)) return deadlines;
  return {
    ...deadlines,
    firstByteMs: Math.min(deadlines.firstByteMs, callerMs),
    totalMs: isStream ? deadlines.totalMs : Math.min(deadlines.totalMs, callerMs),
  };
}

/** Body of a request, held in memory until it is sent. */
export interface HeldBody {
  /** The bytes; `null` once they are released. */
  readonly bytes: Uint8Array | null;
  /** Releases the bytes. Safe to call again. */
  release(): void;
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

/** URL of each replica's last call: nearly every call has the same, and building one costs more than sending it. */
const lastUrls = new WeakMap<Replica, { readonly path: string; readonly url: URL }>();

function toUrl(replica: Replica, path: string): URL {
  const last = lastUrls.get(replica);
  if (last?.path === path) return last.url;
  const url = new URL(replica.url + path);
  lastUrls.set(replica, { path, url });
  return url;
}

/**
 * Sends a call and waits for the header of its answer.
 *
 * A second call is made only when the first provably never left, and to another replica. A kept connection that breaks
 * before an answer is no such case: its bytes may have arrived, and a call that arrives twice is billed twice.
 *
 * @param call The call to send
 * @param exchange Its abort ends the call; the total deadline stays until it is settled
 * @param parts Replicas, transport and clock
 * @returns The answer, identity-coded
 * @throws {GatewayError} `upstream_unreachable`, `upstream_bad_response`, `upstream_unsupported_encoding`,
 *   `upstream_*_timeout`
 * @throws {ClientClosed} When the caller left
 */
export async function forward(call: ForwardCall, exchange: Exchange, parts: ForwardParts): Promise<UpstreamAnswer> {
  const { replicas, transport, clock } = parts;
  const { totalMs, firstByteMs } = call.deadlines;
  exchange.onSettled(clock.timer(totalMs, () => exchange.abort(new GatewayError("upstream_timeout"))));
  let replica = replicas.pick(clock.monotonic());
  for (let isSecond = false;; isSecond = true) {
    const sentAt = exchange.elapsed();
    exchange.facts.replica = replica.index;
    const late = () => exchange.abort(new GatewayError("upstream_first_byte_timeout"));
    const cancelFirstByte = clock.timer(firstByteMs, late);
    let answer: UpstreamAnswer;
    try {
      answer = await transport.send(toOutgoing(call, replica, exchange));
    } catch (error) {
      const failure = translate(error, exchange.reason, replica, parts);
      const reason = failure instanceof NeverSent ? failure.reason : failure;
      exchange.trace?.failed(reason);
      const second: Replica | undefined = failure instanceof NeverSent && !isSecond
        ? replicas.pickAgain(clock.monotonic(), replica)
        : undefined;
      if (second === undefined) throw reason;
      exchange.resume(reason);
      replica = second;
      continue;
    } finally {
      exchange.waitedUpstream(sentAt);
      cancelFirstByte();
    }
    replicas.succeeded(replica); // whatever it says: a 503 for one model must not take the replica from the others
    return receive(answer, exchange, transport);
  }
}

/** A call for a transport. It is a class so that its signal is created only when a transport asks for it. */
class Outgoing implements UpstreamCall {
  readonly url: URL;
  readonly method: string;
  readonly headers: Record<string, string>;
  readonly connectMs: number;
  readonly #body: HeldBody | null;
  readonly #exchange: Exchange;

  constructor(
    { method, body }: ForwardCall,
    { url, headers, connectMs }: Pick<UpstreamCall, "url" | "headers" | "connectMs">,
    exchange: Exchange,
  ) {
    this.url = url;
    this.method = method;
    this.headers = headers;
    this.connectMs = connectMs;
    this.#body = body;
    this.#exchange = exchange;
  }

  get body(): Uint8Array | null {
    return this.#body?.bytes ?? null;
  }

  releaseBody(): void {
    this.#body?.release();
  }

  get reason(): Error | undefined {
    return this.#exchange.reason;
  }

  get signal(): AbortSignal {
    return this.#exchange.signal;
  }

  onAbort(act: () => void): () => void {
    return this.#exchange.onAbort(act);
  }

  abort(reason: GatewayError): void {
    this.#exchange.abort(reason);
  }
}

function toOutgoing(call: ForwardCall, replica: Replica, exchange: Exchange): UpstreamCall {
  if (exchange.reason !== undefined) throw exchange.reason;
  const url = toUrl(replica, call.path);
  const { method } = call;
  const headers = exchange.trace?.called({ method, url, headers: call.headers }) ?? call.headers;
  return new Outgoing(call, { url, headers, connectMs: call.deadlines.connectMs }, exchange);
}

/** Decodes an answer. Refuses redirects, invalid statuses and encodings that can't be unpacked. */
function receive(answer: UpstreamAnswer, exchange: Exchange, transport: Transport): UpstreamAnswer {
  exchange.markFirstByte();
  exchange.trace?.answered(answer.status);
  try {
    // A redirect is never followed: upstreams are config. A 1xx or 9xx here is no answer.
    const isRedirect = answer.status >= 300 && answer.status < 400;
    if (isRedirect || answer.status < 200 || answer.status > 599) {
      answer.body?.cancel();
      throw new GatewayError("upstream_bad_response", isRedirect ? { failureCause: "redirect" } : {});
    }
    return toIdentityCoding(answer, transport);
  } catch (error) {
    exchange.trace?.failed(error);
    throw error;
  }
}

/** Reports a failure to the replicas, and translates what was thrown to an error of the gateway. */
function translate(error: unknown, aborted: Error | undefined, replica: Replica, parts: ForwardParts): unknown {
  const { replicas } = parts;
  const now = parts.clock.monotonic();
  // Runtimes wrap or replace an abort's reason, each in its own way: the exchange keeps it.
  if (aborted !== undefined) {
    if (!GatewayError.is(aborted) || aborted.code !== "upstream_connect_timeout") {
      replicas.forgotten(replica); // a slow answer, or a caller that left, is not the replica's failure
      return aborted;
    }
    replicas.failed(replica, now, false);
    return new NeverSent(aborted);
  }
  if (GatewayError.is(error)) {
    if (error.code === "upstream_bad_response") replicas.failed(replica, now);
    return error;
  }
  replicas.failed(replica, now, !(error instanceof NeverSent));
  if (!(error instanceof NeverSent)) return toUpstreamError("upstream_unreachable", error);
  return new NeverSent(toUpstreamError("upstream_unreachable", error.reason));
}
