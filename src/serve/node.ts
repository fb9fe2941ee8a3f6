/**
 * Listening on Node: `node:http` calls the gateway directly, without web `Request` and `Response`.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server as HttpServer,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import { createServer as createTlsServer, type Server as HttpsServer } from "node:https";
import { type AddressInfo, Server as NetServer, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import process from "node:process";
import { Server as TlsServer } from "node:tls";
import type { ErrorCode } from "../errors/codes.ts";
import { GatewayError, toErrorResponse } from "../errors/gateway_error.ts";
import {
  type AnyBody,
  type ByteSink,
  type GatewayRequest,
  isWhole,
  push,
} from "../http/message.ts";
import { systemClock } from "../exchange/clock.ts";
import type { Handler } from "../http/web.ts";
import { runtime } from "../runtime.ts";
import { OutputWatch, Pipelines, reset } from "./connections.ts";
import { createHttp2Server, type OpenedServer } from "./http2.ts";
import { IncomingBody } from "./incoming_body.ts";
import {
  endLate,
  HEADERS_MS,
  inPieces,
  isLarge,
  type Listener,
  type ListenOptions,
  toListenerUrl,
  WRITE_STALL_MS,
} from "./listener.ts";

/** Interval at which Node checks for late requests. Milliseconds. */
const CHECK_INTERVAL_MS = 5_000;
/**
 * Interval at which Deno is made to accept again, and the length of its queue of connections.
 * Milliseconds.
 */
const ACCEPT_MS = 1_000;
const BACKLOG = 511;
/**
 * Maximum size of a request's header: the same as on Bun, and independent of `NODE_OPTIONS`. Bytes.
 */
const MAX_HEADER_BYTES = 16_384;
/** Time for a caller to read the error before its connection is closed. Milliseconds. */
const LAST_READ_MS = 1_000;
/**
 * The time that an idle connection stays open. It is longer than the 60 s of common load balancers,
 * so that they never reuse a connection that is closing. Milliseconds.
 */
const KEEP_ALIVE_MS = 65_000;

/** Headers of a request, as parsed by Node. */
class NodeHeaders {
  readonly #fields: IncomingHttpHeaders;

  constructor(fields: IncomingHttpHeaders) {
    this.#fields = fields;
  }

  get(name: string): string | null {
    // Because of joinDuplicateHeaders, the value is not an array.
    return (this.#fields[name] as string | undefined) ?? null;
  }

  forEach(act: (value: string, name: string) => void): void {
    for (const name in this.#fields) act(String(this.#fields[name]), name);
  }
}

/** A request of `node:http` as a {@link GatewayRequest}. */
class NodeRequest implements GatewayRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: GatewayRequest["headers"];
  readonly body: IncomingBody | null;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;

  constructor(request: IncomingMessage, response: ServerResponse) {
    const { method = "", url = "", headers } = request;
    const hasBody = headers["content-length"] !== undefined ||
      headers["transfer-encoding"] !== undefined;
    this.method = method;
    this.url = url;
    this.headers = new NodeHeaders(headers);
    this.body = hasBody ? new IncomingBody(request) : null;
    this.#request = request;
    this.#response = response;
  }

  get isGone(): boolean {
    return this.#request.socket.destroyed;
  }

  onGone(act: () => void): () => void {
    const response = this.#response;
    // A response that waits for another one has no socket yet. Deno then reports no event if the
    // caller leaves.
    const source = response.socket === null ? this.#request.socket : response;
    if (response.closed || this.isGone) act();
    else source.on("close", act);
    return () => void source.off("close", act);
  }
}

/** The receiver of an answer's body: the caller. */
class ResponseSink implements ByteSink {
  readonly #response: ServerResponse;

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  write(bytes: Uint8Array): boolean {
    return this.#response.write(bytes);
  }

  end(): void {
    this.#response.end();
  }

