/**
 * Listening on Deno.
 *
 * @module
 */
import type { Handler } from "../fetch_handler.ts";
import { type Listener, type ListenOptions, toListenerUrl } from "./listener.ts";

/** The part of Deno's types that is used here: the official ones clash with those of Node and Bun. */
declare const Deno: {
  serve(
    options: {
      hostname: string;
      port: number;
      reusePort: boolean;
      cert?: string;
      key?: string;
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
 * A request's signal also aborts after a complete answer. The exchange is settled by then and ignores it; Deno's word
 * about that, once a process, would only worry an operator.
 */
function hushLegacyAbort(): void {
  const { warn } = console;
  // deno-lint-ignore no-console -- Deno writes it there itself
  console.warn = (...args: unknown[]) => {
    if (!String(args[0]).startsWith("Deno.serve: request.signal aborts")) warn(...args);
  };
}

/** Bytes, and milliseconds: what an HTTP/2 caller may still send of a body that the answer did not wait for. */
const DRAIN_BYTES = 2 * 1024 * 1024;
const DRAIN_MS = 1000;

/**
 * Reads what is left of a body, and keeps none of it. Deno resets an HTTP/2 stream that is answered before its body has arrived, and
 * curl then reports a broken stream instead of the answer.
 */
async function drain({ body, headers }: Request): Promise<void> {
  if (body === null || body.locked) return;
  if (Number(headers.get("content-length") ?? Infinity) > DRAIN_BYTES) return;
  const reader = body.getReader();
  const timer = setTimeout(() => reader.cancel().catch(() => {}), DRAIN_MS);
  try {
    while (!(await reader.read()).done);
  } catch {
    // the caller left
  }
  clearTimeout(timer);
}

/** After a listener broke, when to open it again. Milliseconds. */
const REOPEN_MS = 100;

/**
 * Opens a listener with `Deno.serve`. Deno ends its accepting for good when it runs out of file descriptors: then the
 * listener is opened again until it stays.
 */
export function serve(handler: Handler, options: ListenOptions): Promise<Listener> {
  hushLegacyAbort();
  const { hostname, tls } = options;
  let isStopped = false;
  const open = (port: number): DenoServer => {
    const server = Deno.serve({
      hostname,
      port,
      reusePort: options.isShared === true,
      ...tls,
      onListen() {},
      onError: () => new Response(null, { status: 500 }), // nothing thrown reaches it; its default prints the error
    }, async (request) => {
      const isHttp2 = !request.headers.has("host"); // its :authority stands in the URL
      if (!isHttp2) return await handler.fetch(request);
      void request.signal; // asked for later, it would not tell of a stream that was reset before
      const response = await handler.fetch(request);
      await drain(request);
      return response;
    });
    server.finished.catch(() => isStopped || reopen(server.addr.port));
    return server;
  };
  const reopen = (port: number): void => {
    setTimeout(() => {
      try {
        if (!isStopped) current = open(port);
      } catch {
        reopen(port); // still none left
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
    kill() {}, // the gateway has ended the exchanges; Deno has no harder way short of leaving
  });
}
