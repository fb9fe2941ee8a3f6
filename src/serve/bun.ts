/**
 * Listening on Bun.
 *
 * @module
 */
import process from "node:process";
import { setImmediate } from "node:timers";
import { type ByteSource, isWhole } from "../http/message.ts";
import { fromRequest, type Handler, toResponse, WebRequest } from "../http/web.ts";
import { systemClock } from "../exchange/clock.ts";
import { toDirectBody } from "./direct_stream.ts";
import {
  bodyLeft,
  endLate,
  HEADERS_MS,
  type Listener,
  type ListenOptions,
  toListenerUrl,
  WRITE_STALL_MS,
} from "./listener.ts";

interface BunServer {
  readonly port: number;
  stop(closeActiveConnections?: boolean): Promise<void>;
  timeout(request: Request, seconds: number): void;
}

/** The used part of Bun's types. The official types conflict with those of Node and Deno. */
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

/**
 * Maximum size of a caller's body that is read whole. Reading it in pieces takes a quarter of the
 * time that Bun spends on it. Bytes.
 */
const WHOLE_BODY_BYTES = 4_000_000;

/**
 * The longest delay of the header of an answer without body bytes. Bun sends the header only with
 * the first bytes. Milliseconds.
 */
const HEADER_MS = 100;

/** A request of `Bun.serve`. Reading its signal is cheap. */
class BunRequest extends WebRequest {
  get isGone(): boolean {
    return this.signal.aborted;
  }
}

let turn: Promise<void> | undefined;

/**
 * Waits until all data that arrived at the same time was read. Bun answers the requests of a
 * connection in order, but closes the connection if the next request arrives before the answer. The
 * caller is then gone, and its call must not be made. All waiting requests share one timer, whose
 * cost is too small to measure.
 */
function nextTurn(): Promise<void> {
  return turn ??= new Promise((resolve) =>
    setImmediate(() => {
      turn = undefined;
      resolve();
    })
  );
}

/** A body that lifts the listener's deadline for its request after it was read. */
class TimedBody implements ByteSource {
  readonly isWhole: boolean;
  readonly #body: ByteSource;
  readonly #listener: BunServer;
  readonly #request: Request;

  constructor(body: ByteSource, listener: BunServer, request: Request) {
    this.isWhole = body.isWhole === true;
    this.#body = body;
    this.#listener = listener;
    this.#request = request;
  }

  inPieces(): ByteSource | null {
    const pieces = this.#body.inPieces?.() ?? null;
    return pieces && new TimedBody(pieces, this.#listener, this.#request);
  }

  async read(): Promise<Uint8Array | undefined> {
    const chunk = await this.#body.read();
    if (chunk === undefined || this.isWhole) {
      liftDeadline(this.#listener, this.#request);
      await nextTurn();
    }
    return chunk;
  }

  cancel(reason: unknown): void {
    this.#body.cancel(reason);
  }
}

/**
 * The gateway has its own deadlines for quiet answers and slow bodies. Bun would close both after
 * 12 s.
 */
function liftDeadline(listener: BunServer, request: Request): void {
  listener.timeout(request, 0);
}

/** Bun's longest deadline. Seconds. */
const MAX_SECONDS = 255;

const toStallSeconds = (writeStallMs: number): number =>
  Math.min(MAX_SECONDS, Math.ceil(writeStallMs / 1000));

/** Opens a listener with `Bun.serve`. */
export function serve(handler: Handler, options: ListenOptions): Promise<Listener> {
  const { hostname, port, tls, bodyTimeMs, headersMs = HEADERS_MS, writeStallMs = WRITE_STALL_MS } =
    options;
  const idleSeconds = Math.ceil(headersMs / 1000); // for idle connections too; checked every 4 s
  const toBodySeconds = (bodyTimeMs: number): number => Math.ceil(bodyTimeMs / 1000) + idleSeconds;
  let bodySeconds = toBodySeconds(bodyTimeMs);
  let stallSeconds = toStallSeconds(writeStallMs);
  const server = Bun.serve({
    hostname,
    port,
    reusePort: options.isShared === true,
    ...(tls && { tls }),
    development: false, // its error page shows source code
    idleTimeout: idleSeconds,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER, // the gateway enforces its own limit, and answers with a body
    async fetch(request, listener) {
      const body = fromRequest(request, WHOLE_BODY_BYTES);
      if (body === null) liftDeadline(listener, request);
      else listener.timeout(request, bodySeconds);
      if (body === null) await nextTurn();
      const answer = await handler.handle(
        new BunRequest(request, body && new TimedBody(body, listener, request)),
      );
      // A lifted deadline stays lifted for the connection. Without this new deadline, a caller that
      // reads nothing would keep the connection open. A refused body is not read: the connection
      // waits for it as for a header.
      const isRefused = body !== null && !request.bodyUsed;
      const limitOutput = () => listener.timeout(request, isRefused ? idleSeconds : stallSeconds);
      const { body: relayed } = answer;
      const rest = answer.headers.connection === "close" ? bodyLeft(request, body) : null;
      if (!isWhole(relayed)) {
        const content = toDirectBody(relayed, limitOutput);
        if (content instanceof Uint8Array) limitOutput();
        else {
          systemClock.timer(HEADER_MS, () => "announce" in relayed && relayed.announce?.());
        }
        return toResponse(answer, content);
      }
      limitOutput();
      if (relayed !== null && rest !== null) answer.body = endLate(relayed, rest);
      return toResponse(answer);
    },
    // No error of the handler reaches this. Bun's default would show the error.
    error: () => new Response(null, { status: 500 }),
  });
  return Promise.resolve({
    url: toListenerUrl(options, server.port),
    adjust({ bodyTimeMs, writeStallMs = WRITE_STALL_MS, tls }) {
      bodySeconds = toBodySeconds(bodyTimeMs);
      stallSeconds = toStallSeconds(writeStallMs);
      return tls === undefined; // Bun's reload does not replace the certificate
    },
    stop: () => server.stop(),
    kill: () => void server.stop(true),
  });
}

/** Returns the path of this program. */
export function programPath(): string {
  const [, program] = process.argv;
  if (program === undefined) throw new Error("Cannot start: the runtime does not name the program");
  return program;
}

/**
 * Returns the arguments that start this program again, without the runtime itself. Returns none in
 * an executable of `bun build --compile`, where `process.argv` has a virtual path.
 */
export function ownProgram(): string[] {
  const program = programPath();
  return program.startsWith("/$bunfs/") ? [] : [program];
}