  /**
   * Breaks an answer off, so that it does not look complete. Relayed bytes are sent first, unless
   * the caller does not read them. The body of an HTTP/1.0 answer ends with its connection, so the
   * connection must end with an error.
   */
  fail(): void {
    const { req, socket, writableNeedDrain } = this.#response;
    if (socket === null) return void this.#response.destroy();
    if (req.httpVersionMinor === 0 || writableNeedDrain) {
      reset(socket);
      this.#response.destroy();
    } else {
      this.#response.uncork(); // see writeBody
      socket.destroySoon();
    }
  }
}

/** Writes a body as fast as the caller reads it. */
function writeBody(body: AnyBody, response: ServerResponse): void {
  // Sends the headers with the first available bytes, in one write and one packet. A second write
  // costs +8 % CPU of a short stream (2026-11-22, 8 starts).
  response.cork();
  process.nextTick(() => response.uncork());
  response.flushHeaders();
  response.on("close", () => body.cancel());
  response.on("drain", push(body, new ResponseSink(response)));
}

/**
 * Closes the connection of a caller whose body was refused and does not arrive in time.
 * Milliseconds.
 */
function endUnread(request: IncomingMessage, ms: number): void {
  const cancel = systemClock.timer(ms, () => request.complete || request.socket.destroy());
  // The timer would otherwise keep the request, and with it the caller's keys, in memory.
  request.once("end", cancel).once("close", cancel);
}

async function respond(
  handler: Handler,
  request: IncomingMessage,
  response: ServerResponse,
  { isListening, headersMs }: { isListening(): boolean; headersMs: number },
): Promise<void> {
  const inbound = new NodeRequest(request, response);
  const { status, headers, body } = await handler.handle(inbound);
  if (response.closed) {
    if (!isWhole(body)) body.cancel();
    return;
  }
  if (inbound.body !== null && !request.complete) endUnread(request, headersMs);
  const isRefusedEarly = headers.connection === "close" && !request.complete;
  if (!isListening()) headers.connection = "close";
  if (isWhole(body) && body !== null) headers["content-length"] = String(Buffer.byteLength(body));
  response.writeHead(status, headers);
  if (!isWhole(body)) return writeBody(body, response);
  if (body === null) return void response.end();
  if (isRefusedEarly && inbound.body !== null) {
    return writeBody(endLate(body, inbound.body), response);
  }
  if (isLarge(body)) return writeBody(inPieces(body), response);
  // `node:http` joins a text with its headers in one string. Bytes would be a second part of the
  // write. Latin-1 has one character per byte. Bytes cost +2 % CPU of a plain call (2026-11-23).
  if (Buffer.isBuffer(body)) response.end(body.toString("latin1"), "latin1");
  else response.end(body);
}

/**
 * Maps an error of `node:http` to the error for the caller; `undefined` for bytes that are not
 * HTTP.
 */
function toErrorCode({ code }: NodeJS.ErrnoException): ErrorCode | undefined {
  if (code === "HPE_HEADER_OVERFLOW") return "headers_too_large";
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return "headers_timeout";
  return code?.startsWith("HPE_") ? "invalid_http" : undefined;
}

/** Creates the answer to an invalid request: the last answer of its connection. */
function toClosingResponse(code: ErrorCode) {
  const { status, headers, body } = toErrorResponse(new GatewayError(code));
  const own = {
    "x-request-id": crypto.randomUUID(),
    "date": new Date().toUTCString(),
    "content-length": Buffer.byteLength(body),
    "connection": "close",
  };
  return { status, headers: { ...headers, ...own }, body };
}

function toHttp(code: ErrorCode): string {
  const { status, headers, body } = toClosingResponse(code);
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`;
}

/**
 * Refuses versions that `node:http` accepts in the request line but does not implement: HTTP/0.9
 * and HTTP/2.0.
 */
function refuseVersion(response: ServerResponse): void {
  const { status, headers, body } = toClosingResponse("invalid_http");
  response.writeHead(status, headers).end(body);
}

/**
 * Ends a connection without a valid request, or whose TLS handshake or header did not arrive in
 * time.
 */
function endConnection(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (socket.writableEnded) return; // already answered; further bytes are discarded
  const code = toErrorCode(error);
  // During an answer, the error would be read as a part of it. (`node:http` does the same check.)
  const isAnswering = "_httpMessage" in socket && Boolean(socket._httpMessage);
  // Ending would wait forever for the handshake.
  if (code === undefined || isAnswering || !socket.writable) return void socket.destroy();
  socket.end(toHttp(code));
  systemClock.timer(LAST_READ_MS, () => socket.destroy());
}

/** The used part of Deno's types. */
interface DenoPermissions {
  requestSync(wanted: { readonly name: "net"; readonly host: string }): { readonly state: string };
}

/**
 * Asks Deno for the permission to listen. Without it, `node:http` throws an error that can't be
 * caught.
 */
function assertMayListen({ hostname, port }: ListenOptions): void {
  const { permissions } =
    (globalThis as unknown as { Deno: { permissions: DenoPermissions } }).Deno;
  const host = `${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
  if (permissions.requestSync({ name: "net", host }).state === "granted") return;
  throw Object.assign(new Error(`Requires net access to ${host}`), { name: "NotCapable" });
}

/**
 * Keeps a server of Deno accepting. It stops without an error when there are no file descriptors
 * left (2.9.5). Listening again has no effect while it does accept. Returns a function that ends
 * this.
 */
function keepAccepting(server: NetServer): () => void {
  const { _handle: handle } = server as NetServer & {
    readonly _handle?: { listen(backlog: number): number };
  };
  const timer = setInterval(() => handle?.listen(BACKLOG), ACCEPT_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** Opens the port. Node shares a port through its cluster. */
function listen(
  server: NetServer,
  { hostname, port, isShared = false }: ListenOptions,
): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ port, host: hostname, reusePort: isShared && runtime === "deno" }, resolve);
  });
}

