/**
 * Connections of `node:net` and `node:tls`.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { runtime } from "../../runtime.ts";
import { CallFailed } from "../transport.ts";
import { type ClientSocket, type Dial, PIECE_BYTES, type SocketEvents } from "./connection.ts";

/** Silence of a connection after which the system probes whether its other side is still there. Milliseconds. */
export const KEEP_ALIVE_MS = 60_000;

/** Buffer for one read, shared by all connections: its bytes are copied before the next read. */
const shared = new Uint8Array(PIECE_BYTES);

function open({ hostname, port, protocol }: URL, onOpen: () => void, onData: (bytes: Buffer) => void): Socket {
  const host = hostname.replace(/^\[|\]$/g, "");
  const isSecure = protocol === "https:";
  const options = {
    host,
    port: Number(port || (isSecure ? 443 : 80)),
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
    onread: {
      buffer: () => shared,
      callback(length: number) {
        const bytes = Buffer.allocUnsafe(length);
        bytes.set(shared.subarray(0, length));
        onData(bytes);
        return true;
      },
    },
  };
  if (!isSecure) return connect(options, onOpen);
  return connectTls({ ...options, ...(isIP(host) === 0 && { servername: host }) }, onOpen);
}

/** The handle below Deno's TLS, from which it reads. */
interface Underneath {
  readStop?(): unknown;
  readStart?(): unknown;
}

/**
 * Returns the handle below a TLS socket on Deno. Deno's TLS (2.9) keeps reading into memory without bound while it is
 * paused, so that the handle below it has to stop. The handle has no public name: if it is renamed, nothing stops, and
 * a test detects it.
 */
function underneath(socket: Socket): Underneath | undefined {
  const { _handle: handle } = socket as { _handle?: { _parent?: Underneath } | null };
  return runtime === "deno" ? handle?._parent : undefined;
}

/**
 * Creates the error of a failed TLS handshake. Whatever ended it, a reset or a close included, counts as a TLS failure.
 *
 * @param cause The runtime's error, if any
 */
export function toHandshakeError(cause: Error | undefined): CallFailed {
  return new CallFailed("tls", cause?.message ?? "The connection ended in the TLS handshake", { cause });
}

/** A connection, under way or open. */
class NodeSocket implements ClientSocket {
  readonly #socket: Socket;
  readonly #onWritten: (error?: Error | null) => void;
  #error: Error | undefined;
  /** True while it is connected and its TLS handshake is not complete. */
  #isInHandshake = false;

  constructor(url: URL, events: SocketEvents) {
    this.#onWritten = (error) => error ?? events.flushed();
    const opened = () => {
      this.#isInHandshake = false;
      events.opened();
    };
    this.#socket = open(url, opened, (bytes) => events.received(bytes))
      .on("end", () => this.#isInHandshake || events.ended()) // an error follows it there
      .on("error", (error) => this.#error = error)
      .on("close", () => events.closed(this.#isInHandshake ? toHandshakeError(this.#error) : this.#error));
    if (url.protocol === "https:") this.#socket.prependOnceListener("connect", () => this.#isInHandshake = true);
  }

  get isAlive(): boolean {
    return !this.#socket.destroyed && this.#socket.writable;
  }

  get isFlushed(): boolean {
    return this.#socket.writableLength === 0;
  }

  write(bytes: Uint8Array): void {
    this.#socket.write(bytes, this.#onWritten);
  }

  pause(): void {
    this.#socket.pause();
    underneath(this.#socket)?.readStop?.();
  }

  resume(): void {
    if (!this.#socket.isPaused()) return;
    underneath(this.#socket)?.readStart?.();
    this.#socket.resume();
  }

  ref(): void {
    this.#socket.ref();
  }

  unref(): void {
    this.#socket.unref();
  }

  destroy(): void {
    this.#socket.destroy();
  }
}

/** Connects with Node's sockets. */
export const dialNode: Dial = (url: URL, events: SocketEvents): ClientSocket => new NodeSocket(url, events);
