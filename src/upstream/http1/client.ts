/**
 * HTTP/1.1 client with connections of its own, kept in a pool for each upstream. Its guarantees and a map of its files
 * are in the README beside it.
 *
 * @module
 */
import { type Clock, systemClock } from "../../exchange/clock.ts";
import { NeverSent, type Transport } from "../transport.ts";
import { Call, toRequest } from "./call.ts";
import { Connection, type ConnectionOwner, type Dial } from "./connection.ts";
import { unpackNode } from "./unpack.ts";

/** Idle connections kept for each upstream. */
const MAX_IDLE_CONNECTIONS = 1024;
/** Longest time a connection is used: a new one goes to the address that the host name has by then. Milliseconds. */
const MAX_AGE_MS = 300_000;
/** Time between two looks for idle connections that have become old. Milliseconds. */
const SWEEP_MS = 5000;

/** The connections to one upstream. The idle ones wait in it for the next call. */
class ConnectionPool implements ConnectionOwner {
  readonly #dial: Dial;
  readonly #url: URL;
  readonly #clock: Clock;
  readonly #idle: Connection[] = [];
  #isSweepDue = false;

  constructor(dial: Dial, url: URL, clock: Clock) {
    this.#dial = dial;
    this.#url = url;
    this.#clock = clock;
  }

  /** Returns the idle connection that was used last, so that the others may grow old and close; else a new one. */
  acquire(): Connection {
    const now = this.#clock.monotonic();
    for (let kept = this.#idle.pop(); kept !== undefined; kept = this.#idle.pop()) {
      if (kept.isAlive && kept.idleUntil > now) return kept;
      kept.destroy();
    }
    return new Connection((events) => this.#dial(this.#url, events), this, now + MAX_AGE_MS);
  }

  release(connection: Connection, idleMs: number): void {
    const now = this.#clock.monotonic();
    if (this.#idle.length >= MAX_IDLE_CONNECTIONS || connection.usedUntil <= now) return connection.destroy();
    connection.idleUntil = Math.min(now + idleMs, connection.usedUntil);
    this.#idle.push(connection);
    if (!this.#isSweepDue) this.#sweepLater();
  }

  forget(connection: Connection): void {
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
  }

  #sweepLater(): void {
    this.#isSweepDue = true;
    this.#clock.timer(SWEEP_MS, () => {
      this.#isSweepDue = false;
      const now = this.#clock.monotonic();
      for (const connection of this.#idle.filter(({ idleUntil }) => idleUntil <= now)) {
        this.forget(connection);
        connection.destroy();
      }
      if (this.#idle.length > 0) this.#sweepLater();
    }, { isBackground: true });
  }
}

/**
 * Creates a transport that keeps its connections for further calls.
 *
 * @param dial Opens a socket
 * @param clock Measures the age of connections, and watches the connect deadline
 * @returns The transport
 */
export function createHttp1Transport(dial: Dial, clock: Clock = systemClock): Transport {
  const pools = new Map<string, ConnectionPool>();
  return {
    unpack: unpackNode,
    send(call) {
      const { url, exchange } = call;
      if (exchange.reason !== undefined) return Promise.reject(exchange.reason);
      let pool = pools.get(url.origin);
      if (pool === undefined) pools.set(url.origin, pool = new ConnectionPool(dial, url, clock));
      try {
        return new Call(call, toRequest(call), pool.acquire(), clock).response;
      } catch (error) {
        return Promise.reject(new NeverSent(error));
      }
    },
  };
}
