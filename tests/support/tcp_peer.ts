/** Raw TCP on both sides, for tests whose subject a client library or an HTTP server would hide. */
import { Buffer } from "node:buffer";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { Worker } from "node:worker_threads";
import { isWorkers } from "./runtimes.ts";

/** A peer that listens. */
export interface TcpPeer {
  readonly port: number;
  /** Base URL, with `/v1`. */
  readonly url: string;
  readonly sockets: Socket[];
  close(): Promise<void>;
}

/**
 * Starts an upstream that writes bytes that the test chooses.
 *
 * @param onRequest Called with the socket once a whole request (header and body by content-length)
 * has arrived
 * @param onConnection Called immediately with each socket
 */
export async function startTcpPeer(
  onRequest: (socket: Socket, request: Buffer) => unknown,
  onConnection: (socket: Socket) => unknown = () => {},
): Promise<TcpPeer> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    onConnection(socket);
    let received = Buffer.alloc(0);
    socket.on("error", () => {});
    socket.on("data", (data: Buffer) => {
      received = Buffer.concat([received, data]);
      const end = received.indexOf("\r\n\r\n");
      if (end === -1) return;
      const length = Number(
        /^content-length: (\d+)/mi.exec(received.subarray(0, end).toString())?.[1] ?? 0,
      );
      if (received.length < end + 4 + length) return;
      const request = received.subarray(0, end + 4 + length);
      received = received.subarray(end + 4 + length);
      onRequest(socket, request);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://127.0.0.1:${port}/v1`,
    sockets,
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}

/**
 * Starts an upstream over TLS without a readable answer, for certificates that must not be trusted.
 *
 * @param identity Its certificate and key
 * @param address The loopback address at which it listens
 */
export async function startTlsPeer(
  identity: { readonly cert: string; readonly key: string },
  address = "127.0.0.1",
): Promise<{ readonly url: string; close(): Promise<void> }> {
  const server = createTlsServer(identity, (socket) => socket.on("error", () => {}).end("no HTTP"));
  server.on("tlsClientError", () => {});
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  return {
    url: `https://${address}:${(server.address() as AddressInfo).port}/v1`,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

/** An upstream over TLS whose connections can end without a `close_notify`. */
export interface CuttablePeer {
  /** Base URL, with `/v1`. */
  readonly url: string;
  /** Ends all connections with a FIN, without a `close_notify` before it. */
  cut(): void;
  close(): Promise<void>;
}

/**
 * Starts one.
 *
 * @param identity Its certificate and key
 * @param onRequest Called with the first bytes on a connection
 */
export async function startCuttablePeer(
  identity: { readonly cert: string; readonly key: string },
  onRequest: (socket: Socket) => unknown,
): Promise<CuttablePeer> {
  const sockets: Socket[] = [];
  const listen = async (server: Server): Promise<number> => {
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return (server.address() as AddressInfo).port;
  };
  const inner = createTlsServer(identity, (socket) => {
    socket.on("error", () => {}).once("data", () => onRequest(socket));
  });
  const port = await listen(inner.on("tlsClientError", () => {}));
  const relay = createServer({ allowHalfOpen: true }, (socket) => {
    const behind = connect({ port, host: "127.0.0.1" });
    for (const each of [socket, behind]) sockets.push(each.on("error", () => {}));
    socket.on("data", (bytes) => behind.write(bytes)).on("close", () => behind.destroy());
    behind.on("data", (bytes) => socket.writable && socket.write(bytes)).on(
      "end",
      () => socket.end(),
    );
  });
  return {
    url: `https://localhost:${await listen(relay)}/v1`,
    cut: () => sockets.forEach((socket) => socket.end()),
    async close() {
      for (const socket of sockets) socket.destroy();
      for (const server of [relay, inner]) await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A raw connection to a server. */
export interface RawConnection {
  readonly socket: Socket;
  /** Everything received so far, as latin-1: one character per byte. */
  received(): string;
  /** Returns true if the server has closed. */
  isClosed(): boolean;
  /** Resolves with everything received once the server closed. */
  readonly closed: Promise<string>;
}

/**
 * @param url The server's URL
 * @param text The text to send, as latin-1
 */
export function openRaw(url: string, text: string): RawConnection {
  const { hostname, port } = new URL(url);
  const chunks: Buffer[] = [];
  let isClosed = false;
  const socket = connect(
    { host: hostname, port: Number(port) },
    () => socket.write(text, "latin1"),
  );
  // By default workerd treats a FIN as a half-close, and continues to answer: only a reset counts
  // as a disconnect.
  const destroy = socket.destroy.bind(socket);
  if (isWorkers) {
    socket.destroy = () => {
      socket.destroy = destroy; // a reset calls it too
      return socket.resetAndDestroy();
    };
  }
  const received = () => Buffer.concat(chunks).toString("latin1");
  socket.on("data", (data: Buffer) => {
    chunks.push(data);
    // It also does not close a connection when asked to, but only after 5 s of silence.
    if (
      isWorkers && /^connection: close\r$/m.test(text) &&
      data.toString("latin1").endsWith("0\r\n\r\n")
    ) socket.end();
  });
  socket.on("error", () => {});
  const closed = new Promise<string>((resolve) =>
    socket.on("close", () => {
      isClosed = true;
      resolve(received());
    })
  );
  return { socket, received, isClosed: () => isClosed, closed };
}

/** Connections of this machine, by the kernel. */
const CONNECTIONS = "/proc/net/tcp";

/** The reason why {@link isHeld} cannot work here; `undefined` if it can. */
export const CANNOT_TELL: string | undefined = existsSync(CONNECTIONS)
  ? undefined
  : `there is no ${CONNECTIONS}`;

/**
 * Returns true if the server still has the connection open: a caller that does not read does not
 * notice its end.
 */
export function isHeld(socket: Socket): boolean {
  const established = "01";
  return serverEndOf(socket)?.state === established;
}

/** Finds the one of several processes that serves a connection. @returns Its process id */
export function findServing(socket: Socket, pids: readonly number[]): number | undefined {
  const link = `socket:[${serverEndOf(socket)?.inode}]`;
  return pids.find((pid) => {
    const folder = `/proc/${pid}/fd`;
    return readdirSync(folder).some((fd) => {
      try {
        return readlinkSync(`${folder}/${fd}`) === link;
      } catch {
        return false; // it was closed meanwhile
      }
    });
  });
}

/** Finds the server's end of a connection in the kernel's table. */
function serverEndOf(
  { localPort = 0, remotePort = 0 }: Socket,
): { readonly state: string; readonly inode: string } | undefined {
  const name = (port: number) => `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const server = name(remotePort);
  const caller = name(localPort);
  for (const line of readFileSync(CONNECTIONS, "utf8").split("\n")) {
    const fields = line.trim().split(/\s+/);
    const [, local = "", remote = "", state = ""] = fields;
    if (!local.endsWith(server) || !remote.endsWith(caller)) continue;
    return { state, inode: fields[9] ?? "" };
  }
  return undefined;
}

/** An answer read from the wire. */
export interface RawAnswer {
  readonly status: number;
  /** Names in lower case; a repeated header has its last value. */
  readonly headers: Readonly<Record<string, string>>;
  /** The body without chunked framing, as latin-1. */
  readonly body: string;
}

function unchunk(framed: string): string {
  let body = "";
  for (let at = 0; at < framed.length;) {
    const end = framed.indexOf("\r\n", at);
    const size = parseInt(framed.slice(at, end), 16);
    if (end === -1 || !(size > 0)) return body;
    body += framed.slice(end + 2, end + 2 + size);
    at = end + 2 + size + 2;
  }
  return body;
}

/** Parses the first answer in the received text. */
export function parseAnswer(received: string): RawAnswer {
  const end = received.indexOf("\r\n\r\n");
  const [first = "", ...lines] = received.slice(0, end).split("\r\n");
  const headers = Object.fromEntries(lines.map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  }));
  const rest = received.slice(end + 4);
  const body = headers["transfer-encoding"] === "chunked" ? unchunk(rest) : rest;
  return { status: Number(first.split(" ")[1]), headers, body };
}

/** Options of a raw call. */
export interface RawCall {
  readonly method?: string;
  readonly path?: string;
  /** `undefined` leaves a header out; an array repeats it. */
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>> | undefined;
  readonly body?: string;
}

/** The bytes of a request over http that requests `connection: close`. */
export function toRawRequest(
  url: string,
  { method = "POST", path, headers = {}, body = "" }: RawCall,
): string {
  const all = {
    host: new URL(url).host,
    connection: "close",
    "content-length": String(body.length),
    ...headers,
  };
  const lines = Object.entries(all).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().map((each) => `${name}: ${each}`)
  );
  return `${method} ${path ?? "/v1/chat/completions"} HTTP/1.1\r\n${
    lines.join("\r\n")
  }\r\n\r\n${body}`;
}

/**
 * Sends one request over plain TCP, exactly as written, and reads its answer: up to its
 * content-length, or to the close.
 */
export async function callRaw(url: string, call: RawCall): Promise<RawAnswer> {
  const { socket, received, closed } = openRaw(url, toRawRequest(url, call));
  let size = 0;
  /** Length of the whole answer in bytes, once its head has arrived. */
  let whole: number | undefined;
  socket.on("data", (data: Buffer) => {
    size += data.length;
    if (whole === undefined) {
      const head = received();
      const end = head.indexOf("\r\n\r\n");
      if (end === -1) return;
      whole = end + 4 + Number(parseAnswer(head).headers["content-length"] ?? Infinity);
    }
    if (size >= whole) socket.destroy();
  });
  return parseAnswer(await closed);
}

/** Resolves with true if a socket connects within the given milliseconds. */
function connectsWithin(socket: Socket, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), ms);
    socket.once("connect", () => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}

/**
 * An address that neither accepts nor refuses connections: a listener that never accepts, with a
 * full backlog.
 */
export async function startBlackHole(): Promise<{ url: string; close(): Promise<void> }> {
  const worker = new Worker(
    `const { createServer } = require("node:net"), { parentPort } = require("node:worker_threads");
    const server = createServer().listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
      parentPort.postMessage(server.address().port);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60_000);
    });`,
    { eval: true },
  );
  const port = await new Promise<number>((resolve) => worker.once("message", resolve));
  const sockets: Socket[] = [];
  // Bun's listener has room for hundreds of connections, regardless of its backlog.
  for (let isOpen = true; isOpen && sockets.length < 2000;) {
    const socket = connect({ host: "127.0.0.1", port });
    socket.on("error", () => {});
    sockets.push(socket);
    // After a stall of this process its timers run before its events. A second look distinguishes a
    // slow connection from none.
    isOpen = (await connectsWithin(socket, 150)) || (await connectsWithin(socket, 50));
  }
  return {
    url: `http://127.0.0.1:${port}/v1`,
    async close() {
      for (const socket of sockets) socket.destroy();
      await worker.terminate();
    },
  };
}
