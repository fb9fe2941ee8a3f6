/** Stores of recordings on a test's own Redis, whose time tests can move. */
import type { Redis } from "ioredis";
import type { RecordingStore } from "../../src/durable/recording_store.ts";
import { RedisRecordings } from "../../src/durable/redis/recording_store.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { RedisClient, type RedisTarget } from "../../src/storage/redis_client.ts";
import { patientClock } from "../support/patient_clock.ts";
import { until } from "../support/until.ts";
import type { RecordingsUnderTest } from "./recording_store_suite.ts";

/** Times of the stores of these tests. Milliseconds. */
export const LEASE_MS = 8000;
export const TOMBSTONE_MS = 20_000;

/** The clock of a server cannot be set: instead, all times in its store are made earlier. */
const MAKE_OLDER = `for _, key in ipairs(redis.call('KEYS', '*')) do
  if string.find(key, ':recording:', 1, true) then
    for _, field in ipairs({'u', 'x', 'a'}) do
      if redis.call('HEXISTS', key, field) == 1 then redis.call('HINCRBY', key, field, -ARGV[1]) end
    end
  end
  if string.find(key, '}:expir', 1, true) then
    for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ARGV[1], id) end
  end
  local left = redis.call('PTTL', key)
  if left > 0 then redis.call('PEXPIRE', key, math.max(0, left - ARGV[1])) end
end`;

/** A clock with a fixed time that a test moves. */
class MovedClock implements Clock {
  isFrozen = false;
  #passedMs = 0;
  #ownMs = 0;
  readonly #due = new Set<{ readonly at: number; readonly fire: () => void }>();

  now(): number {
    return systemClock.now();
  }

  monotonic(): number {
    return this.#ownMs;
  }

  timer(ms: number, fire: () => void): () => void {
    const timer = { at: this.#ownMs + ms, fire };
    this.#due.add(timer);
    return () => void this.#due.delete(timer);
  }

  pass(ms: number): void {
    this.#passedMs += ms;
    if (this.isFrozen) return;
    this.#ownMs = this.#passedMs;
    for (const timer of Array.from(this.#due)) {
      if (timer.at <= this.#ownMs && this.#due.delete(timer)) timer.fire();
    }
  }
}

/** A connection that reports if it waits for answers. */
export class CountedClient extends RedisClient {
  waiting = 0;

  override async run<T>(...args: Parameters<RedisClient["run"]>): Promise<T> {
    this.waiting++;
    try {
      return await super.run(...args) as T;
    } finally {
      this.waiting--;
    }
  }
}

/** A gateway of these tests. */
export interface RecordingGateway {
  readonly store: RecordingStore;
  readonly client: CountedClient;
  readonly clock: MovedClock;
}

/** Gateways over one Redis, or one Cluster. */
export class RedisRecordingsFleet implements RecordingsUnderTest {
  readonly leaseMs: number = LEASE_MS;
  readonly tombstoneMs: number = TOMBSTONE_MS;
  /** Maximum size of all recordings together. Bytes. */
  maxBytes: number = 256 * 1024 * 1024;
  readonly #target: string | RedisTarget;
  readonly #servers: readonly Redis[];
  readonly #clock: Clock;
  readonly #gateways: RecordingGateway[] = [];

  /**
   * @param target The Redis to which gateways connect
   * @param servers Direct connections to its primaries
   * @param clock Clock of the connections
   */
  constructor(
    target: string | RedisTarget,
    servers: readonly Redis[],
    clock: Clock = patientClock,
  ) {
    this.#target = target;
    this.#servers = servers;
    this.#clock = clock;
  }

  /**
   * Opens a further gateway, and waits until it receives messages. @param Client The class of its
   * connection
   */
  async join(Client: typeof CountedClient = CountedClient): Promise<RecordingGateway> {
    const before = new Set(await this.#channels());
    const client = new Client(this.#target, this.#clock, () => {});
    const clock = new MovedClock();
    await client.ready();
    const { leaseMs, tombstoneMs } = this;
    const store = new RedisRecordings({
      client,
      clock,
      leaseMs,
      tombstoneMs,
      maxBytes: () => this.maxBytes,
    });
    const gateway = { store, client, clock };
    this.#gateways.push(gateway);
    await until(
      async () => (await this.#channels()).some((name) => !before.has(name)),
      "it hears messages",
    );
    return gateway;
  }

  async open(): Promise<RecordingStore> {
    return (await this.join()).store;
  }

  async pass(ms: number): Promise<void> {
    for (let leftMs = ms; leftMs > 0; leftMs -= this.leaseMs / 4) {
      const step = Math.min(leftMs, this.leaseMs / 4);
      for (const server of this.#servers) await server.eval(MAKE_OLDER, 0, step);
      for (const { clock } of this.#gateways) clock.pass(step);
      await this.#settle();
    }
  }

  now(): number {
    return systemClock.now();
  }

  freeze(store: RecordingStore): () => void {
    const clocks = this.#gateways.filter((gateway) => gateway.store === store).map(({ clock }) =>
      clock
    );
    for (const clock of clocks) clock.isFrozen = true;
    return () => {
      for (const clock of clocks) {
        clock.isFrozen = false;
        clock.pass(0);
      }
    };
  }

  async size(): Promise<number> {
    const sizes = await Promise.all(this.#servers.map((server) => server.dbsize()));
    return sizes.reduce((sum, size) => sum + size, 0);
  }

  async close(): Promise<void> {
    for (const { store, client } of this.#gateways) {
      await store.close();
      client.close();
    }
    for (const server of this.#servers) await server.flushall();
  }

  /** Waits until gateways have handled their timers. */
  async #settle(): Promise<void> {
    for (let quiet = 0; quiet < 2; quiet++) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      if (this.#gateways.some(({ client }) => client.waiting > 0)) quiet = -1;
    }
  }

  async #channels(): Promise<string[]> {
    const all = this.#servers.map((server) => server.pubsub("CHANNELS", "sallyport:recordings:*"));
    return (await Promise.all(all)).flat().map(String);
  }
}
