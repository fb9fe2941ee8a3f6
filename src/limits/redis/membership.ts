/**
 * The gateways that share limits through Redis: how many there are, and which part of the traffic
 * this one has. That part of each limit is its own to decide on while Redis is away.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { LEASE_MS } from "../limiter.ts";
import { JOIN, type JoinCall } from "./scripts.ts";
import { BACKGROUND_MS } from "./settlements.ts";

/** The gateways, and their rates: keys of one slot. */
const GATEWAYS = "sallyport:gateways";
const RATES = "{sallyport:gateways}:rates";
/**
 * Number of gateways of which one takes itself to be one where neither Redis nor its memory nor its
 * operator has told.
 */
export const UNKNOWN_GATEWAYS = 10;
/**
 * Time over which rates are measured, and for which a gateway that was seen is remembered at least.
 * Milliseconds.
 */
const PERIOD_MS = 60_000;

/**
 * Time since the last decision in an outage after which Redis decides, even if no gateway can join.
 * Milliseconds.
 */
const MAX_WAIT_MS = 2 * LEASE_MS.redis;

/** Port: the number of gateways that was met last, which outlives the process. */
export interface FleetMemory {
  /** The number; `undefined` where none was noted. */
  readonly gateways: number | undefined;
  /** Notes the number. */
  noteGateways(gateways: number): void;
}

/** The gateways. */
interface Fleet {
  readonly gateways: number;
  /** Calls of all but this one. */
  readonly others: number;
}

/** The gateways, as one of them finds them when it joins. */
interface Joined extends Fleet {
  /** Number of gateways that have joined since a certain time. */
  readonly back: number;
}

const NO_FLEET: Fleet = { gateways: 0, others: 0 };
const larger = (one: Fleet, other: Fleet): Fleet => ({
  gateways: Math.max(one.gateways, other.gateways),
  others: Math.max(one.others, other.others),
});

/** Membership of this gateway. */
export class Membership {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #id: string;
  readonly #join: RedisCommand<Pick<JoinCall, "rate" | "sinceMs">, Joined>;
  /** Calls of the period, and of the one before. */
  #calls = 0;
  #callsBefore = 0;
  /**
   * The most that was seen in the period, and in the one before: who just left, or was just
   * forgotten, still counts.
   */
  #seen = NO_FLEET;
  #seenBefore = NO_FLEET;
  #periodEnd: number;
  /**
   * The smallest rate of this gateway since the last one that all others know; `undefined` until
   * all others have renewed after this gateway joined.
   */
  #rateKnown: number | undefined;
  /** The smallest rate since {@link #askedAt}. */
  #rateSince = Infinity;
  /** Time of a renewal after which all others have to renew: then they know this gateway's rate. */
  #askedAt: number | undefined;
  /** Time at which Redis was found away last, until all gateways are back. */
  #lostAt: number | undefined;
  #memory: FleetMemory | undefined;
  #expected = UNKNOWN_GATEWAYS;

