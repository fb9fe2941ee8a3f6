/**
 * TLS sessions of earlier connections: a handshake that resumes one sends no certificates, and
 * costs a tenth.
 *
 * @module
 */
import type { Buffer } from "node:buffer";
import type { TLSSocket } from "node:tls";
import { runtime } from "../../runtime.ts";

/**
 * The last session with each host. Hosts come from the configuration, so that they are few. A
 * session is kept only from a connection whose certificate was verified; connections that trust
 * other authorities have sessions of their own.
 */
export class TlsSessions {
  readonly #sessions = new Map<string, Buffer>();

  /** Returns the session to resume. */
  find(host: string): Buffer | undefined {
    return this.#sessions.get(host);
  }

  /** Keeps a session. */
  keep(host: string, session: Buffer): void {
    this.#sessions.set(host, session);
  }

  /** Forgets the session of a host: it may be the reason of a failure. */
  forget(host: string): void {
    this.#sessions.delete(host);
  }
}

/**
 * Keeps the sessions of a connection. Deno 2.9 resumes none, and takes a connection that is given
 * one for resumed, with no look at the name in its certificate.
 */
export function keepSessions(socket: TLSSocket, host: string, sessions: TlsSessions): void {
  if (runtime === "deno") return;
  let last: Buffer | undefined;
  let isVerified = false;
  socket.on("session", (session: Buffer) => {
    last = session;
    if (isVerified) sessions.keep(host, session);
  });
  socket.once("secureConnect", () => {
    isVerified = true;
    if (last !== undefined) sessions.keep(host, last);
  });
  socket.once("error", () => sessions.forget(host));
}
