/**
 * Connections to an upstream, each for one call at a time, the pool in which they wait for the next
 * call, and the port to the sockets below them.
 *
 * @module
 */
import type { Buffer } from "node:buffer";
import { clearImmediate, setImmediate } from "node:timers";
import type { Clock } from "../../exchange/clock.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import type { FailureCause } from "../../errors/outcomes.ts";
import { CallFailed, NeverSent } from "../transport.ts";
import { MalformedResponse } from "./head_reader.ts";
import { JsonEnd } from "./json_end.ts";
import { ResponseParser, type ResponseSink } from "./response_parser.ts";

/**
 * Size of one read from a socket, and of the largest body that is sent together with its header.
 * Bytes.
 */
export const PIECE_BYTES = 65536;

/**
 * Bytes that a connection reads before other connections are served. Some bodies cost 50 ms of work
 * per megabyte.
 */
const TURN_BYTES = 4 * PIECE_BYTES;

/** Port: a connected or connecting socket, with only the members that the client needs. */
export interface ClientSocket {
  /** True if it can run a call, as far as is known. */
  readonly isAlive: boolean;
  /** True if all written bytes have been sent. */
  readonly isFlushed: boolean;
  /**
   * Cause of the failure if it is not open in time; `undefined` for the usual cause of a deadline.
   */
  readonly lateCause?: FailureCause | undefined;
  /** Sends bytes, at once or when there is room. */
  write(bytes: Uint8Array): void;
  /** Stops reading until {@link resume}, so that the other side must wait. */
  pause(): void;
  /** Continues reading. No effect if it was not paused. */
  resume(): void;
  /** Keeps the process running while the connection is open. Every new connection does so. */
  ref(): void;
  /** Lets the process exit if nothing else runs. */
  unref(): void;
  /** Closes it in any state. */
  destroy(): void;
}

/** Events of a socket. None is reported before {@link Dial} has returned. */
export interface SocketEvents {
  /**
   * Reports that it is connected and, if it is encrypted, that the server's identity is verified.
   */
  opened(): void;
  /**
   * Reports that bytes that had to wait have been sent. Not called from within {@link
   * ClientSocket.write}.
   */
  flushed(): void;
  /** Delivers received bytes. No other code writes to them. */
  received(bytes: Buffer): void;
  /** Reports that the other side has sent its last byte. */
  ended(): void;
  /** Reports that it is closed. @param error The error that closed it, if any */
  closed(error: Error | undefined): void;
}

/** Connects to the host of a URL, encrypted for `https:`. */
export type Dial = (url: URL, events: SocketEvents) => ClientSocket;

/** The call that uses a connection, and receives its response. */
export interface ConnectionCall extends ResponseSink {
  /** True for a `HEAD`, whose response has no body. */
  readonly isHead: boolean;
  /** Returns the request, in pieces, when its sending begins. */
  takeRequest(): readonly Uint8Array[];
  /** Reports that no byte of the request waits to be sent. */
  sent(): void;
  /** Reports that all bytes of one read have been delivered. */
  fed(): void;
  /** Reports that no complete response will arrive. */
  fail(error: Error): void;
}

/** Idle connections kept for each upstream. */
const MAX_IDLE_CONNECTIONS = 1024;
/**
 * Longest time that a connection is used. A new connection then uses the current address of the
 * host name. Milliseconds.
 */
const MAX_AGE_MS = 300_000;
/** Interval of the search for old idle connections. Milliseconds. */
const SWEEP_MS = 5000;
/**
 * Longest time that an idle connection is kept. It is shorter than in common load balancers (60 s).
 * Milliseconds.
 */
const IDLE_CONNECTION_MS = 50_000;
/**
 * Time before the server's announced timeout at which an idle connection is closed. Milliseconds.
 */
const IDLE_MARGIN_MS = 1000;
/**
 * Time for which a connection runs no call after an error status (400 or higher). Some servers,
 * such as uvicorn, close it a few milliseconds after such an answer without an announcement, and
 * the next call would be lost. Milliseconds.
 */
const COOLDOWN_MS = 250;
const FIRST_ERROR = 400;
const KEEP_ALIVE_TIMEOUT = /\btimeout=(\d{1,6})\b/i;

