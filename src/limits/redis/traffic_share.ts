/**
 * The traffic of the gateways that share limits, and this gateway's share of it.
 *
 * The shares of all gateways add up to at most one limit, although the gateways learn of each other
 * at different times: each gateway counts itself with the smallest rate that another one can know,
 * and the others with the largest rates that it knows.
 *
 * | event                                  | effect                                               |
 * | -------------------------------------- | ---------------------------------------------------- |
 * | `countCall`                            | the rate of this gateway includes the call           |
 * | `noteSent`: a rate is sent to Redis    | other gateways can know it from now on               |
 * | `learn`: Redis returned the fleet      | the largest fleet of this period includes it         |
 * | `noteAllKnow`: all others have renewed | they know a rate of the last round, and no older one |
 * | `forget`: others may not know this one | this gateway has no share until `noteAllKnow`        |
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";

/**
 * Length of a period. Rates and fleets are kept for the current and the previous period, so a
 * gateway that was seen counts for at least this time. Milliseconds.
 */
const PERIOD_MS = 60_000;

/** The gateways and their traffic. */
export interface FleetTraffic {
  /** Number of gateways, this one included. */
  readonly gateways: number;
  /** Calls of the last minute of all gateways except this one. */
  readonly callsOfOthers: number;
}

const UNKNOWN_FLEET: FleetTraffic = { gateways: 0, callsOfOthers: 0 };

function largest(one: FleetTraffic, other: FleetTraffic): FleetTraffic {
  return {
    gateways: Math.max(one.gateways, other.gateways),
    callsOfOthers: Math.max(one.callsOfOthers, other.callsOfOthers),
  };
}

/** This gateway's share of the traffic. */
export class TrafficShare {
  readonly #clock: Clock;
  #periodEnd: number;
  /** Calls of this gateway in the current period, and in the previous one. */
  #calls = 0;
  #previousCalls = 0;
  /**
   * The largest fleet of the current period, and of the previous one, so that a gateway that just
   * left still counts.
   */
  #fleet = UNKNOWN_FLEET;
  #previousFleet = UNKNOWN_FLEET;
  /** The smallest rate that was sent in the current round. */
  #smallestSent = Infinity;
  /**
   * The smallest rate of the last round, which others can still use. `undefined` while some of them
   * possibly do not know this gateway.
   */
  #smallestKnown: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#periodEnd = clock.monotonic() + PERIOD_MS;
  }

  /** True after Redis has returned the fleet in this period. */
  get isFleetKnown(): boolean {
    return this.#fleet !== UNKNOWN_FLEET;
  }

  /** The number of gateways; 0 before Redis has returned it. */
  get gateways(): number {
    return Math.max(this.#fleet.gateways, this.#previousFleet.gateways);
  }

  /**
   * Divisor of limits for the share of this gateway; `undefined` if no fleet is known, and infinite
   * if some gateways possibly do not know this one.
   *
   * Three quarters of each limit are divided by traffic, and the rest evenly, so that a gateway
   * without traffic has a quarter of an even share. The formula uses whole numbers, so that gateways
   * with equal traffic have exactly equal shares.
   */
  get divisor(): number | undefined {
    const { gateways, callsOfOthers } = largest(this.#fleet, this.#previousFleet);
    if (gateways === 0) return undefined;
    if (gateways > 1 && this.#smallestKnown === undefined) return Infinity;
    const ownCalls = Math.min(this.#smallestKnown ?? Infinity, this.#smallestSent);
    const allCalls = ownCalls + callsOfOthers;
    if (allCalls === 0) return gateways;
    // share = (3/4) * (ownCalls / allCalls) + (1/4) * (1 / gateways), over one denominator
    const numerator = 3 * ownCalls * gateways + allCalls;
    const denominator = 4 * allCalls * gateways;
    return denominator / numerator;
  }

  countCall(): void {
    this.#calls++;
  }

  /**
   * Returns this gateway's calls of the last minute. The previous period counts in proportion to its
   * part of that minute.
   */
  currentRate(): number {
    this.#endPeriodIfOver();
    const remainingMs = Math.max(0, this.#periodEnd - this.#clock.monotonic());
    return Math.round(this.#calls + this.#previousCalls * remainingMs / PERIOD_MS);
  }

  noteSent(rate: number): void {
    this.#smallestSent = Math.min(this.#smallestSent, rate);
  }

  learn(fleet: FleetTraffic): void {
    this.#fleet = largest(this.#fleet, fleet);
  }

  /** Notes that all others have read a rate of this round. The next round begins with `rate`. */
  noteAllKnow(rate: number): void {
    this.#smallestKnown = this.#smallestSent;
    this.#smallestSent = rate;
  }

  forget(): void {
    this.#smallestKnown = undefined;
  }

  #endPeriodIfOver(): void {
    const overMs = this.#clock.monotonic() - this.#periodEnd;
    if (overMs < 0) return;
    this.#previousCalls = overMs < PERIOD_MS ? this.#calls : 0;
    this.#calls = 0;
    // If Redis is away for longer, the last known fleet stays known.
    if (this.isFleetKnown) {
      this.#previousFleet = this.#fleet;
      this.#fleet = UNKNOWN_FLEET;
    }
    this.#periodEnd = this.#clock.monotonic() + PERIOD_MS;
  }
}
