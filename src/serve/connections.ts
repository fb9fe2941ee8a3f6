/**
 * Connections of `node:http` and `node:http2`. A connection whose caller does not read is closed.
 * The number of requests that are handled ahead of their turn is limited.
 *
 * @module
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Clock, systemClock } from "../exchange/clock.ts";

/**
 * Longest interval between two checks of the outputs. It is shorter if the longest stall is short.
 * Milliseconds.
 */
const MAX_LOOK_MS = 5_000;
/** Number of checks within the longest stall. */
const LOOKS = 4;
/** Limit of requests of one connection that are handled before an earlier answer was sent. */
const MAX_AHEAD = 4;
/** Limit of further waiting requests of one connection. A connection with more is closed. */
const MAX_WAITING = 100;

/**
 * Closes a connection with an error for its peer (RST). An answer that ends with its connection
 * must not look complete, and the kernel discards data that a caller would never read.
 */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  // Node cannot reset a TLS socket itself.
  const { _parent: parent } = socket as Socket & { readonly _parent?: Socket };
  (parent ?? socket).resetAndDestroy();
  socket.destroy();
}

/** A socket, or an HTTP/2 stream whose bytes are counted when written. */
interface Output {
  /** Number of bytes that wait to be sent. */
  readonly writableLength: number;
  /** Number of all bytes so far, including waiting ones. Not set before the first. */
  readonly bytesWritten?: number;
  once(event: "close", act: () => void): unknown;
}

/** State of an output. */
interface Watched {
  readonly close: () => void;
  /** Number of sent bytes, and the time when this number was first seen. */
  sent: number;
  since: number;
}

/** Closes stalled outputs. It has a timer only while it has outputs. */
export class OutputWatch {
  readonly #outputs = new Map<Output, Watched>();
  readonly #clock: Clock;
  #stallMs: number;
  #cancelTimer: (() => void) | undefined;

  /**
   * @param stallMs The longest time that an output with waiting bytes can make no progress,
   * milliseconds
   */
  constructor(stallMs: number, clock: Clock = systemClock) {
    this.#stallMs = stallMs;
    this.#clock = clock;
  }

  /** Changes the longest stall. */
  set stallMs(ms: number) {
    this.#stallMs = ms;
    this.#cancelTimer?.();
    this.#lookLater();
  }

  /**
   * Watches an output until it is closed.
   *
   * @param close Closes the output, or the connection that it belongs to
   */
  add(output: Output, close: () => void): void {
    this.#outputs.set(output, { close, sent: 0, since: this.#clock.monotonic() });
    output.once("close", () => this.#outputs.delete(output));
    if (this.#cancelTimer === undefined) this.#lookLater();
  }

  #lookLater(): void {
    const ms = Math.min(MAX_LOOK_MS, this.#stallMs / LOOKS);
    const look = () => this.#look();
    this.#cancelTimer = this.#outputs.size === 0
      ? undefined
      : this.#clock.timer(ms, look, { isBackground: true });
  }

  #look(): void {
    const now = this.#clock.monotonic();
    for (const [output, watched] of this.#outputs) {
      const sent = (output.bytesWritten ?? 0) - output.writableLength;
      if (output.writableLength === 0 || sent !== watched.sent) {
        watched.sent = sent;
        watched.since = now;
      } else if (now - watched.since >= this.#stallMs) {
        this.#close(output, watched);
      }
    }
    this.#lookLater();
  }

  /** Closes an output. If that fails, the other outputs are still watched. */
  #close(output: Output, { close }: Watched): void {
    try {
      close();
    } catch {
      this.#outputs.delete(output); // there is no other way to close it
    }
  }
}

/** The requests of a connection that arrived before earlier answers were sent (pipelining). */
class Pipeline {
  readonly #socket: Socket;
  readonly #held: (() => void)[] = [];
  #running = 0;
  #isPaused = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  add(response: ServerResponse, start: () => void): void {
    if (this.#held.length >= MAX_WAITING) return reset(this.#socket);
    response.once("close", () => this.#next());
    if (this.#running < MAX_AHEAD) {
      this.#running++;
      return start();
    }
    this.#held.push(start);
    this.#isPaused = true;
    this.#socket.pause(); // Node resumes reading when a body is read
  }

  #next(): void {
    if (this.#socket.destroyed) return;
    const start = this.#held.shift();
    if (start !== undefined) return start();
    this.#running--;
    if (this.#isPaused) this.#socket.resume();
    this.#isPaused = false;
  }
}

/** Limits the requests that one connection can send ahead. */
export class Pipelines {
  readonly #bySocket = new WeakMap<Socket, Pipeline>();

  /**
   * Starts a request that arrived before an earlier answer was sent: at once, or when its turn is
   * near.
   *
   * @param response The answer, which has no socket yet
   */
  add(socket: Socket, response: ServerResponse, start: () => void): void {
    let pipeline = this.#bySocket.get(socket);
    if (pipeline === undefined) this.#bySocket.set(socket, pipeline = new Pipeline(socket));
    pipeline.add(response, start);
  }
}