/** Adds the methods that the listener needs to a server of `node:http`. */
function toOpened(server: HttpServer | HttpsServer): OpenedServer {
  return {
    server,
    closeIdle: () => server.closeIdleConnections(),
    kill: () => server.closeAllConnections(),
  };
}

/** Opens a listener with `node:http`, `node:https` or, on Deno over TLS, `node:http2`. */
export async function serve(handler: Handler, options: ListenOptions): Promise<Listener> {
  const { tls, bodyTimeMs, headersMs = HEADERS_MS, writeStallMs = WRITE_STALL_MS } = options;
  if (runtime === "deno") assertMayListen(options);
  const checkMs = Math.min(CHECK_INTERVAL_MS, headersMs);
  // For a whole request. The gateway's own deadline is earlier.
  const toRequestMs = (bodyTimeMs: number): number => headersMs + bodyTimeMs + CHECK_INTERVAL_MS;
  const isListening = () => server.listening;
  const run = (request: IncomingMessage, response: ServerResponse) => {
    if (request.httpVersionMajor !== 1) return refuseVersion(response);
    respond(handler, request, response, { isListening, headersMs }).catch(() => response.destroy());
  };
  const outputs = new OutputWatch(writeStallMs);
  const pipelines = new Pipelines();
  const onRequest = (request: IncomingMessage, response: ServerResponse) => {
    if (response.socket !== null) run(request, response);
    else pipelines.add(request.socket, response, () => run(request, response));
  };
  const limits = {
    headersTimeout: headersMs,
    requestTimeout: toRequestMs(bodyTimeMs),
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: checkMs,
    maxHeaderSize: MAX_HEADER_BYTES,
    requireHostHeader: false, // the gateway refuses it, with a body
    joinDuplicateHeaders: true, // a repeated credential must not look like one
    noDelay: true,
  };
  const secure = { ...tls, handshakeTimeout: headersMs };
  const { server, closeIdle, kill } = tls !== undefined && runtime === "deno"
    ? await createHttp2Server({ handler, onRequest, limits, tls: secure, outputs })
    : toOpened(
      tls === undefined
        ? createServer(limits, onRequest)
        : createTlsServer({ ...limits, ...secure }, onRequest),
    );
  server.on("clientError", endConnection);
  server.on(tls === undefined ? "connection" : "secureConnection", (socket: Socket) => {
    outputs.add(socket, () => reset(socket));
  });
  await listen(server, options);
  if (runtime === "deno") server.once("close", keepAccepting(server));
  const address = server.address() as AddressInfo; // listening on TCP: neither null nor a path
  return {
    url: toListenerUrl(options, address.port),
    // node:http's own close would end connections that were just accepted and have not been read
    // yet.
    stop: () =>
      new Promise((resolve) => void NetServer.prototype.close.call(server, () => resolve())),
    adjust({ bodyTimeMs, writeStallMs = WRITE_STALL_MS, tls }) {
      server.requestTimeout = toRequestMs(bodyTimeMs);
      outputs.stallMs = writeStallMs;
      if (tls === undefined) return true;
      if (!(server instanceof TlsServer)) return false;
      server.setSecureContext({ ...tls });
      return true;
    },
    closeIdle,
    kill,
  };
}
