/**
 * Listening on Deno.
 *
 * @module
 */
import { type Handler, toResponse, WebRequest } from "../http/web.ts";
import { type Listener, type ListenOptions, toListenerUrl } from "./listener.ts";
import { serve as serveNode } from "./node.ts";

/** The used part of Deno's types. The official types conflict with those of Node and Bun. */
declare const Deno: {
  serve(
    options: {
      hostname: string;
      port: number;
      reusePort: boolean;
      onListen(): void;
      onError(error: unknown): Response;
    },
    handler: (request: Request) => Promise<Response>,
  ): DenoServer;
};

interface DenoServer {
  readonly addr: { readonly port: number };
  readonly finished: Promise<void>;
  shutdown(): Promise<void>;
}

/**
 * Suppresses a warning of Deno: a request's signal also aborts after a complete answer. The
 * exchange has settled by then and ignores it.
 */
function muteDenoAbortWarning(): void {
  const { warn } = console;
  // deno-lint-ignore no-console -- Deno writes it there itself
  console.warn = (...args: unknown[]) => {
    if (!String(args[0]).startsWith("Deno.serve: request.signal aborts")) warn(...args);
  };
}

/**
 * Answers a request without a Host header over plain TCP. Deno makes up a host for its URL, which
 * the gateway must ignore.
 */
async function answerHostless(handler: Handler, request: Request): Promise<Response> {
  const hostless = new WebRequest(request);
  const url = hostless.url.replace(/^https?:\/\/[^/]*/, "");
  return toResponse(await handler.handle(Object.assign(hostless, { url })));
}

/** Pause before a broken listener is opened again. Milliseconds. */
const REOPEN_MS = 100;

/**
 * Opens a listener. `Deno.serve` cannot turn Nagle's algorithm off over TLS. With it, an answer of
 * more than 800 bytes takes 44 ms on a kept connection (2.9.5). A TLS listener therefore uses
 * `node:http2`.
 */
export function serve(handler: Handler, options: ListenOptions): Promise<Listener> {
  return options.tls === undefined ? servePlain(handler, options) : serveNode(handler, options);
}

/**
 * Opens a listener with `Deno.serve`. It stops accepting when Deno runs out of file descriptors.
 * The listener is then opened again until it stays open.
 */
function servePlain(handler: Handler, options: ListenOptions): Promise<Listener> {
  muteDenoAbortWarning();
  const { hostname } = options;
  let isStopped = false;
  const open = (port: number): DenoServer => {
    const server = Deno.serve({
      hostname,
      port,
      reusePort: options.isShared === true,
      onListen() {},
      // No error of the handler reaches this. Deno's default would print the error.
      onError: () => new Response(null, { status: 500 }),
    }, (request) => {
      if (!request.headers.has("host")) return answerHostless(handler, request);
      return handler.fetch(request);
    });
    server.finished.catch(() => isStopped || reopen(server.addr.port));
    return server;
  };
  const reopen = (port: number): void => {
    setTimeout(() => {
      try {
        if (!isStopped) current = open(port);
      } catch {
        reopen(port); // still no file descriptors
      }
    }, REOPEN_MS);
  };
  let current = open(options.port);
  return Promise.resolve({
    url: toListenerUrl(options, current.addr.port),
    stop() {
      isStopped = true;
      return current.shutdown();
    },
    kill() {}, // the gateway has ended the exchanges; Deno can only be stopped harder by exiting
  });
}
