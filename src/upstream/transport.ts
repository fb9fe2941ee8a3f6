/**
 * The call to a provider, as the gateway needs it: it sends bytes and receives bytes in identity
 * coding, and follows no redirects.
 *
 * @module
 */
import type { AnyBody, Unpack } from "../http/message.ts";
import { fromReadableStream } from "../http/web.ts";
import type { FailureCause } from "../errors/outcomes.ts";

/** A request's body, kept in memory and counted until it is released. */
export interface HeldBody {
  /** The caller's bytes; `null` once they are released. */
  readonly bytes: Uint8Array | null;
  /** Releases the bytes. Safe to call again. */
  release(): void;
}

/** The early end of a call: like an `AbortSignal`, but without cost until the signal is needed. */
export interface Abortable {
  /** Reason to end the call in any state; `undefined` while the call can continue. */
  readonly reason: Error | undefined;
  /** The same as a signal, for APIs that need one. Created on demand. */
  readonly signal: AbortSignal;
  /** Registers a function that ends the call. @returns Removes it */
  onAbort(act: () => void): () => void;
  /** Ends the call for a reason that the transport itself detects: the connect deadline. */
  abort(reason: Error): void;
}

/** One call. */
export interface UpstreamCall {
  /**
   * Base URL of the upstream. Only its scheme, host and port are used here. All calls to the
   * upstream have the same object.
   */
  readonly base: URL;
  /**
   * Path and query, as in the request line. They are from the config, except for the encoded id of
   * a model.
   */
  readonly target: string;
  /** Method, in upper case. */
  readonly method: string;
  /** Lower-case names. */
  readonly headers: Record<string, string>;
  /**
   * The body; `null` without a body. The transport releases it when all of it was sent, or when no
   * more will be sent. Otherwise it is kept until the exchange is over. After {@link NeverSent},
   * the call is retried with the same body.
   */
  readonly body: HeldBody | null;
  /** Deadline for the connection, milliseconds. */
  readonly connectMs: number;
  /** The exchange that the call is part of: its abort ends the call. */
  readonly exchange: Abortable;
}

/** Response of an upstream: its header, and its unread body. */
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
 * The error of a transport if no byte of the call can have reached the upstream, so that the call
 * can be retried.
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
 * The error of a transport that knows the cause of a failure which the code of the original error
 * does not show.
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
   * @returns The response, as soon as its header has arrived
   * @throws {GatewayError} `upstream_bad_response` for an answer that is not valid HTTP
   * @throws {NeverSent} If no byte of the call can have arrived. Any other error means that no
   * response began
   * @throws {CallFailed} If the transport knows the cause. For other errors, `toFailureCause` reads
   * the code
   */
  send(call: UpstreamCall): Promise<UpstreamResponse>;
  /**
   * Unpacks the bodies of responses, and those of callers to read them. If left out, gzip is
   * unpacked, unless `fetch` has done so.
   */
  readonly unpack?: Unpack;
}

/**
 * Creates a transport over the global `fetch`, which works everywhere. It cannot distinguish
 * connecting from waiting, so no call counts as never sent. The deadline for the first byte
 * applies, and the connect deadline does not. `fetch` keeps a body until the end of the response
 * (measured on Bun, Deno and Node), so the body is not released earlier.
 *
 * @returns The transport
 */
export function createFetchTransport(): Transport {
  return {
    async send(call) {
      const { method, headers, body } = call;
      // If the connection ends before the answer, Deno sends a call with an array of bytes twice
      // (https://github.com/denoland/deno/pull/32566), and the provider would bill it twice. It
      // sends a Blob once.
      const response = await fetch(call.base.origin + call.target, {
        method,
        headers,
        // The bytes are never in shared memory, because they are from a network read.
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