/** A connection to an upstream, and the call that uses it. */
export class Connection implements SocketEvents, ResponseSink {
  /** Time after which no new call uses it. Monotonic, milliseconds. */
  readonly usedUntil: number;
  /** Time until which the pool keeps it while it is idle. Monotonic, milliseconds. */
  idleUntil = 0;
  readonly #pool: ConnectionPool;
  readonly #socket: ClientSocket;
  readonly #parser: ResponseParser = new ResponseParser(this);
  /** End of a body over TLS that ends with its connection. */
  #end: JsonEnd | undefined;
  /** The call that uses it; `undefined` while it is idle. */
  #call: ConnectionCall | undefined;
  #idleMs = IDLE_CONNECTION_MS;
  #cooldownMs = 0;
  #isOpen = false;
  /** True while the call accepts no more bytes. */
  #isPaused = false;
  /** Set while other connections are served. */
  #nextTurn: ReturnType<typeof setImmediate> | undefined;
  /** Bytes read since the last time that it yielded. */
  #turnBytes = 0;

  /** @param usedUntil Time from which it is given to no further call. Monotonic, milliseconds */
  constructor(
    connect: (events: SocketEvents) => ClientSocket,
    pool: ConnectionPool,
    usedUntil: number,
  ) {
    this.#pool = pool;
    this.usedUntil = usedUntil;
    this.#socket = connect(this);
  }

  /** True if it can run a call, as far as is known. */
  get isAlive(): boolean {
    return this.#socket.isAlive;
  }

  /** True if it is connected, so that a call does not have to wait for it. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Cause of the failure if it is not open in time; `undefined` for the usual cause of a deadline.
   */
  get lateCause(): FailureCause | undefined {
    return this.#socket.lateCause;
  }

  /** Sends a call, as soon as the connection is open. */
  run(call: ConnectionCall): void {
    this.#call = call;
    if (!this.#isOpen) return;
    this.#socket.ref();
    this.#send(call);
  }

  #send(call: ConnectionCall): void {
    this.#parser.next(call.isHead);
    for (const piece of call.takeRequest()) this.#socket.write(piece);
    this.flushed();
  }

