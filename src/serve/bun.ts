/**
 * Listening on Bun.
 *
 * @module
 */
import process from "node:process";
import { type ByteSource, fromRequest } from "../byte_source.ts";
import { isWhole } from "../exchange.ts";
import { type Handler, toResponse, WebRequest } from "../fetch_handler.ts";
import { runtimeClock } from "../timers.ts";
import { type Listener, type ListenOptions, toListenerUrl } from "./listener.ts";
import { takeAhead } from "./take_ahead.ts";

interface BunServer {
  readonly port: number;
  stop(closeActiveConnections?: boolean): Promise<void>;
  timeout(request: Request, seconds: number): void;
}

/** The part of Bun's types that is used here: the official ones clash with those of Node and Deno. */
declare const Bun: {
  serve(options: {
    hostname: string;
    port: number;
    reusePort: boolean;
    tls?: { cert: string; key: string };
    development: boolean;
    idleTimeout: number;
    maxRequestBodySize: number;
    fetch(request: Request, server: BunServer): Promise<Response>;
    error(): Response;
  }): BunServer;
};

/** Seconds for a header to arrive and for an idle connection to stay; Bun looks every four. */
const IDLE_SECONDS = 10;
/** A body that is there is handed on whole up to this size: a stream in JavaScript costs Bun as much as all the rest. Bytes. */
const WHOLE_BYTES = 65536;
/** A caller's body is read whole up to this size: its pieces cost Bun a quarter of all that is done with it. Bytes. */
const WHOLE_BODY_BYTES = 4_000_000;

/** The longest time for which Bun holds the header of a quiet stream back: it sends it with the first bytes. Milliseconds. */
const HEADER_MS = 100;
/** For a body to arrive: the gateway's own deadline comes first. */
const toBodySeconds = (bodyTimeMs: number): number => Math.ceil(bodyTimeMs / 1000) + IDLE_SECONDS;

/** Calls `onEnd` when the body is there, for the deadlines of the listener end with it. */
function withEnd(body: ByteSource, onEnd: () => void): ByteSource {
  const { isWhole = false } = body;
  return {
    isWhole,
    inPieces() {
      const pieces = body.inPieces?.() ?? null;
      return pieces && withEnd(pieces, onEnd);
    },
    async read() {
      const chunk = await body.read();
      if (chunk === undefined || isWhole) onEnd();
      return chunk;
    },
    cancel: (reason) => body.cancel(reason),
  };
}

/** Opens a listener with `Bun.serve`. */
export function serve(handler: Handler, options: ListenOptions): Promise<Listener> {
  const { hostname, port, tls, bodyTimeMs } = options;
  let bodySeconds = toBodySeconds(bodyTimeMs);
  const server = Bun.serve({
    hostname,
    port,
    reusePort: options.isShared === true,
    ...(tls && { tls }),
    development: false, // its error page shows sources
    idleTimeout: IDLE_SECONDS,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER, // the gateway counts, and answers with a body
    async fetch(request, listener) {
      // Quiet answers, and bodies that come slowly, are the gateway's to judge: Bun would cut both after 12 s.
      const isPatient = () => listener.timeout(request, 0);
      const body = fromRequest(request, WHOLE_BODY_BYTES);
      if (body === null) isPatient();
      else listener.timeout(request, bodySeconds);
      const answer = await handler.handle(new WebRequest(request, body && withEnd(body, isPatient)));
      const { body: relayed } = answer;
      if (!isWhole(relayed)) {
        answer.body = await takeAhead(relayed, WHOLE_BYTES);
        if (!isWhole(answer.body)) runtimeClock.timer(HEADER_MS, () => relayed.announce?.());
      }
      return toResponse(answer);
    },
    error: () => new Response(null, { status: 500 }), // nothing thrown reaches it; its default shows the error
  });
  return Promise.resolve({
    url: toListenerUrl(options, server.port),
    adjust({ bodyTimeMs, tls }) {
      bodySeconds = toBodySeconds(bodyTimeMs);
      return tls === undefined; // Bun's reload takes no other certificate
    },
    stop: () => server.stop(),
    kill: () => void server.stop(true),
  });
}

/**
 * What follows the runtime's own arguments to start this program again: nothing in an executable of
 * `bun build --compile`, which shows a path of its own as the program's.
 *
 * @returns The program's file, if it is one
 */
export function ownProgram(): string[] {
  const [, program = ""] = process.argv;
  return program.startsWith("/$bunfs/") ? [] : [program];
}
