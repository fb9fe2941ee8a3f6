/**
 * HTTP/1.1 client with its own connections: the calls, each with its request and the body of its
 * response. Its guarantees and a map of its files are in the README of this folder.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { GatewayError } from "../../errors/gateway_error.ts";
import { type Clock, systemClock } from "../../exchange/clock.ts";
import type { ByteSink, PushedBody } from "../../http/message.ts";
import { joinChunks } from "../../http/read_all.ts";
import {
  type HeldBody,
  NeverSent,
  type Transport,
  type UpstreamCall,
  type UpstreamResponse,
} from "../transport.ts";
import {
  type Connection,
  type ConnectionCall,
  ConnectionPool,
  type Dial,
  PIECE_BYTES,
} from "./connection.ts";
import { unpackNode } from "./unpack.ts";

const NO_FIELD_TEXT = /[^\t\x20-\x7e\x80-\xff]/; // RFC 9110 §5.5
const utf8 = new TextEncoder();
const ignore = (): void => {};

/**
 * Serializes a request (RFC 9112 §3).
 *
 * @returns One or two pieces: a small body is in one piece with the header
 * @throws For a header that could be read as two
 */
function toRequest(call: UpstreamCall, host: string): readonly Uint8Array[] {
  const { method, target, headers, body } = call;
  let head = `${method} ${target} HTTP/1.1\r\nhost: ${host}\r\n`;
  for (const name in headers) {
    const value = headers[name] as string;
    if (NO_FIELD_TEXT.test(name) || NO_FIELD_TEXT.test(value)) {
      throw new Error(`Cannot send the header ${JSON.stringify(name.slice(0, 40))}`);
    }
    head += `${name}: ${value}\r\n`;
  }
  const bytes = body?.bytes ?? null;
  if (bytes === null) {
    // RFC 9110 §8.6: for methods that usually have a body, servers can refuse a request without a
    // length.
    if (method.startsWith("P")) head += "content-length: 0\r\n";
    return [Buffer.from(`${head}\r\n`, "latin1")];
  }
  head += `content-length: ${bytes.byteLength}\r\n\r\n`;
  if (bytes.byteLength > PIECE_BYTES) return [Buffer.from(head, "latin1"), bytes];
  const request = Buffer.allocUnsafe(head.length + bytes.byteLength);
  // ASCII has the same bytes in UTF-8, and Deno writes them in 2 µs instead of 6.
  const { read, written } = utf8.encodeInto(head, request);
  if (read !== written) request.write(head, "latin1");
  request.set(bytes, head.length);
  return [request];
}

/** A running call, and the body of its response. */
class ClientCall implements PushedBody, ConnectionCall {
  readonly isHead: boolean;
  readonly #body: HeldBody | null;
  readonly #connection: Connection;
  /** The request, until the connection sends it. */
  #request: readonly Uint8Array[];
  readonly #forgetAbort: () => void;
  #cancelConnectTimer = ignore;
  #resolve: (response: UpstreamResponse) => void = ignore;
  #reject: (error: unknown) => void = ignore;
  #chunks: Uint8Array[] = [];
  #queuedBytes = 0;
  #isPaused = false;
  #isOver = false;
  #failure: Error | undefined;
  /** Receiver of the body; `undefined` until there is one, and after its end. */
  #sink: ByteSink | undefined;
  /** True while the receiver accepts no more bytes. */
  #isHeld = false;

