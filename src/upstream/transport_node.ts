/**
 * Calls over `node:http`: several times as fast as Node's fetch, without its limit of 300 s, and it tells connecting
 * from waiting.
 *
 * @module
 */
import { Agent, type ClientRequest, type IncomingMessage, request as requestHttp } from "node:http";
import { Agent as TlsAgent, request as requestHttps } from "node:https";
import { connect } from "node:net";
import type { ByteSource } from "../byte_source.ts";
import { GatewayError } from "../errors.ts";
import { NeverSent, type Transport, type UpstreamAnswer } from "./transport.ts";

/** Upstream headers beyond this are no readable answer. Bytes. */
const MAX_HEADER_BYTES = 65536;
/** Idle connections kept for each upstream. */
const MAX_FREE_SOCKETS = 1024;

/**
 * A Node stream as a {@link ByteSource}: paused, so that a reader that stops also stops the sender.
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
  /** Not before somebody reads: a body with listeners that nobody reads would never be thrown away by the server. */
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

/** Whether the connection was ever there: before that, not a byte of the call can have left. */
function watchConnect(request: ClientRequest, ms: number, expire: () => void): { isOpen: boolean } {
  const connection = { isOpen: false };
  request.once("socket", (socket) => {
    if (!socket.connecting) return void (connection.isOpen = true);
    const timer = setTimeout(expire, ms);
    socket.once("encrypted" in socket ? "secureConnect" : "connect", () => {
      connection.isOpen = true;
      clearTimeout(timer);
    });
    socket.once("close", () => clearTimeout(timer));
  });
  return connection;
}

function toAnswer(message: IncomingMessage): UpstreamAnswer {
  const headers = new Map<string, string>();
  for (const [name, value] of Object.entries(message.headersDistinct)) {
    if (value !== undefined) headers.set(name, value.join(", "));
  }
  return { status: message.statusCode ?? 0, headers, body: fromIncomingMessage(message) };
}

/**
 * Calls over `node:http` and `node:https`, with connections kept for the next call.
 *
 * @returns The transport
 */
export function createNodeTransport(): Transport {
  const options = { keepAlive: true, maxFreeSockets: MAX_FREE_SOCKETS };
  const agents = { "http:": new Agent(options), "https:": new TlsAgent(options) };
  return {
    send({ url, method, headers, body, connectMs, signal, abort }) {
      return new Promise((resolve, reject) => {
        const isTls = url.protocol === "https:";
        const request = (isTls ? requestHttps : requestHttp)(url, {
          method,
          headers: body === null ? headers : { ...headers, "content-length": body.byteLength },
          agent: isTls ? agents["https:"] : agents["http:"],
          maxHeaderSize: MAX_HEADER_BYTES,
        });
        const onAbort = () => request.destroy(signal.reason);
        signal.addEventListener("abort", onAbort, { once: true });
        request.once("close", () => signal.removeEventListener("abort", onAbort));
        const connection = watchConnect(request, connectMs, () => abort(new GatewayError("upstream_connect_timeout")));
        request.once("response", (message) => resolve(toAnswer(message)));
        request.on("error", (error) => {
          // llhttp's findings; everything else is about the connection.
          const isGarbled = "code" in error && String(error.code).startsWith("HPE_");
          if (isGarbled) reject(new GatewayError("upstream_bad_response", { cause: error }));
          else reject(connection.isOpen ? error : new NeverSent(error));
        });
        request.end(body ?? undefined);
      });
    },
  };
}

/**
 * Whether a host accepts a connection, for runtimes whose fetch does not say.
 *
 * @param url Its host and port
 * @param ms How long to wait, milliseconds
 * @returns `false` only when time ran out: a refusal is for the call itself to find
 */
export function canConnect(url: URL, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
    const socket = connect({ host: url.hostname.replace(/^\[|\]$/g, ""), port });
    const settle = (isOpen: boolean) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(isOpen);
    };
    const timer = setTimeout(() => settle(false), ms);
    socket.once("connect", () => settle(true));
    socket.once("error", () => settle(true));
  });
}
