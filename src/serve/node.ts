/**
 * Listening on Node: `node:http` calls the gateway directly, without web `Request` and `Response` in between.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { createServer, type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, Server as NetServer } from "node:net";
import type { Duplex } from "node:stream";
import process from "node:process";
import { Server as TlsServer } from "node:tls";
import { type ErrorCode, GatewayError, toErrorResponse } from "../errors/gateway_error.ts";
import { type ByteSource, type GatewayRequest, isWhole, push, type PushedBody } from "../http/message.ts";
import { systemClock } from "../exchange/clock.ts";
import type { Handler } from "../http/web.ts";
import { runtime } from "../runtime.ts";
import { endLate, HEADERS_MS, type Listener, type ListenOptions, toListenerUrl } from "./listener.ts";

/** Interval at which Node checks for requests that are late. Milliseconds. */
const CHECK_INTERVAL_MS = 5_000;
/** Maximum size of a request's header: the same as on Bun, and independent of `NODE_OPTIONS`. Bytes. */
const MAX_HEADER_BYTES = 16_384;
/** Time for a caller to read the error before its connection is closed. Milliseconds. */
const LAST_READ_MS = 1_000;
/**
 * The time for which an idle connection is kept open: longer than that of common load balancers (60 s), so that they
 * never reuse a connection that is closing. Milliseconds.
 */
const KEEP_ALIVE_MS = 65_000;

/**
 * Wraps a Node stream as a {@link ByteSource}. The stream is paused, so that a reader that stops also stops the sender.
 *
 * @param stream A request's or an answer's body
 * @returns The source
 */
export function fromIncomingMessage(stream: IncomingMessage): ByteSource {
  let isWatched = false;
  let isOver = false;
  let failure: Error | undefined;
  let wake = (): void => {};
  const end = (error?: Error | null) => {
    isOver = true;
    failure ??= error ?? undefined;
    wake();
  };
  const onClose = () => end(stream.complete ? undefined : new Error("The connection closed before the end"));
  /** Adds the listeners, at the first read only: the server never discards an unread body that has listeners. */
  const watch = () => {
    isWatched = true;
    stream.on("readable", () => wake());
    stream.on("end", () => end());
    stream.on("error", end);
    stream.on("close", onClose);
    if (stream.destroyed) onClose();
  };
  return {
    async read() {
      if (!isWatched) watch();
      while (true) {
        const chunk: Uint8Array | null = isOver ? null : stream.read();
        if (chunk !== null) return chunk;
        if (failure !== undefined) throw failure;
        if (isOver) return undefined;
        await new Promise<void>((resolve) => wake = resolve);
      }
    },
    cancel() {
      isOver = true;
      stream.on("error", () => {}); // destroying may report what nobody waits for
      stream.destroy();
      wake();
    },
  };
}

/** A request of `node:http` as a {@link GatewayRequest}. */
class NodeRequest implements GatewayRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: GatewayRequest["headers"];
  readonly body: ByteSource | null;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  #controller: AbortController | undefined;

  constructor(request: IncomingMessage, response: ServerResponse) {
    const { method = "", url = "", headers } = request;
    const hasBody = headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined;
    this.method = method;
    this.url = url;
    this.headers = { // joinDuplicateHeaders: no arrays asked for
      get: (name) => (headers[name] as string | undefined) ?? null,
      forEach(act) {
        for (const name in headers) act(String(headers[name]), name);
      },
    };
    this.body = hasBody ? fromIncomingMessage(request) : null;
    this.#request = request;
    this.#response = response;
  }

  get isGone(): boolean {
    return this.#request.socket.destroyed;
  }

  get signal(): AbortSignal {
    if (this.#controller !== undefined) return this.#controller.signal;
    const controller = this.#controller = new AbortController();
    const response = this.#response;
    // One that waits behind another answer has no socket yet, and Deno does not tell it that the caller left.
    const told = response.socket === null ? this.#request.socket : response;
    if (response.closed || this.isGone) controller.abort();
    else told.once("close", () => controller.abort());
    return controller.signal;
  }
}

/** Writes a body as fast as the caller reads it. */
function writeBody(body: ByteSource | PushedBody, response: ServerResponse): void {
  // Headers leave with those first bytes that are there already: a second write costs 8 % of a short stream (2026-11-22,
  // 8 starts by CPU), and the caller another packet.
  response.cork();
  process.nextTick(() => response.uncork());
  response.flushHeaders();
  response.on("close", () => body.cancel());
  const askForMore = push(body, {
    write: (chunk) => response.write(chunk),
    end: () => response.end(),
    fail: () => response.destroy(), // a body that can't be completed must not look complete
  });
  response.on("drain", askForMore);
}