  constructor(client: RedisClient, clock: Clock, id: string) {
    this.#client = client;
    this.#clock = clock;
    this.#id = id;
    this.#join = client.command({
      script: JOIN,
      write: (mine) => {
        this.#rateSince = Math.min(this.#rateSince, mine.rate); // known without an answer too
        const keys = { gatewaysKey: GATEWAYS, ratesKey: RATES };
        return { ...keys, id, lifeMs: LEASE_MS.redis, ...mine };
      },
      read: (answer, { rate }) => readFleet(answer, rate),
      deadlineMs: BACKGROUND_MS,
    });
    this.#periodEnd = clock.monotonic() + PERIOD_MS;
  }

  /** Counts a call. */
  count(): void {
    this.#calls++;
  }

  /** The number of gateways, this one included. */
  get gateways(): number {
    return Math.max(this.#seen.gateways, this.#seenBefore.gateways) ||
      (this.#memory?.gateways ?? this.#expected);
  }

  /**
   * Divisor of limits while this gateway decides alone: three quarters of each limit are divided by
   * traffic, the rest evenly, so that a gateway without traffic has a quarter of an even share.
   * Whole numbers make the shares of equal gateways exactly equal.
   *
   * The parts of all gateways add up to one limit at most, although they learn of each other at
   * different times: each counts itself by the smallest rate that another one may know, and others
   * by the largest that it knows. A gateway that one of the others may not know yet has no part.
   */
  get divisor(): number {
    const { gateways, others } = larger(this.#seen, this.#seenBefore);
    if (gateways === 0) return this.gateways;
    if (gateways > 1 && this.#rateKnown === undefined) return Infinity;
    const own = Math.min(this.#rateKnown ?? Infinity, this.#rateSince);
    const calls = own + others;
    if (calls === 0) return gateways;
    return (4 * calls * gateways) / (3 * own * gateways + calls);
  }

  /** True while Redis is away, and until all gateways are back. */
  get isAway(): boolean {
    return this.#lostAt !== undefined;
  }

  /**
   * True while others may not have charged yet what they let through in an outage: each gateway
   * still keeps to its share. Gateways that are not back after the life of a membership are not
   * waited for.
   */
  get isWaiting(): boolean {
    if (this.#lostAt === undefined || this.gateways === 1) return false;
    return this.#clock.monotonic() - this.#lostAt < MAX_WAIT_MS;
  }

  /** Notes that Redis is away. */
  lost(): void {
    this.#lostAt = this.#clock.monotonic();
    this.#askedAt = undefined;
  }

  /**
   * Remembers the number of gateways of an earlier process until it has reached Redis, and notes it
   * from then on.
   *
   * @param expected The number where none was noted
   */
  remember(memory: FleetMemory | undefined, expected: number = UNKNOWN_GATEWAYS): void {
    [this.#memory, this.#expected] = [memory, expected];
    if (this.#seen !== NO_FLEET) memory?.noteGateways(this.gateways);
  }

  /** Joins, or stays; and learns of the others. */
  async renew(): Promise<void> {
    this.#turn();
    const rate = this.#rate();
    const lostAt = this.#lostAt;
    const sinceMs = this.#askedAt === undefined
      ? -1
      : Math.floor(this.#clock.monotonic() - this.#askedAt);
    const joined = await this.#join({ rate, sinceMs });
    this.#seen = larger(this.#seen, joined);
    this.#memory?.noteGateways(this.gateways);
    if (lostAt === this.#lostAt) this.#hear(joined, rate);
  }

  /**
   * Notes what others know once all of them have renewed: this gateway's rate, and after an outage
   * that all are back. Those that are gone are not waited for after the life of a membership.
   */
  #hear({ gateways, back }: Joined, rate: number): void {
    const now = this.#clock.monotonic();
    this.#askedAt ??= now;
    const expected = this.isAway ? this.gateways : gateways;
    const haveAllRenewed = expected === 1 || back >= expected ||
      now - this.#askedAt >= LEASE_MS.redis;
    if (!haveAllRenewed) return;
    this.#rateKnown = this.#rateSince;
    this.#rateSince = rate;
    this.#askedAt = now;
    this.#lostAt = undefined;
  }

  /** Leaves. */
  async leave(): Promise<void> {
    await this.#client.run(
      (redis) => Promise.all([redis.zrem(GATEWAYS, this.#id), redis.hdel(RATES, this.#id)]),
      () => {},
      BACKGROUND_MS,
    ).catch(() => {});
  }

  /**
   * Returns the calls of the last minute; of those before the current period as much as lies in it.
   */
  #rate(): number {
    const leftMs = Math.max(0, this.#periodEnd - this.#clock.monotonic());
    return Math.round(this.#calls + this.#callsBefore * leftMs / PERIOD_MS);
  }

  #turn(): void {
    const lateMs = this.#clock.monotonic() - this.#periodEnd;
    if (lateMs < 0) return;
    this.#callsBefore = lateMs < PERIOD_MS ? this.#calls : 0;
    this.#calls = 0;
    // Where Redis is away for longer, what was known last stays known.
    if (this.#seen !== NO_FLEET) [this.#seenBefore, this.#seen] = [this.#seen, NO_FLEET];
    this.#periodEnd = this.#clock.monotonic() + PERIOD_MS;
  }
}

/** Reads the answer of {@link JOIN}. */
function readFleet(answer: unknown, own: number): Joined {
  const [gateways, calls, back] = Array.isArray(answer) ? answer : [];
  const isSound = [gateways, calls, back].every(Number.isInteger) && gateways >= 1;
  if (!isSound) throw new Error("no count of gateways");
  return { gateways, others: Math.max(0, calls - own), back };
}
