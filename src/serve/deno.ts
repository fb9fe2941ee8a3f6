/**
 * Listening on Deno.
 *
 * @module
 */
import type { Gateway } from "../gateway.ts";
import { type Listener, type ListenOptions, toListenerUrl } from "./listener.ts";

/** The part of Deno's types that is used here: the official ones clash with those of Node and Bun. */
declare const Deno: {
  serve(
    options: {
      hostname: string;
      port: number;
      cert?: string;
      key?: string;
      onListen(): void;
      onError(error: unknown): Response;
    },
    handler: (request: Request) => Promise<Response>,
  ): { addr: { port: number }; shutdown(): Promise<void>; finished: Promise<void> };
};

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

/** Opens a listener with `Deno.serve`. */
export function serve(gateway: Gateway, options: ListenOptions): Promise<Listener> {
  hushLegacyAbort();
  const { hostname, port, tls } = options;
  const server = Deno.serve({
    hostname,
    port,
    ...tls,
    onListen() {},
    onError: () => new Response(null, { status: 500 }), // nothing thrown reaches it; its default prints the error
  }, gateway.fetch);
  return Promise.resolve({
    url: toListenerUrl(options, server.addr.port),
    stop: () => server.shutdown(),
    kill() {}, // the gateway has ended the exchanges; Deno has no harder way short of leaving
  });
}
