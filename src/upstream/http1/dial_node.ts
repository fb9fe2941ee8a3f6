/**
 * Connections of `node:net` and `node:tls`.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { connect, isIP, type Socket, type TcpNetConnectOpts } from "node:net";
import {
  connect as connectTls,
  type ConnectionOptions,
  type SecureContext,
  type TLSSocket,
} from "node:tls";
import { runtime } from "../../runtime.ts";
import { CallFailed } from "../transport.ts";
import { type ClientSocket, type Dial, PIECE_BYTES, type SocketEvents } from "./connection.ts";
import { keepSessions, TlsSessions } from "./tls_sessions.ts";

/**
 * Silence of a connection after which the system probes if the other side is still there.
 * Milliseconds.
 */
export const KEEP_ALIVE_MS = 60_000;

/** Buffer for one read, shared by all connections: its bytes are copied before the next read. */
const shared = new Uint8Array(PIECE_BYTES);
const sharedBuffer = (): Uint8Array => shared;

/**
 * Time after which the next address of a host is tried if the first one has not answered, as RFC
 * 8305 §5 recommends, in place of the former. Bun tries several at once. Measured with an
 * unanswering first address of two: 252 ms on Node 26, 253 on Deno 2.9, 1 on Bun 1.4. Milliseconds.
 */
const ATTEMPT_DELAY_MS = 250;

/** Sessions of connections with the authorities of the runtime. */
export const ownSessions: TlsSessions = new TlsSessions();

/** Settings of TLS that differ from the runtime's. */
export interface Security {
  /** Authorities, and a client certificate. */
  readonly context?: SecureContext | undefined;
  /** Sessions of connections with these settings. */
  readonly sessions: TlsSessions;
}

/** Returns the host of a URL in the form that sockets accept. */
export const hostOf = ({ hostname }: URL): string => hostname.replace(/^\[|\]$/g, "");
/** Returns the port of a URL. */
export const portOf = ({ port, protocol }: URL): number =>
  Number(port || (protocol === "https:" ? 443 : 80));

/**
 * Begins a TLS connection.
 *
 * @param options The socket below it, or the options to open one
 * @param onOpen Called when the identity is verified
 */
export function secure(
  url: URL,
  { context, sessions }: Security,
  options: ConnectionOptions,
  onOpen: () => void,
): TLSSocket {
  const host = hostOf(url);
  const session = sessions.find(url.host);
  const socket = connectTls({
    ...options,
    host,
    ...(isIP(host) === 0 && { servername: host }),
    ...(context !== undefined && { secureContext: context }),
    ...(session !== undefined && { session }),
  }, onOpen);
  keepSessions(socket, url.host, sessions);
  return socket;
}

/** Returns the options of a socket for the host of a URL. */
export const connectionOptions = (url: URL): TcpNetConnectOpts => ({
  host: hostOf(url),
  port: portOf(url),
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: KEEP_ALIVE_MS,
  autoSelectFamily: true,
  autoSelectFamilyAttemptTimeout: ATTEMPT_DELAY_MS,
});

/** Opens a connection to the host of a URL. Its bytes are read into one buffer. */
function open(
  url: URL,
  security: Security,
  onOpen: () => void,
  onData: (bytes: Buffer) => void,
): Socket {
  const options = {
    ...connectionOptions(url),
    onread: {
      buffer: sharedBuffer,
      callback(length: number) {
        const bytes = Buffer.allocUnsafe(length);
        bytes.set(shared.subarray(0, length));
        onData(bytes);
        return true;
      },
    },
  };
  return url.protocol === "https:"
    ? secure(url, security, options, onOpen)
    : connect(options, onOpen);
}

/** The handle below Deno's TLS, from which it reads. */
interface Underneath {
  readStop?(): unknown;
  readStart?(): unknown;
}

/**
 * Returns the handle below a TLS socket on Deno. While it is paused, Deno's TLS (2.9) reads into
 * memory without bound, so the handle below it must be stopped. The handle has no public name. If
 * it is renamed, reading does not stop, and a test detects this.
 */
function underneath(socket: Socket): Underneath | undefined {
  const { _handle: handle } = socket as { _handle?: { _parent?: Underneath } | null };
  return runtime === "deno" ? handle?._parent : undefined;
}

/**
 * Creates the error of a failed TLS handshake. Any end counts as a TLS failure, including a reset
 * or a close.
 */
export function toHandshakeError(cause: Error | undefined): CallFailed {
  return new CallFailed("tls", cause?.message ?? "The connection ended in the TLS handshake", {
    cause,
  });
}

/** Opens a socket, and receives callbacks for its opening and its bytes. */
export type Opening = (onOpen: () => void, onData: (bytes: Buffer) => void) => Socket;

/** A connection, connecting or open. */
export class NodeSocket implements ClientSocket {
  /** The socket of the runtime. */
  readonly socket: Socket;
  readonly #onWritten: (error?: Error | null) => void;
  #error: Error | undefined;
  /** True while it is connected and its TLS handshake is not complete. */
  #isInHandshake = false;

  /** @param handshake Start of its TLS handshake, if it has one: when it is connected, or now */
  constructor(opening: Opening, handshake: "none" | "connected" | "now", events: SocketEvents) {
    this.#onWritten = (error) => error ?? events.flushed();
    this.#isInHandshake = handshake === "now";
    const opened = () => {
      this.#isInHandshake = false;
      events.opened();
    };
    this.socket = opening(opened, (bytes) => events.received(bytes))
      .on("end", () => this.#isInHandshake || events.ended()) // an error follows it there
      .on("error", (error) => this.#error = error)
      .on(
        "close",
        () => events.closed(this.#isInHandshake ? toHandshakeError(this.#error) : this.#error),
      );
    if (handshake === "connected") {
      this.socket.prependOnceListener("connect", () => this.#isInHandshake = true);
    }
  }

  get isAlive(): boolean {
    return !this.socket.destroyed && this.socket.writable;
  }

  get isFlushed(): boolean {
    return this.socket.writableLength === 0;
  }

  write(bytes: Uint8Array): void {
    this.socket.write(bytes, this.#onWritten);
  }

  pause(): void {
    this.socket.pause();
    underneath(this.socket)?.readStop?.();
  }

  resume(): void {
    if (!this.socket.isPaused()) return;
    underneath(this.socket)?.readStart?.();
    this.socket.resume();
  }

  ref(): void {
    this.socket.ref();
  }

  unref(): void {
    this.socket.unref();
  }

  destroy(): void {
    this.socket.destroy();
  }
}

/**
 * Connects with Node's sockets. @param security Settings of TLS. Default: the runtime's settings
 */
export function createNodeDial(security: Security = { sessions: ownSessions }): Dial {
  return (url, events) =>
    new NodeSocket(
      (onOpen, onData) => open(url, security, onOpen, onData),
      url.protocol === "https:" ? "connected" : "none",
      events,
    );
}

/** Connects with Node's sockets, and trusts the authorities of the runtime. */
export const dialNode: Dial = createNodeDial();