  constructor(
    call: UpstreamCall,
    request: readonly Uint8Array[],
    connection: Connection,
    clock: Clock,
  ) {
    const { method, body, exchange, connectMs } = call;
    this.isHead = method === "HEAD";
    this.#body = body;
    this.#request = request;
    this.#connection = connection;
    this.#forgetAbort = exchange.onAbort(() =>
      this.#stop(exchange.reason ?? new Error("The call was aborted"))
    );
    if (!connection.isOpen) {
      const onLate = () =>
        exchange.abort(
          new GatewayError("upstream_connect_timeout", { failureCause: connection.lateCause }),
        );
      this.#cancelConnectTimer = clock.timer(connectMs, onLate);
    }
  }

  /** Sends the request. @returns The response, as soon as its header has arrived */
  send(): Promise<UpstreamResponse> {
    const response = new Promise<UpstreamResponse>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#connection.run(this);
    return response;
  }

  takeRequest(): readonly Uint8Array[] {
    this.#cancelConnectTimer();
    this.#cancelConnectTimer = ignore;
    const request = this.#request;
    this.#request = [];
    return request;
  }

  sent(): void {
    this.#body?.release();
  }

  head(status: number, headers: Map<string, string>): void {
    this.#resolve({ status, headers, body: this });
    // These functions would keep the header in memory until the body ends.
    this.#resolve = this.#reject = ignore;
  }

  data(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#queuedBytes += chunk.byteLength;
  }

  fed(): void {
    this.#deliver();
    const isPauseDue = this.#queuedBytes >= PIECE_BYTES && !this.#isPaused && !this.#isOver;
    if (!isPauseDue) return;
    this.#isPaused = true;
    this.#connection.pause();
  }

  end(): void {
    this.#over();
    // Also after a response that did not wait for the whole request, because the connection is
    // closed.
    this.#body?.release();
  }

  fail(error: Error): void {
    this.#failure = error;
    this.#over();
    // Otherwise no byte was sent, and the request can be sent elsewhere.
    if (this.#request.length === 0) this.#body?.release();
    this.#reject(error);
    this.#deliver();
  }

  #over(): void {
    this.#isOver = true;
    this.#cancelConnectTimer();
    this.#forgetAbort();
  }

  get isWhole(): boolean {
    return this.#isOver && this.#failure === undefined;
  }

  pushTo(sink: ByteSink): () => void {
    this.#sink = sink;
    this.#deliver();
    return () => {
      this.#isHeld = false;
      this.#deliver();
    };
  }

  /**
   * Delivers the received bytes, and the end. Never called from within the parser, because the
   * receiver can begin another call.
   */
  #deliver(): void {
    const sink = this.#sink;
    if (sink === undefined || this.#isHeld) return;
    if (this.#chunks.length > 0) {
      this.#isHeld = !sink.write(this.#take());
      if (this.#isHeld) return;
    }
    if (!this.#isOver || this.#sink === undefined) return;
    this.#sink = undefined;
    if (this.#failure === undefined) sink.end();
    else sink.fail(this.#failure);
  }

  /** Returns and removes all bytes that have arrived, in one piece. */
  #take(): Uint8Array {
    const bytes = joinChunks(this.#chunks);
    this.#chunks = [];
    this.#queuedBytes = 0;
    if (this.#isPaused && !this.#isOver) this.#connection.resume();
    this.#isPaused = false;
    return bytes;
  }

  cancel(): void {
    this.#chunks = [];
    this.#sink = undefined;
    this.#stop(new Error("The rest of the response is not wanted"));
  }

  #stop(reason: Error): void {
    if (this.#isOver) return;
    this.#connection.destroy();
    this.fail(reason);
  }
}

/** Creates a transport that keeps its connections for further calls. */
export function createHttp1Transport(dial: Dial, clock: Clock = systemClock): Transport {
  const pools = new Map<string, ConnectionPool>();
  return {
    unpack: unpackNode,
    send(call) {
      const { base, exchange } = call;
      if (exchange.reason !== undefined) return Promise.reject(exchange.reason);
      const { origin } = base;
      let pool = pools.get(origin);
      if (pool === undefined) pools.set(origin, pool = new ConnectionPool(dial, base, clock));
      try {
        return new ClientCall(call, toRequest(call, pool.host), pool.acquire(), clock).send();
      } catch (error) {
        return Promise.reject(new NeverSent(error));
      }
    },
  };
}