  /** Stops reading until {@link resume}. */
  pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  /** Continues reading. */
  resume(): void {
    this.#isPaused = false;
    if (this.#nextTurn === undefined) this.#socket.resume();
  }

  /** Stops reading until the event loop has served the other connections. */
  #yield(): void {
    this.#socket.pause();
    this.#nextTurn = setImmediate(() => {
      this.#beginTurn();
      if (!this.#isPaused) this.#socket.resume();
    });
  }

  #beginTurn(): void {
    this.#turnBytes = 0;
    if (this.#nextTurn === undefined) return;
    clearImmediate(this.#nextTurn);
    this.#nextTurn = undefined;
  }

  /** Closes the connection, so that the rest of a response is not read as the next one. */
  destroy(): void {
    this.#call = undefined;
    this.#beginTurn();
    this.#socket.destroy();
  }

  opened(): void {
    if (this.#isOpen) return; // after a second TLS handshake, the call was already sent
    this.#isOpen = true;
    if (this.#call !== undefined) this.#send(this.#call);
  }

  flushed(): void {
    if (this.#isOpen && this.#socket.isFlushed) this.#call?.sent(); // unopened: nothing was sent
  }

  received(bytes: Buffer): void {
    const call = this.#call;
    if (call === undefined || !this.#isOpen) {
      return this.#fail(new Error("Bytes came that no call asked for"));
    }
    try {
      this.#parser.feed(bytes);
    } catch (error) {
      if (!(error instanceof MalformedResponse)) throw error;
      this.#fail(new GatewayError("upstream_bad_response", { cause: error }));
    }
    call.fed();
    if (this.#call !== call) return;
    this.#turnBytes += bytes.length;
    if (this.#turnBytes >= TURN_BYTES && this.#nextTurn === undefined) this.#yield();
  }

  ended(): void {
    const call = this.#call;
    // No runtime reports whether the end of a TLS connection was announced (close_notify) or
    // whether the connection was cut, RFC 9112 §9.8.
    const isUnsure = this.#end?.isReached === false;
    // The socket can still wait for writes before it closes, but no response will arrive.
    if (isUnsure || !this.#parser.close()) {
      this.#fail(new CallFailed("closed", "The connection ended before the response"));
    }
    call?.fed();
  }

  closed(error: Error | undefined): void {
    this.#pool.forget(this);
    this.#fail(error ?? new CallFailed("closed", "The connection closed before the end"));
  }

  #fail(error: Error): void {
    const call = this.#call;
    this.destroy();
    call?.fail(this.#isOpen ? error : new NeverSent(error));
  }

  head(status: number, headers: Map<string, string>): void {
    const [, seconds] = KEEP_ALIVE_TIMEOUT.exec(headers.get("keep-alive") ?? "") ?? [];
    if (seconds !== undefined) {
      this.#idleMs = Math.min(IDLE_CONNECTION_MS, Number(seconds) * 1000 - IDLE_MARGIN_MS);
    }
    this.#cooldownMs = status >= FIRST_ERROR ? COOLDOWN_MS : 0;
    if (this.#pool.isSecure && this.#parser.endsWithConnection) this.#end = new JsonEnd();
    this.#call?.head(status, headers);
  }

  data(bytes: Uint8Array): void {
    this.#end?.push(bytes);
    this.#call?.data(bytes);
  }

  end(): void {
    const call = this.#call;
    this.#call = undefined;
    this.#beginTurn();
    const isKept = this.#parser.isReusable && this.#socket.isFlushed && this.#idleMs > 0;
    if (isKept) {
      this.#isPaused = false;
      this.#socket.resume();
      this.#socket.unref();
      this.#pool.release(this, this.#idleMs, this.#cooldownMs);
    } else this.#socket.destroy();
    call?.end();
  }
}

/** The connections to one upstream. Idle connections wait in the pool for the next call. */
export class ConnectionPool {
  /** Host and port, as the `Host` field of a request states them. */
  readonly host: string;
  /** True if its connections are encrypted. */
  readonly isSecure: boolean;
  readonly #dial: Dial;
  readonly #url: URL;
  readonly #clock: Clock;
  readonly #idle: Connection[] = [];
  #isSweepDue = false;

  constructor(dial: Dial, url: URL, clock: Clock) {
    this.#dial = dial;
    this.#url = url;
    this.host = url.host;
    this.isSecure = url.protocol === "https:";
    this.#clock = clock;
  }

  /**
   * Returns the most recently used idle connection, so that the others can expire, or a new
   * connection.
   */
  acquire(): Connection {
    const now = this.#clock.monotonic();
    for (let kept = this.#idle.pop(); kept !== undefined; kept = this.#idle.pop()) {
      if (kept.isAlive && kept.idleUntil > now) return kept;
      kept.destroy();
    }
    return new Connection((events) => this.#dial(this.#url, events), this, now + MAX_AGE_MS);
  }

  /**
   * Keeps a connection for the next call, or closes it.
   *
   * @param idleMs The longest time to keep it, milliseconds
   * @param cooldownMs Time for which it runs no call, milliseconds
   */
  release(connection: Connection, idleMs: number, cooldownMs: number): void {
    if (cooldownMs > 0) {
      const release = () => connection.isAlive && this.release(connection, idleMs, 0);
      this.#clock.timer(cooldownMs, release, { isBackground: true });
      return;
    }
    const now = this.#clock.monotonic();
    if (this.#idle.length >= MAX_IDLE_CONNECTIONS || connection.usedUntil <= now) {
      return connection.destroy();
    }
    connection.idleUntil = Math.min(now + idleMs, connection.usedUntil);
    this.#idle.push(connection);
    if (!this.#isSweepDue) this.#sweepLater();
  }

  /** Removes a closed connection. */
  forget(connection: Connection): void {
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
  }

  #sweepLater(): void {
    this.#isSweepDue = true;
    this.#clock.timer(SWEEP_MS, () => {
      this.#isSweepDue = false;
      const now = this.#clock.monotonic();
      for (const connection of this.#idle.filter(({ idleUntil }) => idleUntil <= now)) {
        this.forget(connection);
        connection.destroy();
      }
      if (this.#idle.length > 0) this.#sweepLater();
    }, { isBackground: true });
  }
}
