/**
 * Plain answers that are sent to the caller in one piece.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import type { Exchange } from "../exchange/exchange.ts";
import { type AnyBody, type ByteSource, SMALL_BODY_BYTES } from "../http/message.ts";
import { readAll, type ReadAllOptions } from "../http/read_all.ts";
import { toUpstreamError } from "./failure_cause.ts";
import type { UpstreamResponse } from "./transport.ts";

/**
 * Returns whether a plain answer is small enough to be sent in one piece. An error can then replace
 * it.
 *
 * @param headers The upstream's headers. The length of a packed body is not used
 * @returns Whether it has arrived already, or its announced length is small
 */
export function isSmall(headers: UpstreamResponse["headers"], body: AnyBody): boolean {
  if (headers.get("content-encoding")) return false;
  return body.isWhole === true ||
    Number(headers.get("content-length") ?? Infinity) <= SMALL_BODY_BYTES;
}

/** Conditions of a read. */
export interface ReadWholeOptions extends Pick<ReadAllOptions, "accept"> {
  readonly exchange: Exchange;
  /** The longest time without a byte, milliseconds. */
  readonly idleMs: number;
  readonly clock: Clock;
}

/**
 * Reads a plain answer to its end.
 *
 * @param options As for a relay; the exchange is left open
 * @throws {GatewayError} `upstream_disconnected`, `upstream_idle_timeout`, or the reason why the
 * exchange was aborted
 */
export async function readWhole(
  body: AnyBody,
  options: ReadWholeOptions,
): Promise<Uint8Array> {
  const { exchange, idleMs, clock, accept } = options;
  try {
    return await readAll(body, {
      accept,
      exchange,
      deadline: { ms: idleMs, isOfSilence: true, code: "upstream_idle_timeout", clock },
      toError: (cause) => toUpstreamError("upstream_disconnected", cause),
    });
  } catch (error) {
    body.cancel();
    throw error;
  }
}

/** Makes a complete body of bytes. */
export function fromBytes(bytes: Uint8Array): ByteSource {
  let rest: Uint8Array | undefined = bytes;
  return {
    isWhole: true,
    read() {
      const read = rest;
      rest = undefined;
      return Promise.resolve(read);
    },
    cancel() {},
  };
}
