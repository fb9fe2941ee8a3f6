/**
 * Connections through a proxy: to the proxy, `CONNECT`, and what is inside the tunnel (RFC 9110 §9.3.6). The proxy is
 * shown the host and port of the upstream and its own credentials, nothing else; the upstream is shown neither.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { connect, type Socket } from "node:net";
import type { FailureCause } from "../../errors/outcomes.ts";
import { CallFailed } from "../transport.ts";
import type { ClientSocket, SocketEvents } from "./connection.ts";
import { connectionOptions, NodeSocket, portOf, secure, type Security } from "./dial_node.ts";
import { type Proxy, toBasic } from "./egress.ts";

/** Longest header of an answer to `CONNECT`. Bytes. */
const MAX_ANSWER_BYTES = 16_384;
const ANSWER_START = "HTTP/1.";
const STATUS_LINE = /^HTTP\/1\.\d ([1-9]\d\d)(?: |\r|$)/;
const HEAD_END = "\r\n\r\n";

/** Settings of TLS on the way: to a proxy over https, and to the upstream. */
export interface TunnelSecurity {
  readonly proxy: Security;
  readonly upstream: Security;
}

/** Makes the request for a tunnel. */
function toConnect(url: URL, { credentials }: Proxy): Buffer {
  const target = `${url.hostname}:${portOf(url)}`;
  const authorization = credentials === undefined ? "" : `proxy-authorization: ${toBasic(credentials)}\r\n`;
  return Buffer.from(`CONNECT ${target} HTTP/1.1\r\nhost: ${target}\r\n${authorization}\r\n`, "latin1");
}

/**
 * Reads the answer to `CONNECT`, interim responses left out.
 *
 * @returns Its status and the bytes behind its header; `undefined` while it is incomplete
 * @throws {CallFailed} For what is no answer
 */
function readAnswer(received: Buffer): { readonly status: number; readonly rest: Buffer } | undefined {
  const text = received.toString("latin1", 0, MAX_ANSWER_BYTES);
  if (!ANSWER_START.startsWith(text.slice(0, ANSWER_START.length))) {
    throw new CallFailed("proxy_failed", "The proxy answered CONNECT with something that is no HTTP/1.1");
  }
  const end = text.indexOf(HEAD_END);
  if (end === -1) {
    if (text.length === MAX_ANSWER_BYTES) throw new CallFailed("proxy_failed", "The proxy's answer is too large");
    return undefined;
  }
  const status = Number(STATUS_LINE.exec(text)?.[1]);
  if (Number.isNaN(status)) throw new CallFailed("proxy_failed", "The proxy answered CONNECT without a status");
  const rest = received.subarray(end + HEAD_END.length);
  return status < 200 ? readAnswer(rest) : { status, rest };
}

function toRefusal(status: number): CallFailed {
  const other: FailureCause = status >= 500 ? "proxy_upstream" : "proxy_refused";
  return new CallFailed(status === 407 ? "proxy_auth" : other, `The proxy answered CONNECT with ${status}`);
}

/** A connection through a proxy, at whatever stage it is. */
export class Tunnel implements ClientSocket {
  lateCause: FailureCause | undefined = "proxy_unreachable";
  readonly #url: URL;
  readonly #security: TunnelSecurity;
  readonly #events: SocketEvents;
  /** The connection to the proxy. */
  readonly #outer: NodeSocket;
  /** The connection of calls: TLS inside the tunnel, or the tunnel itself. */
  #inner: NodeSocket | undefined;
  #received: Buffer = Buffer.alloc(0);
  #isClosed = false;

  /**
   * @param url Host and port of the upstream; TLS inside the tunnel for `https:`
   * @param proxy The proxy
   * @param security Settings of TLS
   * @param events Receiver of its events
   */
  constructor(url: URL, proxy: Proxy, security: TunnelSecurity, events: SocketEvents) {
    this.#url = url;
    this.#security = security;
    this.#events = events;
    const proxyUrl = new URL(proxy.url);
    const isSecure = proxyUrl.protocol === "https:";
    this.#outer = new NodeSocket(
      (onOpen, onData) => {
        const options = connectionOptions(proxyUrl);
        const socket: Socket = isSecure ? secure(proxyUrl, security.proxy, options, onOpen) : connect(options, onOpen);
        return socket.on("data", onData);
      },
      isSecure ? "connected" : "none",
      {
        opened: () => {
          this.lateCause = "proxy_failed";
          this.#outer.write(toConnect(url, proxy));
        },
        flushed: () => this.#inner === this.#outer && events.flushed(),
        received: (bytes) => this.#receive(bytes),
        ended: () => this.#outerEnded(),
        closed: (error) => this.#outerClosed(error),
      },
    );
  }

  #receive(bytes: Buffer): void {
    if (this.#inner === this.#outer) return this.#events.received(bytes);
    if (this.#inner !== undefined) return; // TLS reads them below this
    this.#received = Buffer.concat([this.#received, bytes]);
    try {
      const answer = readAnswer(this.#received);
      if (answer === undefined) return;
      if (answer.status >= 300) throw toRefusal(answer.status);
      if (answer.rest.length > 0) throw new CallFailed("proxy_failed", "Bytes came that no call asked for");
      this.#enter();
    } catch (error) {
      this.#close(error as Error);
      this.destroy();
    }
  }

  /** Goes on inside the tunnel. */
  #enter(): void {
    this.#received = Buffer.alloc(0);
    this.lateCause = undefined;
    if (this.#url.protocol !== "https:") {
      this.#inner = this.#outer;
      return this.#events.opened();
    }
    const { socket } = this.#outer;
    socket.removeAllListeners("data");
    const events = this.#events;
    this.#inner = new NodeSocket(
      (onOpen, onData) => secure(this.#url, this.#security.upstream, { socket }, onOpen).on("data", onData),
      "now",
      {
        opened: () => events.opened(),
        flushed: () => events.flushed(),
        received: (bytes) => events.received(bytes),
        ended: () => events.ended(),
        closed: (error) => this.#close(error),
      },
    );
  }

  /** Hands over the open tunnel of an upstream over http, and reports no more of it. */
  leave(): Socket {
    this.#isClosed = true;
    return this.#outer.socket.removeAllListeners("data");
  }

  #outerEnded(): void {
    if (this.#inner === this.#outer) this.#events.ended();
    else if (this.#inner === undefined) this.#outerClosed(undefined);
  }

  #outerClosed(error: Error | undefined): void {
    if (this.#inner === undefined) {
      const cause = this.lateCause ?? "proxy_failed";
      const message = error?.message ?? "The proxy closed the connection";
      this.#close(new CallFailed(cause, message, { cause: error }));
    } else if (this.#inner === this.#outer) this.#close(error);
    else this.#inner.socket.destroy(error);
  }

  #close(error: Error | undefined): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#events.closed(error);
    this.#outer.destroy();
  }

  get isAlive(): boolean {
    return this.#inner?.isAlive === true && this.#outer.isAlive;
  }

  get isFlushed(): boolean {
    return this.#inner?.isFlushed ?? true;
  }

  write(bytes: Uint8Array): void {
    this.#inner?.write(bytes);
  }

  pause(): void {
    this.#inner?.pause();
  }

  resume(): void {
    this.#inner?.resume();
  }

  ref(): void {
    for (const each of this.#both()) each.ref();
  }

  unref(): void {
    for (const each of this.#both()) each.unref();
  }

  destroy(): void {
    for (const each of this.#both()) each.destroy();
  }

  #both(): Set<NodeSocket> {
    return new Set([this.#outer, this.#inner ?? this.#outer]);
  }
}
