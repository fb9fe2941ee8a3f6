/**
 * HTTP/1.1 client with connections of its own, one call at a time on each, without the runtime's client. Unlike the
 * runtimes' clients, it decompresses nothing, follows no redirects and retries nothing, and it distinguishes connecting
 * from waiting for the answer.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import type { ByteSource } from "../../http/message.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { AnswerReader, type AnswerSink, Garbled } from "./response_parser.ts";
import { ConnectionPool, type Pooled } from "./connection_pool.ts";
import { CallFailed, NeverSent, type Transport, type UpstreamAnswer, type UpstreamCall } from "../transport.ts";
import { unpackNode } from "./unpack.ts";

/** A connection, as narrow as the client needs it. */
export interface ClientSocket {
  /** True if it can take a call, as far as is known. */
  readonly isAlive: boolean;
  /** True if all written bytes have been sent. */
  readonly isFlushed: boolean;
  /** Sends bytes, now or when there is room. */
  write(bytes: Uint8Array): void;
  /** Stops reading until {@link resume}, so that the other side has to wait. */
  pause(): void;
  resume(): void;
  /**
   * Sets whether the connection keeps the process running.
   *
   * @param isHeld Whether a process with nothing else to do stays for it
   */
  hold(isHeld: boolean): void;
  /** Closes it at whatever stage it is. */
  destroy(): void;
}

/** Events of a connection. None is reported before {@link Dial} has returned. */
export interface SocketEvents {
  /** Reports that it is connected and, if it is encrypted, that the server's identity is verified. */
  opened(): void;
  /** Reports that bytes that had to wait have been sent. Not called from within {@link ClientSocket.write}. */
  flushed(): void;
  /** Delivers received bytes, which nobody else writes to. */
  received(bytes: Buffer): void;
  /** Reports that the other side has sent its last byte. */
  ended(): void;
  /** Reports that it is closed. @param error The error that closed it, if any */
  closed(error: Error | undefined): void;
}

/**
 * Connects to the host of a URL, encrypted for `https:`.
 *
 * @param url Its host and port
 * @param events Receiver of its events
 * @returns The connection, not yet open
 */
export type Dial = (url: URL, events: SocketEvents) => ClientSocket;

/** Longest time an idle connection is kept: less than common load balancers keep them (60 s). Milliseconds. */
const IDLE_CONNECTION_MS = 50_000;
/** Longest time a connection is used: a new one goes to the address that the host name has by then. Milliseconds. */
const MAX_AGE_MS = 300_000;
/** Margin by which an idle connection is given up before the timeout that its server announces. Milliseconds. */
const IDLE_MARGIN_MS = 1000;
/** Number of an answer's bytes waiting for their reader at which reading from the upstream is paused. */
const MAX_QUEUED_BYTES = 65536;
/** Maximum size of a body that is sent in one piece with its header. Bytes. */
const SMALL_BODY_BYTES = 65536;

const NO_FIELD_TEXT = /[^\t\x20-\x7e\x80-\xff]/; // RFC 9110 §5.5
const KEEP_ALIVE_TIMEOUT = /\btimeout=(\d{1,6})\b/i;
const utf8 = new TextEncoder();
const ignore = (): void => {};

/** Serializes a request (RFC 9112 §3) in one or two pieces: a small body is in one piece with the head. */
function toRequest({ method, url, headers, body }: UpstreamCall): Uint8Array[] {
  let head = `${method} ${url.pathname}${url.search} HTTP/1.1\r\nhost: ${url.host}\r\n`;
  for (const name in headers) {
    const value = headers[name] ?? "";
    if (NO_FIELD_TEXT.test(name) || NO_FIELD_TEXT.test(value)) {
      throw new Error(`Cannot send the header ${JSON.stringify(name.slice(0, 40))}`);
    }
    head += `${name}: ${value}\r\n`;
  }
  const length = body?.byteLength ?? 0;
  head += body === null ? "\r\n" : `content-length: ${length}\r\n\r\n`;
  if (body === null) return [Buffer.from(head, "latin1")];
  if (length > SMALL_BODY_BYTES) return [Buffer.from(head, "latin1"), body];
  const bytes = Buffer.allocUnsafe(head.length + length);
  const { read, written } = utf8.encodeInto(head, bytes); // the same for ASCII, and on Deno many times as fast
  if (read !== written) bytes.write(head, "latin1");
  bytes.set(body, head.length);
  return [bytes];
}

