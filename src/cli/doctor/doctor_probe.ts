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

/** Result of one step and its duration in milliseconds; of an error only the code is kept. */
export type Step<Found> =
  & { readonly ms: number }
  & ({ readonly found: Found } | { readonly error: string });

/** Returns the code or the name of an error, and no message, which may quote foreign text. */
function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}

/** Takes the time of a step. */
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

/** An error with a code of our own. */
export function failure(code: string): Error {
  return Object.assign(new Error(code), { code });
}

/** Looks up the addresses of a host; none if the host is an address itself. */
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
  /**
   * End of the certificate's validity, milliseconds since 1970; `undefined` where the runtime does
   * not tell.
   */
  readonly expiresAt: number | undefined;
  /** Name of the authority that has signed the certificate. */
  readonly issuer: string | undefined;
  /** Duration of the handshake, milliseconds. */
  readonly handshakeMs: number;
  /**
   * True if the session that was given was resumed; `undefined` where the runtime does not tell.
   */
  readonly isResumed: boolean | undefined;
  /** The session to resume later, if one came. */
  readonly session: Buffer | undefined;
  /**
   * True if the other side broke off after the handshake, as it does where it misses a client
   * certificate.
   */
  readonly isRefused: boolean;
}

/**
 * Time in which a server says what it thinks of a client certificate, or sends a session.
 * Milliseconds.
 */
const VERDICT_MS = 500;

/**
 * Returns whether the runtime knows. Deno says yes to every session; Bun says no, over a socket
 * that is given.
 */
function tellsResumption(options: ConnectionOptions | undefined): boolean {
  return runtime === "node" || (runtime === "bun" && options?.socket === undefined);
}

/**
 * Makes a TLS handshake as every call does: the certificate has to be valid.
 *
 * @param ms Time limit, milliseconds
 * @param options Settings of TLS, or a socket below it; with any of them the server's verdict is
 * waited for
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