async function answer(
  handler: Handler,
  request: IncomingMessage,
  response: ServerResponse,
  isListening: () => boolean,
): Promise<void> {
  const { status, headers, body } = await handler.handle(new NodeRequest(request, response));
  if (response.closed) {
    if (!isWhole(body)) body.cancel();
    return;
  }
  const isRefusedEarly = headers.connection === "close" && !request.complete;
  if (!isListening()) headers.connection = "close";
  response.writeHead(
    status,
    isWhole(body) && body !== null ? { ...headers, "content-length": Buffer.byteLength(body) } : headers,
  );
  if (!isWhole(body)) writeBody(body, response);
  else if (body !== null && isRefusedEarly) writeBody(endLate(body, fromIncomingMessage(request)), response);
  else response.end(body ?? undefined);
}

/** Maps an error of `node:http` to the error for the caller; `undefined` for bytes that are not HTTP at all. */
function toErrorCode({ code }: NodeJS.ErrnoException): ErrorCode | undefined {
  if (code === "HPE_HEADER_OVERFLOW") return "headers_too_large";
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return "headers_timeout";
  return code?.startsWith("HPE_") ? "invalid_http" : undefined;
}

function toHttp(code: ErrorCode): string {
  const { status, headers, body } = toErrorResponse(new GatewayError(code));
  const all = {
    ...headers,
    "x-request-id": crypto.randomUUID(),
    "date": new Date().toUTCString(),
    "content-length": Buffer.byteLength(body),
    "connection": "close",
  };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`;
}

/** Ends a connection without a valid request, or whose TLS handshake or header did not arrive in time. */
function endConnection(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (socket.writableEnded) return; // was told already; what still comes is thrown away
  const code = toErrorCode(error);
  // In the middle of an answer it would be read as a part of that. (`node:http` itself asks the same.)
  const isAnswering = "_httpMessage" in socket && Boolean(socket._httpMessage);
  // An end would wait for the handshake, that is for ever.
  if (code === undefined || isAnswering || !socket.writable) return void socket.destroy();
  socket.end(toHttp(code));
  systemClock.timer(LAST_READ_MS, () => socket.destroy());
}

/** Opens a listener with `node:http` or `node:https`. */
export async function serve(handler: Handler, options: ListenOptions): Promise<Listener> {
  const { hostname, port, tls, bodyTimeMs, headersMs = HEADERS_MS } = options;
  const checkMs = Math.min(CHECK_INTERVAL_MS, headersMs);
  // For a whole request: the gateway's own deadline comes first.
  const toRequestMs = (bodyTimeMs: number): number => headersMs + bodyTimeMs + CHECK_INTERVAL_MS;
  const onRequest = (request: IncomingMessage, response: ServerResponse) => {
    answer(handler, request, response, () => server.listening).catch(() => response.destroy());
  };
  const limits = {
    headersTimeout: headersMs,
    requestTimeout: toRequestMs(bodyTimeMs),
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: checkMs,
    maxHeaderSize: MAX_HEADER_BYTES,
    requireHostHeader: false, // the gateway refuses it, with a body
    joinDuplicateHeaders: true, // a credential given twice must not look like one
    noDelay: true,
  };
  const server = tls === undefined
    ? createServer(limits, onRequest)
    : createTlsServer({ ...limits, ...tls, handshakeTimeout: headersMs }, onRequest);
  server.on("clientError", endConnection);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, hostname, resolve);
  });
  const address = server.address() as AddressInfo; // listening on TCP: neither null nor a path
  return {
    url: toListenerUrl(options, address.port),
    // node:http's own close would cut connections that were accepted just now and have not been read yet.
    stop: () => new Promise((resolve) => void NetServer.prototype.close.call(server, () => resolve())),
    adjust({ bodyTimeMs, tls }) {
      server.requestTimeout = toRequestMs(bodyTimeMs);
      if (tls === undefined) return true;
      if (!(server instanceof TlsServer) || runtime === "deno") return false; // Deno's node:tls keeps its certificate
      server.setSecureContext({ ...tls });
      return true;
    },
    closeIdle: () => server.closeIdleConnections(),
    kill: () => server.closeAllConnections(),
  };
}