/** A connection to an upstream, and the call that uses it. */
class Connection implements SocketEvents, AnswerSink, Pooled {
  /** Time from which it is given to no further call. Monotonic, milliseconds. */
  readonly usedUntil: number;
  /** Time until which it is kept while it is idle. Monotonic, milliseconds. */
  idleUntil = 0;
  readonly #pool: ConnectionPool<Connection>;
  readonly #socket: ClientSocket;
  readonly #reader: AnswerReader = new AnswerReader(this);
  /** The call that uses it; none while it is idle. */
  #call: Call | undefined;
  #idleMs = IDLE_CONNECTION_MS;
  #isOpen = false;

  constructor(dial: Dial, url: URL, pool: ConnectionPool<Connection>) {
    this.#pool = pool;
    this.usedUntil = pool.now() + MAX_AGE_MS;
    this.#socket = dial(url, this);
  }

  get isAlive(): boolean {
    return this.#socket.isAlive;
  }

  /** Returns whether it is connected, so that a call need not wait for it. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Sends a call, as soon as the connection is open. */
  carry(call: Call): void {
    this.#call = call;
    if (!this.#isOpen) return;
    this.#socket.hold(true);
    this.#send(call);
  }

  #send(call: Call): void {
    this.#reader.next();
    for (const piece of call.leaves()) this.#socket.write(piece);
    this.flushed();
  }

