/**
 * Connections of Bun's own sockets.
 *
 * @module
 */
import type { Buffer } from "node:buffer";
import { isIP } from "node:net";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { dialNode, KEEP_ALIVE_MS, ownSessions, toHandshakeError } from "./dial_node.ts";
import type { ClientSocket, Dial, SocketEvents } from "./connection.ts";

/**
 * The part of Bun's types that is used here. The official types conflict with the types of Node and
 * Deno.
 */
interface BunTcpSocket {
  readonly data: BunSocket;
  readonly readyState: number;
  readonly authorized: boolean;
  write(bytes: Uint8Array): number;
  pause(): void;
  resume(): void;
  ref(): void;
  unref(): void;
  terminate(): void;
  setNoDelay(isOn: boolean): boolean;
  setKeepAlive(isOn: boolean, afterMs: number): boolean;
  getPeerCertificate(): PeerCertificate;
  setSession(session: Buffer): void;
}

declare const Bun: {
  connect(options: {
    hostname: string;
    port: number;
    tls?: { serverName?: string; rejectUnauthorized: boolean };
    data: BunSocket;
    socket: {
      open(socket: BunTcpSocket): void;
      handshake(socket: BunTcpSocket, isDone: boolean, error: Error | null): void;
      session(socket: BunTcpSocket, session: Buffer): void;
      data(socket: BunTcpSocket, bytes: Buffer): void;
      drain(socket: BunTcpSocket): void;
      end(socket: BunTcpSocket): void;
      close(socket: BunTcpSocket, error?: Error): void;
      error(socket: BunTcpSocket, error: Error): void;
    };
  }): Promise<unknown>;
};

/** `readyState` of an open socket. */
const OPEN = 1;

/** Number of attempts to connect that still run although they are no longer needed, by host. */
const abandoned = new Map<string, number>();

function countAbandoned(host: string, change: 1 | -1): void {
  const count = (abandoned.get(host) ?? 0) + change;
  if (count > 0) abandoned.set(host, count);
  else abandoned.delete(host);
}

/** A connection, connecting or open. */
class BunSocket implements ClientSocket {
  readonly events: SocketEvents;
  readonly hostname: string;
  readonly isSecure: boolean;
  #socket: BunTcpSocket | undefined;
  #waiting: Uint8Array[] = [];
  #isDestroyed = false;
  #isClosed = false;
  /** True while it is connected and its TLS handshake is not complete. */
  #isInHandshake = false;
  /** Host with its port, the name for counts of attempts and for TLS sessions. */
  readonly #host: string;
  /** TLS session that arrived before the server's identity was verified. */
  #session: Buffer | undefined;

  constructor(url: URL, events: SocketEvents) {
    this.events = events;
    this.#host = url.host;
    this.hostname = url.hostname.replace(/^\[|\]$/g, "");
    this.isSecure = url.protocol === "https:";
    const serverName = isIP(this.hostname) === 0 ? { serverName: this.hostname } : {};
    Bun.connect({
      hostname: this.hostname,
      port: Number(url.port || (this.isSecure ? 443 : 80)),
      ...(this.isSecure && { tls: { ...serverName, rejectUnauthorized: true } }),
      data: this,
      socket: HANDLERS,
    }).catch((error: Error) => this.closed(error));
  }

  get isAlive(): boolean {
    return this.#socket?.readyState === OPEN && !this.#isDestroyed;
  }

  get isFlushed(): boolean {
    return this.#waiting.length === 0;
  }

  /**
   * Accepts the connected socket, or closes it if it is no longer needed. @returns Whether it was
   * accepted
   */
  connected(socket: BunTcpSocket): boolean {
    this.#socket = socket;
    if (this.#isDestroyed) {
      countAbandoned(this.#host, -1);
      socket.terminate();
      return false;
    }
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    this.#isInHandshake = this.isSecure;
    const session = this.isSecure ? ownSessions.find(this.#host) : undefined;
    if (session !== undefined) socket.setSession(session);
    return true;
  }

  /** Reports that the server's identity is verified. */
  trusted(): void {
    this.#isInHandshake = false;
    if (this.#session !== undefined) ownSessions.keep(this.#host, this.#session);
    this.events.opened();
  }

  /** Keeps a TLS session, once the server's identity is verified. */
  resumable(session: Buffer): void {
    if (this.#isInHandshake) this.#session = session;
    else ownSessions.keep(this.#host, session);
  }

  ended(): void {
    if (this.#isInHandshake) this.closed();
    else this.events.ended();
  }

  write(bytes: Uint8Array): void {
    if (this.#waiting.push(bytes) === 1) this.flush();
  }

  flush(): void {
    for (let first = this.#waiting[0]; first !== undefined; first = this.#waiting[0]) {
      const sent = Math.max(0, this.#socket?.write(first) ?? 0);
      if (sent < first.byteLength) {
        if (!this.#isDestroyed) this.#waiting[0] = first.subarray(sent);
        return;
      }
      this.#waiting.shift();
    }
  }

  pause(): void {
    this.#socket?.pause();
  }

  resume(): void {
    this.#socket?.resume();
  }

  ref(): void {
    this.#socket?.ref();
  }

  unref(): void {
    this.#socket?.unref();
  }

  destroy(): void {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    this.#waiting = [];
    if (this.#socket !== undefined) this.#socket.terminate();
    else if (!this.#isClosed) countAbandoned(this.#host, 1);
  }

  /** Reports once that the connection is closed. */
  closed(error?: Error): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#socket === undefined && this.#isDestroyed) countAbandoned(this.#host, -1);
    if (this.#isInHandshake || error !== undefined) ownSessions.forget(this.#host);
    this.events.closed(this.#isInHandshake ? toHandshakeError(error) : error);
  }
}

const HANDLERS: Parameters<typeof Bun.connect>[0]["socket"] = {
  open(socket) {
    const { data: own } = socket;
    if (own.connected(socket) && !own.isSecure) own.events.opened();
  },
  handshake(socket, isDone, error) {
    const { data: own } = socket;
    // Bun checks the name in the certificate too. It is checked twice, because a key must never be
    // sent to a wrong host.
    const found = error ??
      (isDone && socket.authorized
        ? checkServerIdentity(own.hostname, socket.getPeerCertificate())
        : new Error("The other side of the TLS connection can't be trusted"));
    if (found === undefined) return own.trusted();
    own.closed(found);
    own.destroy();
  },
  session: ({ data: own }, session) => own.resumable(session),
  data: ({ data: own }, bytes) => own.events.received(bytes),
  drain({ data: own }) {
    own.flush();
    own.events.flushed();
  },
  end: ({ data: own }) => own.ended(),
  close: ({ data: own }, error) => own.closed(error),
  error: ({ data: own }, error) => {
    own.closed(error);
    own.destroy();
  },
};

/**
 * Connects with Bun's sockets. Bun cannot cancel an attempt to connect, so an abandoned attempt
 * lasts until the system ends it after minutes. While there is one to a host, further connections
 * to it use Bun's `node:net`, which can cancel.
 */
export const dialBun: Dial = (url: URL, events: SocketEvents): ClientSocket =>
  abandoned.has(url.host) ? dialNode(url, events) : new BunSocket(url, events);
