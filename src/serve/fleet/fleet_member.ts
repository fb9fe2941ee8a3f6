/**
 * Membership of this gateway in the fleet: publishes its data once a second, and executes
 * operators' commands from Redis. No caller waits for it. It pauses while Redis is unavailable.
 *
 * @module
 */
import { systemClock } from "../../exchange/clock.ts";
import { readQuestion } from "../../observe/fleet/exchange_questions.ts";
import { PublishedParts, toHistory } from "../../observe/fleet/fleet_parts.ts";
import { writeRecord } from "../../observe/fleet/fleet_report.ts";
import { FleetStore, type Heard } from "../../observe/fleet/fleet_store_redis.ts";
import { KEPT_SECONDS } from "../../observe/live/live_report.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { Change } from "../change.ts";
import type { Prepared } from "../prepare.ts";
import type { OwnGateway } from "./own_gateway.ts";

/** Interval between two records. Milliseconds. */
const PUBLISH_MS = 1000;
/**
 * The largest delay within each second, so that gateways publish at different moments.
 * Milliseconds.
 */
const SPREAD_MS = 400;

const NOTHING_HEARD: Heard = { command: undefined, watched: 0, scraped: 0, asked: [] };

/** Membership of this gateway. */
export class FleetMember {
  readonly #own: OwnGateway;
  readonly #parts = new PublishedParts();
  readonly #phaseMs = 50 + Math.floor(Math.random() * SPREAD_MS);
  #client: RedisClient | undefined;
  #store: FleetStore | undefined;
  #heard = NOTHING_HEARD;
  /** Times of the last answered questions. */
  #answered = { watched: 0, scraped: 0 };
  #isOver = false;
  #cancel = (): void => {};

  constructor(own: OwnGateway) {
    this.#own = own;
  }

  /** The store for messages between gateways; `undefined` without Redis. */
  get store(): FleetStore | undefined {
    return this.#store;
  }

  /** Prepares another configuration. */
  prepare({ config, assembly }: Prepared): Promise<Change> {
    const { redis, redisClient } = assembly;
    const apply = () => {
      this.#own.use({ instance: config.instance, redis });
      if (redisClient === this.#client) return;
      void this.#sayLeft();
      this.#client = redisClient;
      this.#store = redisClient && new FleetStore(redisClient);
      this.#heard = NOTHING_HEARD;
    };
    return Promise.resolve({ apply, abandon: () => Promise.resolve() });
  }

  /** Starts to publish. */
  start(): void {
    const waitMs = PUBLISH_MS - (Date.now() - this.#phaseMs) % PUBLISH_MS;
    this.#cancel = systemClock.timer(waitMs, () =>
      void this.#turn().catch(() => {}).finally(() => {
        if (!this.#isOver) this.start();
      }), { isBackground: true });
  }

  /** Publishes that this gateway shuts down properly. */
  async leave(): Promise<void> {
    this.#isOver = true;
    this.#cancel();
    await this.#sayLeft();
  }

  /** Reads the last second, publishes, and executes commands. */
  async #turn(): Promise<void> {
    const own = this.#own;
    const looked = await own.lookAgain(this.#heard.watched === 0);
    if (looked !== undefined) this.#parts.add(looked.part, looked.to);
    const store = this.#store;
    if (store === undefined || this.#isOver) return;
    this.#heard = NOTHING_HEARD; // until Redis has answered
    const heard = this.#heard = await store.publish(own.id, writeRecord(own.figures()));
    if (this.#isOver) return;
    if (heard.command !== undefined) {
      own.turn(heard.command === "drain");
      await store.publish(own.id, writeRecord(own.figures()));
    }
    await this.#answer(store, heard);
  }

  /** Publishes the requested data. */
  async #answer(store: FleetStore, { watched, scraped, asked }: Heard): Promise<void> {
    const { id, served, lookedTo } = this.#own;
    if (watched > this.#answered.watched) {
      const kept = await served.readLive(lookedTo - KEPT_SECONDS, lookedTo);
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

  async #sayLeft(): Promise<void> {
    const { id } = this.#own;
    await this.#store?.publish(id, writeRecord(this.#own.figures(), true)).catch(() => {});
  }
}
