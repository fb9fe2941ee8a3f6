/**
 * What the listeners of the three runtimes have in common.
 *
 * @module
 */
import type { Handler } from "../fetch_handler.ts";

/** PEM texts. */
export interface TlsIdentity {
  readonly cert: string;
  readonly key: string;
}

/** One address to listen on. */
export interface ListenOptions {
  readonly hostname: string;
  /** 0 takes any free one. */
  readonly port: number;
  /** With it the listener speaks https. */
  readonly tls?: TlsIdentity | undefined;
  /** The longest that a caller's body may take, milliseconds: the gateway's own deadline, which must come first. */
  readonly bodyTimeMs: number;
  /** Whether other processes listen on the same port. */
  readonly isShared?: boolean | undefined;
}

/** A listener that is open. */
export interface Listener {
  /** Where it listens, such as `http://127.0.0.1:8787`. */
  readonly url: string;
  /** Accepts nothing new, closes idle connections, and resolves when the open ones are over. */
  stop(): Promise<void>;
  /**
   * Takes over another deadline for bodies and another certificate, for connections from now on.
   *
   * @param options What is asked for now, at the same address
   * @returns Whether all of it holds; else the listener has to be opened anew
   */
  adjust?(options: ListenOptions): boolean;
  /** Closes connections on which nothing goes on, where stopping alone leaves them open. */
  closeIdle?(): void;
  /** Cuts what is still open. */
  kill(): void;
}

/** Opens a listener; one such function a runtime. */
export type Serve = (handler: Handler, options: ListenOptions) => Promise<Listener>;

/**
 * The address of a listener.
 *
 * @param options What was asked for
 * @param port The port that was given
 * @returns Such as `https://127.0.0.1:8788`
 */
export function toListenerUrl({ hostname, tls }: ListenOptions, port: number): string {
  return `${tls === undefined ? "http" : "https"}://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}
