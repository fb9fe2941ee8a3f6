/**
 * Connections through a proxy: the connection to the proxy, `CONNECT`, and the connection inside
 * the tunnel (RFC 9110 §9.3.6). The proxy sees only the host and port of the upstream and its own
 * credentials. The upstream sees neither.
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
import { HEAD_END, HeadReader, IncompleteBytes, MalformedResponse } from "./head_reader.ts";

/** Longest header of an answer to `CONNECT`, its interim responses included. Bytes. */
const MAX_ANSWER_BYTES = 16_384;
const STATUS_LINE = /^HTTP\/1\.\d ([1-9]\d\d)(?: |\r|$)/;

/** Settings of TLS: to a proxy over https, and to the upstream. */
export interface TunnelSecurity {
  readonly proxy: Security;
  readonly upstream: Security;
}

/** Makes the request for a tunnel. */
function toConnect(url: URL, { credentials }: Proxy): Buffer {
  const target = `${url.hostname}:${portOf(url)}`;
  const authorization = credentials === undefined
    ? ""
    : `proxy-authorization: ${toBasic(credentials)}\r\n`;
  return Buffer.from(
    `CONNECT ${target} HTTP/1.1\r\nhost: ${target}\r\n${authorization}\r\n`,
    "latin1",
  );
}

/** Reads the answer to `CONNECT`, which can arrive in pieces. */
class ConnectAnswerReader {
  readonly #heads = new HeadReader(MAX_ANSWER_BYTES);
  readonly #incomplete = new IncompleteBytes();

  /**
   * Reads the next bytes. Interim responses are skipped.
   *
   * @returns Its status and the number of bytes after its header; `undefined` while it is
   * incomplete
   * @throws {MalformedResponse} For bytes that are not an answer
   */
  read(received: Buffer): { readonly status: number; readonly restBytes: number } | undefined {
    let searched = this.#incomplete.length;
    const bytes = this.#incomplete.join(received);
    for (let at = 0; at < bytes.length; searched = 0) {
      const head = this.#heads.find(bytes, at, searched);
      if (head === undefined) {
        this.#incomplete.keep(bytes, at);
        return undefined;
      }
      const status = Number(STATUS_LINE.exec(head)?.[1]);
      if (Number.isNaN(status)) throw new MalformedResponse("It does not begin with a status");
      at += head.length + HEAD_END.length;
      if (status >= 200) return { status, restBytes: bytes.length - at };
      this.#heads.countInterim(head);
    }
    return undefined;
  }
}

function toProxyRefusal(status: number): CallFailed {
  const other: FailureCause = status >= 500 ? "proxy_upstream" : "proxy_refused";
  return new CallFailed(
    status === 407 ? "proxy_auth" : other,
    `The proxy answered CONNECT with ${status}`,
  );
}

function toProxyFailure(cause: MalformedResponse): CallFailed {
  return new CallFailed(
    "proxy_failed",
    `The proxy's answer to CONNECT can't be read: ${cause.message}`,
    { cause },
  );
}

/** A connection through a proxy, in any state. */
export class Tunnel implements ClientSocket {
  lateCause: FailureCause | undefined = "proxy_unreachable";
  readonly #url: URL;
  readonly #security: TunnelSecurity;
  readonly #events: SocketEvents;
  /** The connection to the proxy. */
  readonly #outer: NodeSocket;
  /** The connection of calls: TLS inside the tunnel, or the tunnel itself. */
  #inner: NodeSocket | undefined;
  readonly #answer = new ConnectAnswerReader();
  #isClosed = false;

  /** @param url Host and port of the upstream; TLS inside the tunnel for `https:` */
  constructor(url: URL, proxy: Proxy, security: TunnelSecurity, events: SocketEvents) {
    this.#url = url;
    this.#security = security;
    this.#events = events;
    const proxyUrl = new URL(proxy.url);
    const isSecure = proxyUrl.protocol === "https:";
    this.#outer = new NodeSocket(
      (onOpen, onData) => {
        const options = connectionOptions(proxyUrl);
        const socket: Socket = isSecure
          ? secure(proxyUrl, security.proxy, options, onOpen)
          : connect(options, onOpen);
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
    try {
      const answer = this.#answer.read(bytes);
      if (answer === undefined) return;
      if (answer.status >= 300) throw toProxyRefusal(answer.status);
      if (answer.restBytes > 0) {
        throw new CallFailed("proxy_failed", "Bytes came that no call asked for");
      }
      this.#enter();
    } catch (error) {
      const isMalformed = error instanceof MalformedResponse;
      this.#close(isMalformed ? toProxyFailure(error) : error as Error);
      this.destroy();
    }
  }

  /** Continues inside the tunnel. */
  #enter(): void {
    this.lateCause = undefined;
    if (this.#url.protocol !== "https:") {
      this.#inner = this.#outer;
      return this.#events.opened();
    }
    const { socket } = this.#outer;
    socket.removeAllListeners("data");
    const events = this.#events;
    this.#inner = new NodeSocket(
      (onOpen, onData) =>
        secure(this.#url, this.#security.upstream, { socket }, onOpen).on("data", onData),
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

  /** Returns the open tunnel to an upstream over http, and reports no more of its events. */
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
