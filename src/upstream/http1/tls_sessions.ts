/**
 * TLS sessions of earlier connections. A handshake that resumes a session sends no certificates,
 * and costs a tenth.
 *
 * @module
 */
import type { Buffer } from "node:buffer";
import type { TLSSocket } from "node:tls";
import { runtime } from "../../runtime.ts";

/**
 * The last session with each host. Hosts are in the configuration, so there are few. A session is
 * kept only from a connection whose certificate was verified. Connections that trust other
 * authorities have separate sessions.
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

  /** Forgets the session of a host, because it can be the cause of a failure. */
  forget(host: string): void {
    this.#sessions.delete(host);
  }
}

/**
 * Keeps the sessions of a connection. Deno 2.9 resumes none. It regards a connection with a session
 * as resumed, and then does not check the name in its certificate.
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
