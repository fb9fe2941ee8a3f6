/**
 * Answers over HTTP/2, for the TLS listener of Deno. `node:http2` also serves HTTP/1.1 there, by
 * ALPN.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import type { Http2ServerRequest, Http2Session, ServerHttp2Stream } from "node:http2";
import type {
  IncomingMessage,
  Server as HttpServer,
  ServerOptions,
  ServerResponse,
} from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { TlsOptions, TLSSocket } from "node:tls";
import {
  type AnyBody,
  type ByteSink,
  type GatewayRequest,
  isWhole,
  push,
} from "../http/message.ts";
import type { Handler } from "../http/web.ts";
import type { OutputWatch } from "./connections.ts";
import { IncomingBody } from "./incoming_body.ts";
import { discard, endLate, inPieces, isLarge } from "./listener.ts";

/** Limit of concurrently open requests on one connection. */
const MAX_STREAMS = 200;
/** Code for the end of a stream without an error (RFC 9113 §7). */
const NO_ERROR = 0;
/** The longest time that an answer waits for the rest of the caller's body. Milliseconds. */
const DISCARD_FIRST_MS = 1_000;

/** A stream with a byte count for {@link OutputWatch}. Sockets have this count themselves. */
type CountedStream = ServerHttp2Stream & { bytesWritten?: number };

type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Headers of a request, without the pseudo-headers. */
class Http2Headers {
  readonly #fields: Headers;

  constructor(fields: Headers) {
    this.#fields = fields;
  }

  get(name: string): string | null {
    const value = this.#fields[name];
    return value === undefined ? null : toText(value, name);
  }

  forEach(act: (value: string, name: string) => void): void {
    for (const name in this.#fields) {
      const value = this.#fields[name];
      if (value !== undefined && !name.startsWith(":")) act(toText(value, name), name);
    }
  }
}

/** Joins a field that occurs more than once. Cookies have their own separator (RFC 9113 §8.2.3). */
function toText(value: string | readonly string[], name: string): string {
  return typeof value === "string" ? value : value.join(name === "cookie" ? "; " : ", ");
}

/** A stream of HTTP/2 as a {@link GatewayRequest}. */
class Http2Request implements GatewayRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: GatewayRequest["headers"];
  readonly body: IncomingBody | null;
  readonly #stream: ServerHttp2Stream;

  constructor(stream: ServerHttp2Stream, fields: Headers) {
    const path = String(fields[":path"] ?? "");
    const authority = fields[":authority"] ?? fields.host;
    this.method = String(fields[":method"] ?? "");
    this.url = authority === undefined ? path : `https://${authority}${path}`;
    this.headers = new Http2Headers(fields);
    this.body = stream.endAfterHeaders ? null : new IncomingBody(stream);
    this.#stream = stream;
  }

  get isGone(): boolean {
    return this.#stream.destroyed || this.#stream.aborted;
  }

  onGone(act: () => void): () => void {
    const stream = this.#stream;
    if (this.isGone) act();
    else stream.on("close", act);
    return () => void stream.off("close", act);
  }
}

/** The receiver of an answer's body: the caller. */
class StreamSink implements ByteSink {
  readonly #stream: CountedStream;

  constructor(stream: CountedStream) {
    this.#stream = stream;
  }

  write(bytes: Uint8Array): boolean {
    const stream = this.#stream;
    stream.bytesWritten = (stream.bytesWritten ?? 0) + bytes.byteLength;
    return stream.write(bytes);
  }

  end(): void {
    this.#stream.end();
  }

