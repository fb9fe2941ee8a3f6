/**
 * The gateways that share limits through Redis: their number, and this gateway's share of the
 * traffic. While Redis is away, this gateway decides locally on the same share of each limit.
 *
 * | state       | meaning                                         | next state                      |
 * | ----------- | ----------------------------------------------- | ------------------------------- |
 * | `normal`    | Redis decides                                   | `away`, at `failed`             |
 * | `away`      | Redis has answered no renewal since it failed   | `rejoining`, at a renewal       |
 * | `rejoining` | Redis answers, other gateways can still be away | `normal`, when all have renewed |
 * |             |                                                 | or after 10 s; `away` as above  |
 *
 * In `away` and `rejoining`, this gateway decides locally about each subject for which Redis has
 * failed, because other gateways can have unsynced calls: until the next state is `normal`, but for
 * at most 20 s after the last failure ({@link Membership.staysLocal}).
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { LEASE_MS } from "../limiter.ts";
import { JOIN, type JoinCall } from "./scripts.ts";
import { BACKGROUND_MS } from "./settlements.ts";

/** The keys of the gateways and their rates, in one slot. */
const GATEWAYS = "sallyport:gateways";
const RATES = "{sallyport:gateways}:rates";
/**
 * The assumed number of gateways if it is known neither from Redis nor from memory nor from the
 * operator.
 */
export const UNKNOWN_GATEWAYS = 10;
/**
 * Time over which rates are measured. A gateway that was seen is remembered for at least this time.
 * Milliseconds.
 */
const PERIOD_MS = 60_000;

/**
 * Time after the last failure when Redis decides again about all subjects, even if no gateway can
 * rejoin. Milliseconds.
 */
const MAX_WAIT_MS = 2 * LEASE_MS.redis;

/** Port: storage for the last known number of gateways, which outlives the process. */
export interface FleetMemory {
  /** The number; `undefined` if none was noted. */
  readonly gateways: number | undefined;
  /** Notes the number. */
  noteGateways(gateways: number): void;
}

/** The gateways. */
interface Fleet {
  readonly gateways: number;
  /** Calls of all gateways except this one. */
  readonly others: number;
}

/** The gateways, as known after a join. */
interface Joined extends Fleet {
  /** Number of gateways that have renewed in the round. */
  readonly renewed: number;
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
   * The largest fleet that was seen in the period, and in the one before, so that a gateway that
   * just left, or was just forgotten, still counts.
   */
  #seen = NO_FLEET;
  #seenBefore = NO_FLEET;
  #periodEnd: number;
  /**
   * The smallest rate of this gateway since the last rate that all others know; `undefined` until
   * all others have renewed after this gateway joined.
   */
  #rateKnown: number | undefined;
  /** The smallest rate in the round. */
  #rateInRound = Infinity;
  /**
   * Time of the renewal of this gateway that began a round. When all others have renewed after it,
   * they know this gateway's rate, and the next round begins. `undefined` before the first renewal
   * and in the state `away`.
   */
  #roundBegan: number | undefined;
  /** Last time at which Redis failed to decide; `undefined` in the state `normal`. */
  #failedAt: number | undefined;
  /** Time of the last successful renewal, and the generation of the server that it went to. */
  #renewedAt = -Infinity;
  #generation = 0;
  #memory: FleetMemory | undefined;
  #expected = UNKNOWN_GATEWAYS;

