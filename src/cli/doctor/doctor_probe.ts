/**
 * Probes of `sallyport doctor`: the DNS lookup, the connection, the TLS handshake.
 *
 * @module
 */
import { lookup } from "node:dns/promises";
import { connect as connectTcp, isIP } from "node:net";
import { connect as connectTls, type ConnectionOptions } from "node:tls";
import type { Buffer } from "node:buffer";
import { runtime } from "../../runtime.ts";

/** Result of one step and its duration in milliseconds. Of an error, only the code is kept. */
export type Step<Found> =
  & { readonly ms: number }
  & ({ readonly found: Found } | { readonly error: string });

/** Returns the code or the name of an error. Omits the message, which can contain foreign text. */
function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}

/** Measures the time of a step. */
export async function timed<Found>(act: () => Promise<Found>): Promise<Step<Found>> {
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
const portOf = ({ port, protocol }: URL): number =>
  Number(port) || (protocol === "https:" ? 443 : 80);

/** Creates an error with our own code. */
export function failure(code: string): Error {
  return Object.assign(new Error(code), { code });
}

/** Looks up the addresses of a host. Returns none if the host is an address itself. */
export function probeName(url: URL): Promise<Step<readonly string[]>> {
  return timed(async () => {
    if (isIP(hostOf(url)) !== 0) return [];
    return (await lookup(hostOf(url), { all: true })).map(({ address }) => address);
  });
}

/** Connects and disconnects. @param ms Time limit, milliseconds */
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
  /**
   * End of the certificate's validity, milliseconds since 1970; `undefined` if the runtime does not
   * report it.
   */
  readonly expiresAt: number | undefined;
  /** Name of the authority that signed the certificate. */
  readonly issuer: string | undefined;
  /** Duration of the handshake, milliseconds. */
  readonly handshakeMs: number;
  /** True if the offered session was resumed; `undefined` if the runtime does not report it. */
  readonly isResumed: boolean | undefined;
  /** The session to resume later, if the server sent one. */
  readonly session: Buffer | undefined;
  /**
   * True if the server disconnected after the handshake, as it does if it requires a client
   * certificate.
   */
  readonly isRefused: boolean;
}

/** Time for a server to reject a client certificate or to send a session. Milliseconds. */
const VERDICT_MS = 500;

/**
 * True if the runtime reports resumption correctly. Deno reports every session as resumed. Bun
 * reports none over a given socket.
 */
function tellsResumption(options: ConnectionOptions | undefined): boolean {
  return runtime === "node" || (runtime === "bun" && options?.socket === undefined);
}

/**
 * Makes a TLS handshake as every call does: the certificate must be valid.
 *
 * @param ms Time limit, milliseconds
 * @param options Settings of TLS, or an underlying socket. With options, waits for the server to
 * accept or reject the client
 */
export function probeTls(
  url: URL,
  ms: number,
  options?: ConnectionOptions,
): Promise<Step<Handshake>> {
  const startedAt = performance.now();
  return timed(() =>
    new Promise((resolve, reject) => {
      const host = hostOf(url);
      const socket = connectTls({
        host,
        port: portOf(url),
        ...(isIP(host) === 0 && { servername: host }),
        ...options,
      });
      const timer = setTimeout(() => socket.destroy(failure("ETIMEDOUT")), ms);
      let session: Buffer | undefined;
      let settle: ((isRefused: boolean) => void) | undefined;
      socket.on("error", (error) => settle === undefined ? reject(error) : settle(true));
      socket.on("session", (given: Buffer) => {
        session = given;
        settle?.(false);
      });
      socket.on("secureConnect", () => {
        const { valid_to: until = "", issuer } = socket.getPeerCertificate() ?? {};
        const expiresAt = Date.parse(until);
        const facts = {
          protocol: socket.getProtocol() ?? undefined,
          expiresAt: Number.isNaN(expiresAt) ? undefined : expiresAt,
          issuer: [issuer?.O ?? issuer?.CN].flat().at(0),
          handshakeMs: performance.now() - startedAt,
          isResumed: tellsResumption(options) ? socket.isSessionReused() : undefined,
        };
        settle = (isRefused) => {
          resolve({ ...facts, session, isRefused });
          socket.destroy();
        };
        if (options === undefined || session !== undefined) settle(false);
        else setTimeout(settle, Math.min(ms, VERDICT_MS), false);
      });
      socket.on("close", () => {
        clearTimeout(timer);
        if (settle === undefined) reject(failure("ECONNRESET"));
        else settle(true);
      });
    })
  );
}
