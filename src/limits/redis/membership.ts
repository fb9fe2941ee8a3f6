/**
 * Membership of this gateway among the gateways that share limits through Redis. It says when Redis
 * decides, and how this gateway divides limits while Redis does not (`traffic_share.ts`).
 *
 * | state       | meaning                                         | next state                      |
 * | ----------- | ----------------------------------------------- | ------------------------------- |
 * | `normal`    | Redis decides                                   | `away`, at `noteFailure`        |
 * | `away`      | Redis has answered no renewal since it failed   | `rejoining`, at a renewal       |
 * | `rejoining` | Redis answers, other gateways can still be away | `normal`, when all have renewed |
 * |             |                                                 | or after 10 s; `away` as above  |
 *
 * In `away` and `rejoining`, this gateway decides locally about each subject for which Redis has
 * failed, because other gateways can have unsynced calls: until the next state is `normal`, but for
 * at most 20 s after the last failure ({@link Membership.waitsForOthers}).
 *
 * A round begins with a renewal of this gateway, and ends when all others have renewed after it.
 * Then they know this gateway, and the next round begins.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { LEASE_MS } from "../limiter.ts";
import { JOIN, type JoinCall } from "./scripts.ts";
import { BACKGROUND_MS } from "./settlements.ts";
import { type FleetTraffic, TrafficShare } from "./traffic_share.ts";

/** The keys of the gateways and their rates, in one slot. */
const GATEWAYS = "sallyport:gateways";
const RATES = "{sallyport:gateways}:rates";
/**
 * The assumed number of gateways if it is known neither from Redis nor from memory nor from the
 * operator.
 */
const UNKNOWN_GATEWAYS = 10;
/** The longest round: after this time, a gateway that has not renewed is gone. Milliseconds. */
const MAX_ROUND_MS = LEASE_MS.redis;
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

/** Answer to a renewal. */
interface RenewedFleet extends FleetTraffic {
  /** Number of gateways that have renewed in the round, this one included. */
  readonly renewed: number;
}

type RenewCommand = RedisCommand<Pick<JoinCall, "rate" | "sinceMs">, RenewedFleet>;

/** Membership of this gateway. */
export class Membership {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #id: string;
  readonly #share: TrafficShare;
  readonly #renewInRedis: RenewCommand;
  /** Last time at which Redis failed to decide; `undefined` in the state `normal`. */
  #failedAt: number | undefined;
  /** Begin of the round; `undefined` before the first renewal and in the state `away`. */
  #roundBegan: number | undefined;
  /** Time of the last successful renewal, and the generation of the server that it went to. */
  #renewedAt = -Infinity;
  #renewedGeneration = 0;
  #memory: FleetMemory | undefined;
  #expectedGateways = UNKNOWN_GATEWAYS;

