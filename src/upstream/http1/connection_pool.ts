/**
 * Pool of idle connections, which wait for the next call.
 *
 * @module
 */
import { setTimeout as startTimer } from "node:timers";

/** Idle connections kept for each upstream. */
const MAX_IDLE_CONNECTIONS = 1024;
/** Time between two looks for idle connections that have become old. Milliseconds. */
const SWEEP_MS = 5000;

/** A connection, as narrow as the pool needs it. */
export interface Pooled {
  /** True if it can take a call, as far as is known. */
  readonly isAlive: boolean;
  /** Time from which it is given to no further call. Monotonic, milliseconds. */
  readonly usedUntil: number;
  /** Time until which it is kept while it is idle. Monotonic, milliseconds. */
  idleUntil: number;
  /** Closes it. */
  destroy(): void;
}

/** The idle connections to one upstream. */
export class ConnectionPool<Connection extends Pooled> {
  /** The time, monotonic milliseconds. */
  readonly now: () => number;
  readonly #idle: Connection[] = [];
  #isSwept = false;

  /** @param now The time, monotonic milliseconds */
  constructor(now: () => number) {
    this.now = now;
  }

  /** Takes the connection that was used last out of the pool: the others may grow old and close. */
  take(): Connection | undefined {
    for (let kept = this.#idle.pop(); kept !== undefined; kept = this.#idle.pop()) {
      if (kept.isAlive && kept.idleUntil > this.now()) return kept;
      kept.destroy();
    }
    return undefined;
  }

  /**
   * Keeps a connection for the next call, or closes it where that would be too much or too long.
   *
   * @param connection It carries no call
   * @param idleMs How long it may stay idle, milliseconds
   */
  giveBack(connection: Connection, idleMs: number): void {
    const now = this.now();
    if (this.#idle.length >= MAX_IDLE_CONNECTIONS || connection.usedUntil <= now) return connection.destroy();
    connection.idleUntil = Math.min(now + idleMs, connection.usedUntil);
    this.#idle.push(connection);
    if (!this.#isSwept) this.#sweepLater();
  }

  /** Removes a connection that is closed. */
  forget(connection: Connection): void {
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
  }

  #sweepLater(): void {
    this.#isSwept = true;
    startTimer(() => {
      const now = this.now();
      for (const connection of this.#idle.filter(({ idleUntil }) => idleUntil <= now)) {
        this.forget(connection);
        connection.destroy();
      }
      this.#isSwept = false;
      if (this.#idle.length > 0) this.#sweepLater();
    }, SWEEP_MS).unref(); // a program that has no more to do may end
  }
}
