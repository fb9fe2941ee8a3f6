/**
 * Listening on Deno.
 *
 * @module
 */
import { isWhole } from "../http/message.ts";
import { fromRequest, type Handler, toResponse, WebRequest } from "../http/web.ts";
import { bodyLeft, discard, endLate, type Listener, type ListenOptions, toListenerUrl } from "./listener.ts";

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
 * Suppresses a warning of Deno that would only worry an operator: a request's signal also aborts after a complete
 * answer. The exchange is settled by then and ignores it.
 */
function muteDenoAbortWarning(): void {
  const { warn } = console;
  // deno-lint-ignore no-console -- Deno writes it there itself
  console.warn = (...args: unknown[]) => {
    if (!String(args[0]).startsWith("Deno.serve: request.signal aborts")) warn(...args);
  };
}

/**
 * Answers a request without a Host header that came over plain TCP. Deno makes up a host for its URL, which the
 * gateway must ignore.
 */
async function answerHostless(handler: Handler, request: Request): Promise<Response> {
  const hostless = new WebRequest(request);
  const url = hostless.url.replace(/^https?:\/\/[^/]*/, "");
  return toResponse(await handler.handle(Object.assign(hostless, { url })));
}

/** The longest time for which an answer waits for the rest of the caller's body. Milliseconds. */
const DISCARD_FIRST_MS = 1_000;

/**
 * Answers a request over HTTP/2, whose URL contains its `:authority`. Deno resets a stream that ends before its body
 * has arrived, and curl resets one whose answer arrives before: both then report a broken stream. The answer therefore
 * waits for the body, for up to {@link DISCARD_FIRST_MS}.
 */
async function answerHttp2(handler: Handler, request: Request): Promise<Response> {
  void request.signal; // asked for later, it would not tell of a stream that was reset before
  const body = fromRequest(request);
  const answer = await handler.handle(new WebRequest(request, body));
  delete answer.headers.connection; // RFC 9113 §8.2.2: has no place in HTTP/2
  const rest = bodyLeft(request, body);
  const isAhead = isWhole(answer.body) && rest !== null && !(await discard(rest, DISCARD_FIRST_MS));
  if (isWhole(answer.body) && answer.body !== null && isAhead) answer.body = endLate(answer.body, rest);
  return toResponse(answer);
}

/** Pause before a listener that broke is opened again. Milliseconds. */
const REOPEN_MS = 100;

/**
 * Opens a listener with `Deno.serve`. Deno stops accepting for good when it runs out of file descriptors: the listener
 * is then opened again until it stays open.
 */
export function serve(handler: Handler, options: ListenOptions): Promise<Listener> {
  muteDenoAbortWarning();
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
    }, (request) => {
      if (request.headers.has("host")) return handler.fetch(request);
      return tls === undefined ? answerHostless(handler, request) : answerHttp2(handler, request);
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