  constructor(client: RedisClient, clock: Clock, id: string) {
    this.#client = client;
    this.#clock = clock;
    this.#id = id;
    const share = this.#share = new TrafficShare(clock);
    this.#renewInRedis = client.command({
      script: JOIN,
      write: (own) => {
        share.noteSent(own.rate); // others can know it even if the reply is lost
        const keys = { gatewaysKey: GATEWAYS, ratesKey: RATES };
        return { ...keys, id, lifeMs: LEASE_MS.redis, ...own };
      },
      read: (reply, { rate }) => readFleet(reply, rate),
      deadlineMs: BACKGROUND_MS,
    });
  }

  /** State of this gateway, see the table above. */
  get state(): "normal" | "away" | "rejoining" {
    if (this.#failedAt === undefined) return "normal";
    return this.#roundBegan === undefined ? "away" : "rejoining";
  }

  /**
   * True while other gateways can have unsynced calls of an outage, so this gateway must stay
   * within its share, even if Redis answers. In a Cluster, Redis decides as soon as it answers.
   */
  get waitsForOthers(): boolean {
    if (this.#failedAt === undefined || this.gateways === 1 || this.#client.isCluster) return false;
    return this.#clock.monotonic() - this.#failedAt < MAX_WAIT_MS;
  }

  /** The number of gateways, this one included. */
  get gateways(): number {
    return this.#share.gateways || (this.#memory?.gateways ?? this.#expectedGateways);
  }

  /** Divisor of limits for the share of this gateway; infinite if it has no share yet. */
  get divisor(): number {
    return this.#share.divisor ?? this.gateways;
  }

  /** Counts a call in this gateway's share of the traffic. */
  countCall(): void {
    this.#share.countCall();
  }

  /**
   * Uses the number of gateways from an earlier process until Redis answers, and stores the number
   * from then on.
   *
   * @param expected The number if none was stored
   */
  remember(memory: FleetMemory | undefined, expected: number = UNKNOWN_GATEWAYS): void {
    this.#memory = memory;
    this.#expectedGateways = expected;
    if (this.#share.isFleetKnown) memory?.noteGateways(this.gateways);
  }

  /** Notes that Redis failed to decide: the next state is `away`. */
  noteFailure(): void {
    this.#failedAt = this.#clock.monotonic();
    this.#roundBegan = undefined;
  }

  /** Joins or renews, and learns of the others. The next state is `rejoining` or `normal`. */
  async renew(): Promise<void> {
    const rate = this.#share.currentRate();
    const now = this.#clock.monotonic();
    const { generation } = this.#client;
    this.#noteLapse(now, generation);
    const failedAt = this.#failedAt;
    const roundBegan = this.#roundBegan;
    const fleet = await this.#renewInRedis({ rate, sinceMs: toSinceMs(roundBegan, now) });
    this.#renewedAt = now;
    this.#renewedGeneration = generation;
    this.#share.learn(fleet);
    this.#memory?.noteGateways(this.gateways);
    // Another renewal can have been answered meanwhile, or Redis can have failed.
    const isSameRound = failedAt === this.#failedAt && roundBegan === this.#roundBegan;
    if (isSameRound) this.#continueRound(fleet, rate);
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
   * Begins as if this gateway had not joined if others can have forgotten it. In an outage, all
   * gateways keep the shares that they had before.
   */
  #noteLapse(now: number, generation: number): void {
    const hasLapsed = now - this.#renewedAt >= LEASE_MS.redis ||
      generation !== this.#renewedGeneration;
    if (!hasLapsed || this.state !== "normal") return;
    this.#roundBegan = undefined;
    this.#share.forget();
  }

  /** Begins the round if there is none, or ends it if all others have renewed in it. */
  #continueRound({ gateways, renewed }: RenewedFleet, rate: number): void {
    const now = this.#clock.monotonic();
    this.#roundBegan ??= now; // in the state `away`: it is now `rejoining`
    const awaited = this.state === "normal" ? gateways : this.gateways;
    const haveAllRenewed = awaited === 1 || renewed >= awaited;
    if (!haveAllRenewed && now - this.#roundBegan < MAX_ROUND_MS) return;
    this.#share.noteAllKnow(rate);
    this.#roundBegan = now;
    this.#failedAt = undefined;
  }
}

/** Returns the time since a round began, as {@link JoinCall.sinceMs}. */
function toSinceMs(roundBegan: number | undefined, now: number): number {
  if (roundBegan === undefined) return -1;
  // Redis counts whole milliseconds: the one in which the round began does not count.
  return Math.max(0, Math.floor(now - roundBegan) - 1);
}

/** Reads the reply of {@link JOIN}. */
function readFleet(reply: unknown, ownCalls: number): RenewedFleet {
  const [gateways, calls, renewed] = Array.isArray(reply) ? reply : [];
  const isSound = [gateways, calls, renewed].every(Number.isInteger) && gateways >= 1;
  if (!isSound) throw new Error("no count of gateways");
  return { gateways, callsOfOthers: Math.max(0, calls - ownCalls), renewed };
}
