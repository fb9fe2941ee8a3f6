/**
 * Connections of `node:http` and `node:http2`: one whose caller does not read is closed, and the
 * number of requests that are worked on ahead of their turn is bounded.
 *
 * @module
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Clock, systemClock } from "../exchange/clock.ts";

/**
 * Interval at which outputs are looked at: a part of the longest stall, and at most this.
 * Milliseconds.
 */
const MAX_LOOK_MS = 5_000;
/** Looks within the longest stall. */
const LOOKS = 4;
/**
 * Limit of requests of one connection that are worked on while an answer before them is not sent.
 */
const MAX_AHEAD = 4;
/** Limit of further requests of one connection that wait; a connection with more is closed. */
const MAX_WAITING = 100;

/**
 * Closes a connection so that its peer sees an error (RST): an answer that ends with its connection
 * must not look complete, and the kernel drops what a caller that does not read would never fetch.
 */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  // Node resets no socket of TLS itself.
  const { _parent: parent } = socket as Socket & { readonly _parent?: Socket };
  (parent ?? socket).resetAndDestroy();
  socket.destroy();
}

/** A socket, or a stream of HTTP/2 whose bytes are counted where they are written. */
interface Output {
  /** Bytes that wait to be sent. */
  readonly writableLength: number;
  /** All bytes so far, with those that wait; left out before the first. */
  readonly bytesWritten?: number;
  once(event: "close", act: () => void): unknown;
}

/** State of an output. */
interface Watched {
  readonly close: () => void;
  /** Bytes that had left it, and when that was first seen. */
  sent: number;
  since: number;
}

/** Closes outputs that do not move. It has a timer only while it has outputs. */
export class OutputWatch {
  readonly #outputs = new Map<Output, Watched>();
  readonly #clock: Clock;
  #stallMs: number;
  #cancelTimer: (() => void) | undefined;

  /**
   * @param stallMs The longest time in which an output with bytes that wait does not move,
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

  /** Closes an output. The others are watched on, also when that fails. */
  #close(output: Output, { close }: Watched): void {
    try {
      close();
    } catch {
      this.#outputs.delete(output); // there is nothing else to close it by
    }
  }
}

/**
 * The requests of a connection that arrived before the answers to earlier ones were sent
 * (pipelining).
 */
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
    this.#socket.pause(); // Node reads on where a body is read
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

/** Bounds the work that one connection can ask for ahead. */
export class Pipelines {
  readonly #bySocket = new WeakMap<Socket, Pipeline>();

  /**
   * Starts a request that arrived before the answer to an earlier one was sent: at once, or when
   * its turn is near.
   *
   * @param response The answer, which has no socket yet
   */
  add(socket: Socket, response: ServerResponse, start: () => void): void {
    let pipeline = this.#bySocket.get(socket);
    if (pipeline === undefined) this.#bySocket.set(socket, pipeline = new Pipeline(socket));
    pipeline.add(response, start);
  }
}
