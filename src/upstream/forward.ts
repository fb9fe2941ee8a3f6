/**
 * One upstream call: its deadlines, and every foreign failure translated where it occurs.
 *
 * @module
 */
import { GatewayError } from "../errors.ts";
import type { Clock, Exchange } from "../exchange.ts";
import { toIdentityCoding, type Transport, type UpstreamAnswer } from "./transport.ts";

/** Points in time that a call must reach, milliseconds from when it is sent. */
export interface Deadlines {
  /** The connection is there. */
  readonly connectMs: number;
  /** The answer's header is there. */
  readonly firstByteMs: number;
  /** The longest silence in a stream; comments do not count as speech. */
  readonly idleMs: number;
  /** The answer is complete. */
  readonly totalMs: number;
}

/** What to send where. */
export interface ForwardCall {
  readonly url: URL;
  readonly method: string;
  readonly headers: Record<string, string>;
  readonly body: Uint8Array | null;
  readonly deadlines: Deadlines;
}

/**
 * Sends a call and waits for the header of its answer.
 *
 * @param call What to send where
 * @param exchange Its abort ends the call; the total deadline stays until it is settled
 * @param parts The transport and the clock
 * @returns The answer, identity-coded
 * @throws {GatewayError} `upstream_unreachable`, `upstream_bad_response`, `upstream_*_timeout`; {@link ClientClosed} when the caller left
 */
export async function forward(
  call: ForwardCall,
  exchange: Exchange,
  { transport, clock }: { transport: Transport; clock: Clock },
): Promise<UpstreamAnswer> {
  const { deadlines, ...rest } = call;
  const expire = (code: "upstream_first_byte_timeout" | "upstream_timeout") => () =>
    exchange.abort(new GatewayError(code));
  exchange.onSettled(clock.timer(deadlines.totalMs, expire("upstream_timeout")));
  const cancelFirstByte = clock.timer(deadlines.firstByteMs, expire("upstream_first_byte_timeout"));
  const { signal } = exchange;
  try {
    signal.throwIfAborted();
    const abort = (reason: GatewayError) => exchange.abort(reason);
    const answer = await transport.send({ ...rest, connectMs: deadlines.connectMs, signal, abort });
    exchange.markFirstByte();
    // A redirect is never followed: upstreams are config. A 1xx or 9xx here is no answer.
    if (answer.status < 200 || answer.status > 599 || (answer.status >= 300 && answer.status < 400)) {
      answer.body?.cancel();
      throw new GatewayError("upstream_bad_response");
    }
    return toIdentityCoding(answer);
  } catch (error) {
    // Runtimes wrap or replace an abort's reason, each in its own way: the signal keeps it.
    if (signal.aborted) throw signal.reason;
    throw GatewayError.is(error) ? error : new GatewayError("upstream_unreachable", { cause: error });
  } finally {
    cancelFirstByte();
  }
}
