/**
 * Probes of `sallyport doctor`: the DNS lookup, the connection, the TLS handshake, and calls that are watched. Nothing
 * of an answer's text is kept.
 *
 * @module
 */
import { lookup } from "node:dns/promises";
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { connect as connectTcp, isIP } from "node:net";
import { connect as connectTls } from "node:tls";
import { createGunzip } from "node:zlib";
import { OPENAI_CHAT } from "../../dialects/openai_chat.ts";

/** Result of one step and its duration in milliseconds; of an error only the code is kept. */
export type Step<Found> = { readonly ms: number } & ({ readonly found: Found } | { readonly error: string });

/** Returns the code or the name of an error, and no message, which may quote foreign text. */
function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}

async function timed<Found>(act: () => Promise<Found>): Promise<Step<Found>> {
  const startedAt = performance.now();
  const elapsed = () => performance.now() - startedAt;
  try {
    const found = await act();
    return { found, ms: elapsed() };
  } catch (error) {
    return { error: codeOf(error), ms: elapsed() };
  }
}

const hostOf = ({ hostname }: URL): string => hostname.replace(/^\[|\]$/g, "");
const portOf = ({ port, protocol }: URL): number => Number(port) || (protocol === "https:" ? 443 : 80);

/** An error with a code of our own. */
function failure(code: string): Error {
  return Object.assign(new Error(code), { code });
}

/** @returns The addresses of a host; none for one that is an address itself */
export function probeName(url: URL): Promise<Step<readonly string[]>> {
  return timed(async () => {
    if (isIP(hostOf(url)) !== 0) return [];
    return (await lookup(hostOf(url), { all: true })).map(({ address }) => address);
  });
}

/** Connects, and closes the connection again. @param ms Time limit, milliseconds */
export function probeConnection(url: URL, ms: number): Promise<Step<void>> {
  return timed(() =>
    new Promise((resolve, reject) => {
      const socket = connectTcp({ host: hostOf(url), port: portOf(url) });
      const timer = setTimeout(() => socket.destroy(failure("ETIMEDOUT")), ms);
      socket.on("error", reject);
      socket.on("connect", () => {
        resolve();
        socket.destroy();
      });
      socket.on("close", () => {
        clearTimeout(timer);
        reject(failure("ETIMEDOUT"));
      });
    })
  );
}

/** Facts of a TLS connection. */
export interface Handshake {
  /** Version of TLS, for example `TLSv1.3`. */
  readonly protocol: string | undefined;
  /** End of the certificate's validity, milliseconds since 1970; `undefined` where the runtime does not tell. */
  readonly expiresAt: number | undefined;
}

/** Makes a TLS handshake as every call does: the certificate has to be valid. @param ms Time limit, milliseconds */
export function probeTls(url: URL, ms: number): Promise<Step<Handshake>> {
  return timed(() =>
    new Promise((resolve, reject) => {
      const host = hostOf(url);
      const socket = connectTls({ host, port: portOf(url), ...(isIP(host) === 0 && { servername: host }) });
      const timer = setTimeout(() => socket.destroy(failure("ETIMEDOUT")), ms);
      socket.on("error", reject);
      socket.on("secureConnect", () => {
        const expiresAt = Date.parse(socket.getPeerCertificate()?.valid_to ?? "");
        resolve({
          protocol: socket.getProtocol() ?? undefined,
          expiresAt: Number.isNaN(expiresAt) ? undefined : expiresAt,
        });
        socket.destroy();
      });
      socket.on("close", () => {
        clearTimeout(timer);
        reject(failure("ECONNRESET"));
      });
    })
  );
}

/** One call. */
export interface Call {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Time limit of the whole call, milliseconds. */
  readonly ms: number;
  /** True to leave once a first event is there. */
  readonly leaves?: boolean;
}

/** Facts of an answer. */
export interface Seen {
  readonly status: number;
  /** Error code of the gateway, if the answer is its own. */
  readonly gatewayError: string | undefined;
  readonly mediaType: string;
  readonly coding: string;
  readonly firstByteMs: number;
  /** The number of a stream's `data` lines that are not empty. */
  readonly events: number;
  readonly comments: number;
  readonly hasDone: boolean;
  /** True if the answer itself states that it is complete. */
  readonly isComplete: boolean;
  /** Tokens in all, where they are stated. */
  readonly tokens: number | undefined;
  /** True if the caller left before the end. */
  readonly hasLeft: boolean;
}

const COLON = 0x3a;
const [LF, CR] = [0x0a, 0x0d];

/** Counts lines that are comments, whichever way a stream is cut. */
class CommentCounter {
  count = 0;
  #isAtStart = true;

  push(bytes: Uint8Array): void {
    for (const byte of bytes) {
      if (this.#isAtStart && byte === COLON) this.count++;
      this.#isAtStart = byte === LF || byte === CR;
    }
  }
}

const fieldOf = ({ headers }: IncomingMessage, name: string): string => String(headers[name] ?? "");

/** Watches an answer to its end, or to its first event. */
function watch(response: IncomingMessage, leaves: boolean, startedAt: number): Promise<Seen> {
  const mediaType = fieldOf(response, "content-type").split(";")[0]?.trim().toLowerCase() ?? "";
  const coding = fieldOf(response, "content-encoding").toLowerCase();
  const scanner = OPENAI_CHAT.createScanner(1);
  const meter = OPENAI_CHAT.createMeter();
  const comments = new CommentCounter();
  const body = coding === "gzip" ? response.pipe(createGunzip()) : response;
  let firstByteMs: number | undefined;
  return new Promise((resolve, reject) => {
    const settle = (hasLeft: boolean) => {
      const isStream = mediaType === "text/event-stream";
      resolve({
        status: response.statusCode ?? 0,
        gatewayError: response.headers["sallyport-error"] === undefined
          ? undefined
          : fieldOf(response, "sallyport-error"),
        mediaType,
        coding,
        firstByteMs: firstByteMs ?? performance.now() - startedAt,
        events: scanner.payloads,
        comments: comments.count,
        hasDone: scanner.isDone,
        isComplete: scanner.isComplete,
        tokens: (isStream ? scanner.usage : meter.usage)?.total,
        hasLeft,
      });
      if (hasLeft) response.destroy();
    };
    body.on("data", (chunk: Uint8Array) => {
      firstByteMs ??= performance.now() - startedAt;
      scanner.push(chunk);
      meter.push(chunk);
      comments.push(chunk);
      if (leaves && scanner.payloads > 0 && !scanner.isComplete) settle(true);
    });
    for (const stream of new Set([body, response])) stream.on("error", reject);
    body.on("end", () => {
      scanner.end();
      settle(false);
    });
    response.on("close", () => response.complete || reject(failure("ECONNRESET")));
  });
}

/** Makes one call, on a connection of its own. @param call The call */
export function probeCall({ url, headers, body, ms, leaves = false }: Call): Promise<Step<Seen>> {
  return timed(() =>
    new Promise((resolve, reject) => {
      const startedAt = performance.now();
      const send = url.startsWith("https:") ? requestHttps : requestHttp;
      const calling = send(url, { method: "POST", headers, agent: false }, (response) => {
        watch(response, leaves, startedAt).then(resolve, reject).finally(() => clearTimeout(timer));
      });
      const timer = setTimeout(() => {
        reject(failure("ETIMEDOUT"));
        calling.destroy();
      }, ms);
      calling.on("error", (error) => {
        clearTimeout(timer);
        reject(error);
      });
      calling.end(body);
    })
  );
}
