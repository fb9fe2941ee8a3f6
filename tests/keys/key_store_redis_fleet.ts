/** Gateways' stores of keys around one Redis. */
import { Redis } from "ioredis";
import { RedisClient, type RedisTarget } from "../../src/storage/redis_client.ts";
import type { GatewayKey } from "../../src/keys/key_store.ts";
import { KeySnapshot } from "../../src/keys/key_snapshot_file.ts";
import { RedisKeyStore } from "../../src/keys/redis/key_store.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { SharedFile } from "../../src/storage/shared_file.ts";
import { type RedisServer, startRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

/** A `redis.timeout` that a busy machine meets too. Milliseconds. */
export const PATIENT_TIMEOUT_MS = 10_000;

/** Differences of a gateway's store from the usual one. */
export interface MemberOptions {
  readonly timer?: Clock["timer"] | undefined;
  readonly snapshot?: string | undefined;
}

/** A gateway's store. Its clock can be moved forward, or stopped. */
export class Member {
  /** Messages for the operator. */
  readonly reports: string[] = [];
  /** Lines of the store for the operator. */
  readonly told: string[] = [];
  readonly client: RedisClient;
  readonly store: RedisKeyStore;
  #ahead = 0;
  #stoppedAt: number | undefined;

  /**
   * @param target Redis, or its URL
   * @param options The source of its timers (default: the runtime). The file of its snapshot, if it
   * has one
   */
  constructor(
    target: string | RedisTarget,
    { timer = systemClock.timer, snapshot }: MemberOptions = {},
  ) {
    const monotonic = () => (this.#stoppedAt ?? systemClock.monotonic()) + this.#ahead;
    const clock: Clock = { now: () => systemClock.now() + this.#ahead, monotonic, timer };
    this.client = new RedisClient(target, clock, (text) => this.reports.push(text));
    const report = (text: string) => void this.told.push(text);
    this.store = new RedisKeyStore(this.client, clock, {
      report,
      isCluster: this.client.isCluster,
      snapshot: snapshot === undefined
        ? undefined
        : new KeySnapshot(new SharedFile(snapshot), { clock, report }),
    });
  }

  /** Lets time pass. */
  pass(ms: number): void {
    this.#ahead += ms;
  }

  /** Stops time: known keys stay fresh. */
  stopTime(): void {
    this.#stoppedAt = systemClock.monotonic();
  }

  /** The result of a look-up: an id, `unknown`, or the code of the error. */
  async say({ digest }: Pick<GatewayKey, "digest">): Promise<string> {
    try {
      return (await this.store.find(digest))?.id ?? "unknown";
    } catch (error) {
      if (!GatewayError.is(error)) throw error;
      return error.code;
    }
  }

  async close(): Promise<void> {
    await this.store.close();
    this.client.close();
  }
}

/** A Redis, and the gateways that use it. */
export class Fleet {
  readonly server: RedisServer;
  /** Redis without a gateway between. */
  readonly raw: Redis;
  readonly #timeoutMs: number;
  readonly #members: Member[] = [];

  private constructor(server: RedisServer, timeoutMs: number) {
    this.server = server;
    this.#timeoutMs = timeoutMs;
    this.raw = new Redis(server.url, { retryStrategy: () => 20 });
    this.raw.on("error", () => {});
  }

  /**
   * Runs a function with a fleet, and closes the fleet.
   *
   * @param timeoutMs `redis.timeout`. By default so long that a busy machine is no outage
   */
  static async with(
    act: (fleet: Fleet) => Promise<void>,
    timeoutMs: number = PATIENT_TIMEOUT_MS,
  ): Promise<void> {
    const fleet = new Fleet(await startRedis(), timeoutMs);
    try {
      await act(fleet);
    } finally {
      await fleet.close();
    }
  }

  /** Another gateway. */
  async join(
    { url = this.server.url, timeoutMs = this.#timeoutMs, ...options }:
      & MemberOptions
      & Partial<RedisTarget> = {},
  ): Promise<Member> {
    const member = new Member({ url, timeoutMs }, options);
    this.#members.push(member);
    await member.client.ready();
    return member;
  }

  /** Puts keys into Redis, oldest first. */
  async fill(...keys: GatewayKey[]): Promise<void> {
    const writer = await this.join();
    for (const key of keys) await writer.store.change(key.id, () => key);
  }

  /** Waits until the given number of gateways listen to changes. */
  async listening(count: number): Promise<void> {
    const isSo = async () => (await this.raw.pubsub("NUMSUB", "sallyport:changed"))[1] === count;
    await until(isSo, `${count} listen`);
  }

  /** Returns the number of scripts that Redis has run. */
  async scripts(): Promise<number> {
    const stats = await this.raw.info("commandstats");
    let calls = 0;
    for (const [, count] of stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)) {
      calls += Number(count);
    }
    return calls;
  }

  async close(): Promise<void> {
    for (const member of this.#members) await member.close();
    this.raw.disconnect();
    await this.server.stop();
  }
}