  fail(): void {
    breakOff(this.#stream);
  }
}

/** Resets a stream, so that its body does not look complete. `close` would end the body first. */
function breakOff(stream: ServerHttp2Stream): void {
  stream.destroy(new Error("The answer can't be completed"));
}

/** Writes a body as fast as the caller reads it. */
function writeBody(body: AnyBody, stream: ServerHttp2Stream): void {
  stream.on("close", () => body.cancel());
  stream.on("drain", push(body, new StreamSink(stream)));
}

/**
 * Releases a stream some time after its answer, even if the caller's body does not end (RFC 9113
 * §8.1).
 */
function releaseLate(stream: ServerHttp2Stream, rest: AnyBody): void {
  const release = async () => {
    if (!(await discard(rest))) stream.close(NO_ERROR);
  };
  stream.once("finish", () => void release());
}

/**
 * Answers a request. curl reports a broken stream if an answer ends before curl's own body was
 * sent. The answer therefore waits for the body, for up to {@link DISCARD_FIRST_MS}.
 */
export async function answerHttp2(
  handler: Handler,
  { stream, headers: fields }: Http2ServerRequest,
): Promise<void> {
  stream.on("error", () => {}); // if a caller resets its stream; "close" follows
  const inbound = new Http2Request(stream, fields);
  const { status, headers, body } = await handler.handle(inbound);
  const rest = stream.readableEnded ? null : inbound.body;
  const isAhead = isWhole(body) && rest !== null && !(await discard(rest, DISCARD_FIRST_MS));
  if (stream.destroyed || stream.closed) {
    if (!isWhole(body)) body.cancel();
    return;
  }
  delete headers.connection; // RFC 9113 §8.2.2: not allowed in HTTP/2
  if (isWhole(body) && body !== null) headers["content-length"] = String(Buffer.byteLength(body));
  stream.respond({ ...headers, ":status": status }, { endStream: body === null });
  if (rest !== null) releaseLate(stream, rest);
  if (!isWhole(body)) return writeBody(body, stream);
  if (body === null) return;
  if (isAhead) return writeBody(endLate(body, rest), stream);
  if (isLarge(body)) return writeBody(inPieces(body), stream);
  stream.end(body);
}

/**
 * Closes an idle connection after a time. Closes stalled streams, and the connection if its last
 * stream stalled.
 */
function watchSession(session: Http2Session, idleMs: number, outputs: OutputWatch): void {
  let open = 0;
  session.on("stream", (stream: ServerHttp2Stream) => {
    open++;
    stream.once("close", () => open--);
    outputs.add(stream, () => {
      breakOff(stream);
      if (open <= 1) session.destroy();
    });
  });
  session.setTimeout(idleMs, () => open === 0 && session.destroy());
}

/** Options of a server of HTTP/2 and HTTP/1.1. */
export interface Http2Options {
  /** Answers requests over HTTP/2. */
  readonly handler: Handler;
  /** Answers requests over HTTP/1.1. */
  readonly onRequest: (request: IncomingMessage, response: ServerResponse) => void;
  /** Options of `node:http`. */
  readonly limits: ServerOptions & { readonly keepAliveTimeout: number };
  /** Options of `node:tls`. */
  readonly tls: TlsOptions;
  /** Closes stalled streams. */
  readonly outputs: OutputWatch;
}

/** A server of `node:http` or `node:http2`. */
export interface OpenedServer {
  readonly server: HttpServer | HttpsServer;
  /** Closes idle connections. */
  closeIdle(): void;
  /** Closes all connections at once. */
  kill(): void;
}

/** Creates a server for HTTP/2 and HTTP/1.1. */
export async function createHttp2Server(options: Http2Options): Promise<OpenedServer> {
  const { handler, onRequest, limits, tls, outputs } = options;
  // Imported on demand: loading it takes Node some time.
  const { createSecureServer } = await import("node:http2");
  const sessions = new Set<Http2Session>();
  const sockets = new Set<TLSSocket>();
  const settings = { maxConcurrentStreams: MAX_STREAMS };
  const onAnyRequest = (request: Http2ServerRequest | IncomingMessage, response: unknown) => {
    if (!("stream" in request)) return onRequest(request, response as ServerResponse);
    answerHttp2(handler, request).catch(() => breakOff(request.stream));
  };
  // Otherwise a field with white space around its value is left out, and with it a caller's own key.
  const http2 = { settings, strictFieldWhitespaceValidation: false };
  const server = createSecureServer(
    { ...limits, ...tls, ...http2, allowHTTP1: true },
    onAnyRequest,
  );
  server.on("secureConnection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  server.on("session", (session) => {
    sessions.add(session);
    session.on("close", () => sessions.delete(session));
    watchSession(session, limits.keepAliveTimeout, outputs);
  });
  // The server has the options and methods of `node:http`, for HTTP/1.1, but Deno accepts the
  // options only as properties.
  const http1: HttpsServer = Object.assign(server, limits) as unknown as HttpsServer;
  const closeIdle = () => {
    http1.closeIdleConnections();
    for (const session of sessions) session.close(); // closes after its open requests are answered
  };
  const kill = () => {
    for (const socket of sockets) socket.destroy();
  };
  return { server: http1, closeIdle, kill };
}
