/**
 * Listening on Node: `node:http` straight to the gateway, without web objects in between.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, Server as NetServer } from "node:net";
import { Server as TlsServer } from "node:tls";
import type { ByteSource } from "../byte_source.ts";
import { type InboundRequest, isWhole } from "../exchange.ts";
import type { Handler } from "../fetch_handler.ts";
import { fromIncomingMessage } from "./incoming_body.ts";
import { type Listener, type ListenOptions, toListenerUrl } from "./listener.ts";

/** For a header to arrive; Node checks as often as the interval says. Milliseconds. */
const HEADERS_MS = 10_000;
const CHECK_INTERVAL_MS = 5_000;
/** Longer than the idle time of common load balancers (60 s), so that they never reuse a connection that closes. */
const KEEP_ALIVE_MS = 65_000;

/** For a whole request: the gateway's own deadline comes first. */
const toRequestMs = (bodyTimeMs: number): number => HEADERS_MS + bodyTimeMs + CHECK_INTERVAL_MS;

/** A request of `node:http` as the gateway looks at it. */
class NodeRequest implements InboundRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: InboundRequest["headers"];
  readonly body: ByteSource | null;
  readonly #response: ServerResponse;
  #controller: AbortController | undefined;

  constructor(request: IncomingMessage, response: ServerResponse) {
    const { method = "", url = "", headers } = request;
    const hasBody = headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined;
    this.method = method;
    this.url = url;
    this.headers = { get: (name) => (headers[name] as string | undefined) ?? null }; // joinDuplicateHeaders: no arrays asked for
    this.body = hasBody ? fromIncomingMessage(request) : null;
    this.#response = response;
  }

  get signal(): AbortSignal {
    if (this.#controller !== undefined) return this.#controller.signal;
    const controller = this.#controller = new AbortController();
    if (this.#response.closed) controller.abort();
    else this.#response.once("close", () => controller.abort());
    return controller.signal;
  }
}

/** Writes as fast as the caller reads. */
async function writeBody(body: ByteSource, response: ServerResponse): Promise<void> {
  let wake = (): void => {};
  body.onBroken = () => response.destroy();
  response.on("drain", () => wake());
  response.on("close", () => {
    body.cancel();
    wake();
  });
  response.flushHeaders();
  try {
    while (!response.closed) {
      const chunk = await body.read();
      if (chunk === undefined) return void response.end();
      if (!response.write(chunk)) await new Promise<void>((resolve) => wake = resolve);
    }
  } catch {
    response.destroy(); // a body that can't be completed must not look complete
  }
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
  if (!isListening()) headers.connection = "close";
  response.writeHead(
    status,
    isWhole(body) && body !== null ? { ...headers, "content-length": Buffer.byteLength(body) } : headers,
  );
  if (isWhole(body)) response.end(body ?? undefined);
  else await writeBody(body, response);
}

/** Opens a listener with `node:http` or `node:https`. */
export async function serve(handler: Handler, options: ListenOptions): Promise<Listener> {
  const { hostname, port, tls, bodyTimeMs } = options;
  const onRequest = (request: IncomingMessage, response: ServerResponse) => {
    answer(handler, request, response, () => server.listening).catch(() => response.destroy());
  };
  const limits = {
    headersTimeout: HEADERS_MS,
    requestTimeout: toRequestMs(bodyTimeMs),
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: CHECK_INTERVAL_MS,
    joinDuplicateHeaders: true, // a credential given twice must not look like one
    noDelay: true,
  };
  const server = tls === undefined
    ? createServer(limits, onRequest)
    : createTlsServer({ ...limits, ...tls }, onRequest);
  server.on("clientError", (_error, socket) => {
    if (socket.writable) socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    else socket.destroy();
  });
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
      if (!(server instanceof TlsServer) || "Deno" in globalThis) return false; // Deno's node:tls keeps its certificate
      server.setSecureContext({ ...tls });
      return true;
    },
    closeIdle: () => server.closeIdleConnections(),
    kill: () => server.closeAllConnections(),
  };
}