  flushed(): void {
    if (this.#isOpen && this.#socket.isFlushed) this.#call?.left(); // before that nothing was sent
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Closes the connection, so that the rest of an answer is not taken for the next one. */
  destroy(): void {
    this.#call = undefined;
    this.#socket.destroy();
  }

  opened(): void {
    if (this.#isOpen) return; // a second TLS handshake: the call is on its way
    this.#isOpen = true;
    if (this.#call !== undefined) this.#send(this.#call);
  }

  received(bytes: Buffer): void {
    if (this.#call === undefined || !this.#isOpen) return this.#fail(new Error("Nobody has asked yet"));
    try {
      this.#reader.feed(bytes);
    } catch (error) {
      if (!(error instanceof Garbled)) throw error;
      this.#fail(new GatewayError("upstream_bad_response", { cause: error }));
    }
  }

  ended(): void {
    // Whether it closes or not (it may wait for what is still to be written): no answer comes any more.
    if (!this.#reader.close()) this.#fail(new CallFailed("closed", "The connection ended before the answer"));
  }

  closed(error: Error | undefined): void {
    this.#pool.forget(this);
    this.#fail(error ?? new CallFailed("closed", "The connection closed before the end"));
  }

  #fail(error: Error): void {
    const call = this.#call;
    this.#call = undefined;
    this.#socket.destroy();
    call?.failed(this.#isOpen ? error : new NeverSent(error));
  }

  head(status: number, headers: Map<string, string>): void {
    const [, seconds] = KEEP_ALIVE_TIMEOUT.exec(headers.get("keep-alive") ?? "") ?? [];
    if (seconds !== undefined) this.#idleMs = Math.min(IDLE_CONNECTION_MS, Number(seconds) * 1000 - IDLE_MARGIN_MS);
    this.#call?.answer(status, headers);
  }

  data(bytes: Uint8Array): void {
    this.#call?.push(bytes);
  }

  end(): void {
    const call = this.#call;
    this.#call = undefined;
    if (this.#reader.isReusable && this.#socket.isFlushed && this.#idleMs > 0) {
      this.#socket.resume();
      this.#socket.hold(false);
      this.#pool.giveBack(this, this.#idleMs);
    } else this.#socket.destroy();
    call?.end();
  }
}

/** A call on its way, and the body of its answer. */
class Call implements ByteSource {
  readonly answered: Promise<UpstreamAnswer>;
  readonly #call: UpstreamCall;
  /** The request, until it is handed to a connection. */
  #request: readonly Uint8Array[];
  readonly #connection: Connection;
  readonly #forgetAbort: () => void;
  #resolve: (answer: UpstreamAnswer) => void = ignore;
  #reject: (error: unknown) => void = ignore;
  #connectTimer: ReturnType<typeof setTimeout> | undefined;
  #chunks: Uint8Array[] = [];
  #queuedBytes = 0;
  #isPaused = false;
  #isOver = false;
  #failure: Error | undefined;
  #wake = ignore;

  constructor(call: UpstreamCall, connect: () => Connection) {
    this.#call = call;
    this.#request = toRequest(call);
    this.answered = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#connection = connect();
    this.#forgetAbort = call.onAbort(() => this.#stop(call.reason ?? new Error("It is not wanted any more")));
    if (!this.#connection.isOpen) {
      const late = () => call.abort(new GatewayError("upstream_connect_timeout"));
      this.#connectTimer = setTimeout(late, call.connectMs);
    }
    this.#connection.carry(this);
  }

  /** Hands over the request, when it begins to be sent. @returns The request, which is not kept here */
  leaves(): readonly Uint8Array[] {
    this.#stopConnectTimer();
    const request = this.#request;
    this.#request = [];
    return request;
  }

  /** Reports that no byte of the request waits to be sent. */
  left(): void {
    this.#call.releaseBody();
  }

  answer(status: number, headers: Map<string, string>): void {
    this.#resolve({ status, headers, body: this });
  }

  push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#queuedBytes += chunk.byteLength;
    if (this.#queuedBytes >= MAX_QUEUED_BYTES && !this.#isPaused) {
      this.#isPaused = true;
      this.#connection.pause();
    }
    this.#wake();
  }

  end(): void {
    this.#over();
    this.left(); // also of an answer that did not wait for the whole request: the connection is gone
  }

  #over(): void {
    this.#isOver = true;
    this.#stopConnectTimer();
    this.#forgetAbort();
    this.#wake();
  }

  #stopConnectTimer(): void {
    if (this.#connectTimer !== undefined) clearTimeout(this.#connectTimer);
  }

  failed(error: Error): void {
    this.#failure = error;
    this.#over();
    if (this.#request.length === 0) this.left(); // else none of it left, and it may be sent elsewhere
    this.#reject(error);
  }

  /** Returns whether all of the body has arrived. */
  get isWhole(): boolean {
    return this.#isOver && this.#failure === undefined;
  }

  /** Returns all bytes that have arrived, in one piece; waits if there are none. */
  async read(): Promise<Uint8Array | undefined> {
    while (this.#chunks.length === 0) {
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#isOver) return undefined;
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
    const [first] = this.#chunks;
    const bytes = this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks, this.#queuedBytes);
    this.#chunks = [];
    this.#queuedBytes = 0;
    if (this.#isPaused && !this.#isOver) {
      this.#isPaused = false;
      this.#connection.resume();
    }
    return bytes;
  }

  cancel(): void {
    this.#chunks = [];
    if (!this.#isOver) this.#stop(new Error("The rest of the answer is not wanted"));
    this.#failure = undefined;
  }

  #stop(reason: Error): void {
    if (this.#isOver) return;
    this.#connection.destroy();
    this.failed(reason);
  }
}

/**
 * Creates a transport that keeps its connections for further calls.
 *
 * @param dial Opens a connection
 * @param now Clock for the age of connections, monotonic milliseconds
 * @returns The transport
 */
export function createHttp1Transport(dial: Dial, now: () => number = () => performance.now()): Transport {
  const pools = new Map<string, ConnectionPool<Connection>>();
  return {
    unpack: unpackNode,
    send(call) {
      if (call.reason !== undefined) return Promise.reject(call.reason);
      const { origin } = call.url;
      const pool = pools.get(origin) ?? new ConnectionPool<Connection>(now);
      pools.set(origin, pool);
      try {
        return new Call(call, () => pool.take() ?? new Connection(dial, call.url, pool)).answered;
      } catch (error) {
        return Promise.reject(new NeverSent(error));
      }
    },
  };
}
