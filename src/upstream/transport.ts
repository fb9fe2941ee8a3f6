/**
 * The call to a provider, as the gateway needs it: bytes out, bytes back, identity-coded, no
 * redirect followed.
 *
 * @module
 */
import type { AnyBody, ByteSource } from "../http/message.ts";
import { fromReadableStream } from "../http/web.ts";
import type { FailureCause } from "../errors/outcomes.ts";

/** A request's body, held in memory, and counted, until it is released. */
export interface HeldBody {
  /** The caller's bytes; `null` once they are released. */
  readonly bytes: Uint8Array | null;
  /** Releases the bytes. Safe to call again. */
  release(): void;
}

/**
 * The end of a call before its time: like an `AbortSignal`, but it costs nothing until a signal is
 * asked for.
 */
export interface Abortable {
  /** Reason to end the call, at whatever stage it is; `undefined` as long as it may go on. */
  readonly reason: Error | undefined;
  /** The same as a signal, for APIs that take nothing else. Created on demand. */
  readonly signal: AbortSignal;
  /** Registers a function that ends the call. @returns Removes it */
  onAbort(act: () => void): () => void;
  /** Ends the call for a reason that the transport itself finds: the connect deadline. */
  abort(reason: Error): void;
}

/** One call. */
export interface UpstreamCall {
  /**
   * Base URL of the upstream, of which scheme, host and port count here. The same object for all
   * calls to it.
   */
  readonly base: URL;
  /**
   * Path and query, as the request line states them: from config alone, but for the encoded id of a
   * model.
   */
  readonly target: string;
  /** Method, in upper case. */
  readonly method: string;
  /** Lower-case names. */
  readonly headers: Record<string, string>;
  /**
   * The body; `null` where there is none. The transport releases it when all of it is sent, or no
   * more of it will be; otherwise it is held until the exchange is over. A call that throws {@link
   * NeverSent} is made again with it.
   */
  readonly body: HeldBody | null;
  /** Deadline for the connection, milliseconds. */
  readonly connectMs: number;
  /** The exchange that the call is part of: its abort ends the call. */
  readonly exchange: Abortable;
}

/** Response of an upstream: its header, and its body to be read. */
export interface UpstreamResponse {
  /** HTTP status. */
  readonly status: number;
  /** Lower-case names. */
  readonly headers: {
    get(name: string): string | null | undefined;
    forEach(act: (value: string, name: string) => void): void;
  };
  /** The body, unread: pushed or pulled. */
  readonly body: AnyBody | null;
}

/**
 * The error of a transport when no byte of the call can have reached the upstream: the call may be
 * made again.
 */
export class NeverSent extends Error {
  override readonly name = "NeverSent";
  /** The original error. */
  readonly reason: unknown;

  /** @param reason The original error */
  constructor(reason: unknown) {
    super("The call never left");
    this.reason = reason;
  }
}

/**
 * The error of a transport that knows why a call failed, where the error below it does not tell by
 * its code.
 */
export class CallFailed extends Error {
  override readonly name = "CallFailed";
  /** Cause of the failure. */
  readonly failureCause: FailureCause;

  /**
   * @param failureCause Cause of the failure
   * @param message The same in words, for an operator
   * @param options The original error, as its `cause`
   */
  constructor(failureCause: FailureCause, message: string, options?: ErrorOptions) {
    super(message, options);
    this.failureCause = failureCause;
  }
}

/**
 * Port: the transport, which sends calls to a provider.
 *
 * @example A provider for tests, without a network
 * ```ts
 * import { createGateway, parseConfig, type Transport } from "sallyport";
 *
 * const calls: string[] = [];
 * const transport: Transport = {
 *   send({ method, target, body }) {
 *     calls.push(`${method} ${target}`);
 *     body?.release();
 *     const headers = new Headers({ "content-type": "application/json" });
 *     return Promise.resolve({ status: 200, headers, body: null });
 *   },
 * };
 * const keys = [{ id: "me", key: "a-key-of-your-own" }];
 * const gateway = createGateway(parseConfig({ providers: { a: { upstream: "openai" } }, keys }), { transport });
 * ```
 */
export interface Transport {
  /**
   * Sends a call.
   *
   * @param call The call
   * @returns The response, as soon as its header is there
   * @throws {GatewayError} `upstream_bad_response` for what is no readable HTTP
   * @throws {NeverSent} When not a byte of the call can have arrived; anything else it throws means
   * that no response began
   * @throws {CallFailed} Where the transport knows why; of any other error `toFailureCause` looks
   * at the code
   */
  send(call: UpstreamCall): Promise<UpstreamResponse>;
  /**
   * Unpacks the body of a response in a content encoding, no further than its reader reads. One
   * that ends too early, or is followed by something else, rejects. If left out, gzip is unpacked,
   * as far as `fetch` has not done so.
   *
   * @param coding One coding, lower case, such as `gzip`
   * @param body The packed body
   * @returns The unpacked one, or `undefined` for a coding that can't be read
   */
  unpack?(coding: string, body: ByteSource): ByteSource | undefined;
}

/**
 * Creates a transport over the global `fetch`, which works anywhere. It can't distinguish
 * connecting from waiting, so that no call counts as never sent, and the connect deadline is not
 * watched: the one for the first byte is. It holds a body until the end of the response (measured
 * on Bun, Deno and Node), so that the body is not released before.
 *
 * @returns The transport
 */
export function createFetchTransport(): Transport {
  return {
    async send(call) {
      const { method, headers, body } = call;
      // Deno sends a call with an array of bytes twice where the connection ends before the answer
      // (https://github.com/denoland/deno/pull/32566): the provider would bill it twice. It sends a
      // Blob once.
      const response = await fetch(call.base.origin + call.target, {
        method,
        headers,
        // The bytes are never in shared memory: they come from a network read.
        body: body && new Blob([body.bytes as Uint8Array<ArrayBuffer>]),
        redirect: "manual",
        signal: call.exchange.signal,
      });
      return {
        status: response.status,
        headers: response.headers,
        body: response.body && fromReadableStream(response.body),
      };
    },
  };
}
