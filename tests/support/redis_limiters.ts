/** Limiters on a test's own Redis, as gateways use them. */
import { Redis } from "ioredis";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { RedisLimiter } from "../../src/limits/redis/limiter.ts";
import type { RedisClient } from "../../src/storage/redis_client.ts";
import { type RedisServer, startRedis } from "./redis.ts";

/** A clock for limiters that fires no timer: tests renew explicitly. */
export const quiet: Clock = { ...systemClock, timer: () => () => {} };

/** A gateway's side of Redis. */
export interface LimiterMember<Client> {
  readonly client: Client;
  readonly limiter: RedisLimiter;
  /** Its reports to the operator. */
  readonly reports: string[];
  /** Renews membership and leases, as it does every few seconds, and settles its debts. */
  renew(): Promise<void>;
}

type ClientClass<Client> = new (
  url: string,
  clock: Clock,
  report: (text: string) => void,
) => Client;

/** A Redis, and the limiters of gateways on it. */
export class RedisLimiters {
  readonly server: RedisServer;
  readonly raw: Redis;
  /** Closes everything that a test has opened. */
  readonly closing: (() => Promise<void>)[] = [];
  readonly #patient: Clock;

  private constructor(server: RedisServer, patient: Clock) {
    this.server = server;
    this.#patient = patient;
    this.raw = new Redis(server.url, { retryStrategy: () => 20 });
    this.raw.on("error", () => {});
  }

  /**
   * Starts a Redis. @param patient Clock of connections, with deadlines that are met even on a busy
   * machine
   */
  static async start(patient: Clock): Promise<RedisLimiters> {
    return new RedisLimiters(await startRedis(), patient);
  }

  /** Starts the limiter of a gateway. */
  async join<Client extends RedisClient>(
    Client: ClientClass<Client>,
    { url = this.server.url, clock = quiet }: {
      readonly url?: string | undefined;
      readonly clock?: Clock | undefined;
    } = {},
  ): Promise<LimiterMember<Client>> {
    const reports: string[] = [];
    const client = new Client(url, this.#patient, (text) => reports.push(text));
    await client.ready();
    const limiter = new RedisLimiter(client, clock);
    await limiter.start();
    this.closing.push(() => limiter.close().finally(() => client.close()));
    return { client, limiter, reports, renew: () => limiter.start() };
  }

  async stop(): Promise<void> {
    for (const close of this.closing.splice(0)) await close();
    this.raw.disconnect();
    await this.server.stop();
  }
}