  constructor(client: RedisClient, clock: Clock, id: string) {
    this.#client = client;
    this.#clock = clock;
    this.#id = id;
    this.#join = client.command({
      script: JOIN,
      write: (mine) => {
        this.#rateInRound = Math.min(this.#rateInRound, mine.rate); // known even if the answer is lost
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
   * Divisor of limits for the share of this gateway: three quarters of each limit are divided by
   * traffic and the rest evenly, so that a gateway without traffic has a quarter of an even share.
   * The formula uses whole numbers, so that gateways with equal traffic have exactly equal shares.
   *
   * The shares of all gateways add up to at most one limit, although they learn of each other at
   * different times: each gateway counts itself with the smallest rate that another one can know,
   * and others with the largest rate that it knows. A gateway that some others possibly do not know
   * yet has no share.
   */
  get divisor(): number {
    const { gateways, others } = larger(this.#seen, this.#seenBefore);
    if (gateways === 0) return this.gateways;
    if (gateways > 1 && this.#rateKnown === undefined) return Infinity;
    const own = Math.min(this.#rateKnown ?? Infinity, this.#rateInRound);
    const calls = own + others;
    if (calls === 0) return gateways;
    return (4 * calls * gateways) / (3 * own * gateways + calls);
  }

  /** State of this gateway, see the table above. */
  get state(): "normal" | "away" | "rejoining" {
    if (this.#failedAt === undefined) return "normal";
    return this.#roundBegan === undefined ? "away" : "rejoining";
  }

  /**
   * True while other gateways can have unsynced calls of an outage, so this gateway must stay
   * within its share.
   */
  get staysLocal(): boolean {
    if (this.#failedAt === undefined || this.gateways === 1) return false;
    return this.#clock.monotonic() - this.#failedAt < MAX_WAIT_MS;
  }

  /** Notes that Redis failed to decide: the next state is `away`. */
  failed(): void {
    this.#failedAt = this.#clock.monotonic();
    this.#roundBegan = undefined;
  }

  /**
   * Uses the number of gateways from an earlier process until Redis answers, and stores the number
   * from then on.
   *
   * @param expected The number if none was stored
   */
  remember(memory: FleetMemory | undefined, expected: number = UNKNOWN_GATEWAYS): void {
    [this.#memory, this.#expected] = [memory, expected];
    if (this.#seen !== NO_FLEET) memory?.noteGateways(this.gateways);
  }

  /** Joins or renews, and reads the state of the others. */
  async renew(): Promise<void> {
    this.#turnPeriod();
    const rate = this.#rate();
    const now = this.#clock.monotonic();
    const { generation } = this.#client;
    const hasLapsed = now - this.#renewedAt >= LEASE_MS.redis || generation !== this.#generation;
    // In an outage all gateways keep the shares that they had before.
    if (hasLapsed && this.state === "normal") this.#forgetOwnShare();
    const [failedAt, roundBegan] = [this.#failedAt, this.#roundBegan];
    // Redis counts whole milliseconds: the one in which the round began does not count.
    const sinceMs = roundBegan === undefined ? -1 : Math.max(0, Math.floor(now - roundBegan) - 1);
    const joined = await this.#join({ rate, sinceMs });
    [this.#renewedAt, this.#generation] = [now, generation];
    this.#seen = larger(this.#seen, joined);
    this.#memory?.noteGateways(this.gateways);
    // Another renewal can have been answered meanwhile, or Redis can have failed.
    if (failedAt === this.#failedAt && roundBegan === this.#roundBegan) {
      this.#endRound(joined, rate);
    }
  }

  /** Other gateways can have forgotten this one, as if it had not joined. */
  #forgetOwnShare(): void {
    this.#roundBegan = undefined;
    this.#rateKnown = undefined;
  }

  /**
   * Ends the round if all others have renewed in it: the next state is `normal`. A round is not
   * longer than the lifetime of a membership, after which a gateway that has not renewed is gone.
   */
  #endRound({ gateways, renewed }: Joined, rate: number): void {
    const now = this.#clock.monotonic();
    this.#roundBegan ??= now; // in the state `away`: it is now `rejoining`
    const expected = this.state === "normal" ? gateways : this.gateways;
    const haveAllRenewed = expected === 1 || renewed >= expected ||
      now - this.#roundBegan >= LEASE_MS.redis;
    if (!haveAllRenewed) return;
    this.#rateKnown = this.#rateInRound;
    this.#rateInRound = rate;
    this.#roundBegan = now;
    this.#failedAt = undefined;
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
   * Returns the calls of the last minute. The previous period counts in proportion to its part of
   * that minute.
   */
  #rate(): number {
    const leftMs = Math.max(0, this.#periodEnd - this.#clock.monotonic());
    return Math.round(this.#calls + this.#callsBefore * leftMs / PERIOD_MS);
  }

  #turnPeriod(): void {
    const lateMs = this.#clock.monotonic() - this.#periodEnd;
    if (lateMs < 0) return;
    this.#callsBefore = lateMs < PERIOD_MS ? this.#calls : 0;
    this.#calls = 0;
    // If Redis is away for longer, the last known fleet stays known.
    if (this.#seen !== NO_FLEET) [this.#seenBefore, this.#seen] = [this.#seen, NO_FLEET];
    this.#periodEnd = this.#clock.monotonic() + PERIOD_MS;
  }
}

/** Reads the answer of {@link JOIN}. */
function readFleet(answer: unknown, own: number): Joined {
  const [gateways, calls, renewed] = Array.isArray(answer) ? answer : [];
  const isSound = [gateways, calls, renewed].every(Number.isInteger) && gateways >= 1;
  if (!isSound) throw new Error("no count of gateways");
  return { gateways, others: Math.max(0, calls - own), renewed };
}
