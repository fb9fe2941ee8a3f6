/**
 * Publishes the record of this gateway in Redis once a second, executes the commands that operators
 * have left there for it, and answers the questions of other gateways. No caller waits for it. It
 * pauses while Redis is unavailable.
 *
 * @module
 */
import { systemClock } from "../../exchange/clock.ts";
import { readQuestion } from "../../observe/fleet/exchange_questions.ts";
import { PublishedParts, toHistory } from "../../observe/fleet/fleet_parts.ts";
import { writeRecord } from "../../observe/fleet/fleet_report.ts";
import { FleetStore, type Messages } from "../../observe/fleet/fleet_store_redis.ts";
import { KEPT_SECONDS } from "../../observe/live/live_report.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { Change } from "../change.ts";
import type { Prepared } from "../prepare.ts";
import type { ThisGateway } from "./this_gateway.ts";

/** Interval between two records. Milliseconds. */
const PUBLISH_MS = 1000;
/**
 * The largest delay within each second, so that gateways publish at different moments.
 * Milliseconds.
 */
const SPREAD_MS = 400;

const NO_MESSAGES: Messages = { command: undefined, watched: 0, scraped: 0, asked: [] };

/** Publishes this gateway. */
export class FleetPublisher {
  readonly #gateway: ThisGateway;
  readonly #parts = new PublishedParts();
  readonly #phaseMs = 50 + Math.floor(Math.random() * SPREAD_MS);
  #client: RedisClient | undefined;
  #store: FleetStore | undefined;
  #messages = NO_MESSAGES;
  /** Times of the last answered questions. */
  #answered = { watched: 0, scraped: 0 };
  #isOver = false;
  #cancel = (): void => {};

  constructor(gateway: ThisGateway) {
    this.#gateway = gateway;
  }

  /** The store for messages between gateways; `undefined` without Redis. */
  get store(): FleetStore | undefined {
    return this.#store;
  }

  /** Prepares another configuration. */
  prepare({ assembly }: Prepared): Promise<Change> {
    const { redis, redisClient } = assembly;
    const apply = () => {
      this.#gateway.use(redis);
      if (redisClient === this.#client) return;
      void this.#publishLeft();
      this.#client = redisClient;
      this.#store = redisClient && new FleetStore(redisClient);
      this.#messages = NO_MESSAGES;
    };
    return Promise.resolve({ apply, abandon: () => Promise.resolve() });
  }

  /** Starts to publish. */
  start(): void {
    const waitMs = PUBLISH_MS - (Date.now() - this.#phaseMs) % PUBLISH_MS;
    this.#cancel = systemClock.timer(
      waitMs,
      () =>
        void this.#publish().catch(() => {}).finally(() => {
          if (!this.#isOver) this.start();
        }),
      { isBackground: true },
    );
  }

  /** Publishes that this gateway shuts down properly. */
  async leave(): Promise<void> {
    this.#isOver = true;
    this.#cancel();
    await this.#publishLeft();
  }

  /** Reads the last second, publishes, executes a command, and answers questions. */
  async #publish(): Promise<void> {
    const gateway = this.#gateway;
    const isUnwatched = this.#messages.watched === 0;
    const traffic = await gateway.readTraffic(isUnwatched);
    if (traffic !== undefined) this.#parts.add(traffic.part, traffic.to);
    const store = this.#store;
    if (store === undefined || this.#isOver) return;
    this.#messages = NO_MESSAGES; // until Redis has answered
    const messages = await store.publish(gateway.id, writeRecord(gateway.report()));
    this.#messages = messages;
    if (this.#isOver) return;
    if (messages.command !== undefined) {
      gateway.setDrained(messages.command === "drain");
      await store.publish(gateway.id, writeRecord(gateway.report()));
    }
    await this.#answer(store, messages);
  }

  /** Publishes the requested data. */
  async #answer(store: FleetStore, { watched, scraped, asked }: Messages): Promise<void> {
    const { id, served, readUntil } = this.#gateway;
    if (watched > this.#answered.watched) {
      const kept = await served.readLive(readUntil - KEPT_SECONDS, readUntil);
      this.#parts.fill(kept);
      await store.put("history", id, toHistory(kept, watched));
      this.#answered.watched = watched;
    }
    if (watched > 0) await store.put("live", id, this.#parts.toJson());
    if (scraped > this.#answered.scraped) {
      await store.put("metrics", id, { asked: scraped, metrics: await served.readMetrics() });
      this.#answered.scraped = scraped;
    }
    for (const { id: question, query } of asked.flatMap((json) => readQuestion(json) ?? [])) {
      await store.put("exchanges", question, await served.findExchanges(query));
    }
  }

  async #publishLeft(): Promise<void> {
    const { id } = this.#gateway;
    await this.#store?.publish(id, writeRecord(this.#gateway.report(), true)).catch(() => {});
  }
}
