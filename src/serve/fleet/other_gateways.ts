/**
 * The other gateways of the fleet, as this gateway reads them from Redis: the record that each
 * publishes every second, and the answers to questions, which each publishes on request.
 *
 * @module
 */
import { systemClock } from "../../exchange/clock.ts";
import { readAnswer } from "../../observe/fleet/exchange_questions.ts";
import { toMetrics } from "../../observe/fleet/fleet_metrics.ts";
import { PUBLISHED_SECONDS, readHistory, readPublished } from "../../observe/fleet/fleet_parts.ts";
import {
  type FleetGateway,
  type FleetReport,
  readRecord,
} from "../../observe/fleet/fleet_report.ts";
import type { Command, FleetStore } from "../../observe/fleet/fleet_store_redis.ts";
import type { ExchangePage, ExchangeQuery } from "../../observe/live/exchange_page.ts";
import type { LivePart } from "../../observe/live/live_report.ts";
import type { MetricSnapshot } from "../../observe/metrics/metric_registry.ts";

/** Delay for watchers of several gateways, because each publishes once a second. Milliseconds. */
export const LAG_MS = 3000;
/** The longest wait for gateways to answer a question, or to execute a command. Milliseconds. */
export const REPLY_MS = 3000;
/** Interval between two checks for answers. Milliseconds. */
export const LOOK_MS = 100;
/** Time for which read records and traffic are cached. Milliseconds. */
const FRESH_MS = 500;

export const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => void systemClock.timer(ms, resolve));

/** The traffic of one gateway, with its name. */
export type NamedPart = readonly [name: string, part: LivePart];

/** A read that is shared: callers within a short time get the result of the same read. */
class CachedRead<T> {
  readonly #freshMs: number;
  #result: Promise<T> | undefined;
  #readAt = -Infinity;

  /** @param freshMs Time for which a result is used again. Milliseconds */
  constructor(freshMs: number) {
    this.#freshMs = freshMs;
  }

  /** Returns the last result if it is recent, else the result of `read`. */
  get(read: () => Promise<T>): Promise<T> {
    const now = systemClock.monotonic();
    const isFresh = now - this.#readAt < this.#freshMs;
    if (this.#result !== undefined && isFresh) return this.#result;
    this.#readAt = now;
    const result = this.#result = read();
    result.catch(() => this.#result = undefined);
    return result;
  }
}

/** The other gateways. */
export class OtherGateways {
  readonly #ownId: string;
  readonly #getStore: () => FleetStore | undefined;
  /** The gateways as last read. */
  #gateways: readonly FleetGateway[] = [];
  /** Time of the last successful read. Milliseconds since 1970. */
  #readAt = 0;
  #hasFailed = false;
  #reading: Promise<void> | undefined;
  readonly #published = new CachedRead<ReadonlyMap<string, unknown>>(FRESH_MS);

  /**
   * @param ownId Id of this gateway, which is not one of the others
   * @param getStore Returns the store in Redis; `undefined` without Redis
   */
  constructor(ownId: string, getStore: () => FleetStore | undefined) {
    this.#ownId = ownId;
    this.#getStore = getStore;
  }

  /** True with Redis. Without Redis, there are no other gateways. */
  get isShared(): boolean {
    return this.#getStore() !== undefined;
  }

  /** True if Redis did not answer the last read. */
  get isStale(): boolean {
    return this.isShared && this.#hasFailed;
  }

  /** Lists the gateways. If Redis does not answer, they are shown in their last known state. */
  async list(): Promise<Omit<FleetReport, "now">> {
    if (Date.now() - this.#readAt >= FRESH_MS) await this.readAgain();
    const now = Date.now();
    const { isShared, isStale } = this;
    const sinceReadMs = isStale ? now - this.#readAt : 0;
    const silentFor = (each: FleetGateway) => ({ ...each, silentMs: each.silentMs + sinceReadMs });
    return {
      isShared,
      isStale,
      asOf: isStale && this.#readAt > 0 ? this.#readAt : now,
      gateways: isShared ? this.#gateways.map(silentFor) : [],
    };
  }

  /** Reads the records of all gateways. Concurrent calls share one read. Never rejects. */
  readAgain(): Promise<void> {
    this.#reading ??= this.#read().finally(() => this.#reading = undefined);
    return this.#reading;
  }

  /** Sends a command to gateways. */
  async command(ids: readonly string[], command: Command): Promise<void> {
    await this.#getStore()?.command(ids, command);
  }

  /**
   * Collects the traffic of gateways. A watcher that is new or late receives their stored traffic.
   *
   * @param from The first second, since 1970
   * @param to The second after the last one
   */
  async readTraffic(
    gateways: readonly FleetGateway[],
    from: number,
    to: number,
  ): Promise<readonly NamedPart[]> {
    const store = this.#getStore();
    if (store === undefined || gateways.length === 0) return [];
    const needsHistory = to - from > PUBLISHED_SECONDS - LAG_MS / 1000;
    if (needsHistory) return await this.#askHistory(store, gateways, to);
    const published = await this.#published.get(() => this.#readPublished(store));
    return gateways.flatMap(({ id, name }) => {
      const part = readPublished(published.get(id), from, to);
      return part === undefined ? [] : [[name, part] as const];
    });
  }

  /** Asks gateways for metrics. Returns those of the gateways that answered in time, by id. */
  async askMetrics(
    gateways: readonly FleetGateway[],
  ): Promise<ReadonlyMap<string, readonly MetricSnapshot[]>> {
    const found = new Map<string, readonly MetricSnapshot[]>();
    const store = this.#getStore();
    const serving = gateways.filter(({ presence }) => presence === "serving");
    if (store === undefined || serving.length === 0) return found;
    const askedAt = await store.ask("scraped", true);
    await awaitAnswers(store, "metrics", serving, ({ id }, answer) => {
      const { asked = 0, metrics } = (answer ?? {}) as { asked?: number; metrics?: unknown };
      if (asked < askedAt) return false;
      found.set(id, toMetrics(metrics));
      return true;
    });
    return found;
  }

  /**
   * Asks gateways for exchanges. Returns the pages of the gateways that answered in time, by id.
   */
  async askExchanges(
    gateways: readonly FleetGateway[],
    query: ExchangeQuery,
  ): Promise<ReadonlyMap<string, ExchangePage>> {
    const found = new Map<string, ExchangePage>();
    const store = this.#getStore();
    if (store === undefined || gateways.length === 0) return found;
    // Each gateway has its own question, so that no other gateway's answer counts.
    const questions = gateways.map((gateway) => ({ id: crypto.randomUUID(), gateway }));
    await Promise.all(
      questions.map(({ id, gateway }) =>
        store.askExchanges(gateway.id, JSON.stringify({ id, query }))
      ),
    );
    await awaitAnswers(store, "exchanges", questions, ({ gateway }, answer) => {
      const page = readAnswer(answer, gateway.name);
      if (page === undefined) return false;
      found.set(gateway.id, page);
      return true;
    });
    return found;
  }

  async #read(): Promise<void> {
    const store = this.#getStore();
    if (store === undefined) return;
    try {
      const records = await store.read();
      const others = records.filter(({ id }) => id !== this.#ownId);
      this.#gateways = others.flatMap((record) => readRecord(record) ?? []);
      this.#readAt = Date.now();
      this.#hasFailed = false;
    } catch {
      this.#hasFailed = true;
    }
  }

  /** Reads the published traffic of all gateways, and asks them to continue. */
  async #readPublished(store: FleetStore): Promise<ReadonlyMap<string, unknown>> {
    await store.ask("watched", false);
    const serving = this.#gateways.filter(({ presence }) => presence === "serving");
    const found = new Map<string, unknown>();
    for await (const [id, value] of store.take("live", serving.map(({ id }) => id))) {
      found.set(id, value);
    }
    return found;
  }

  async #askHistory(
    store: FleetStore,
    gateways: readonly FleetGateway[],
    to: number,
  ): Promise<readonly NamedPart[]> {
    const askedAt = await store.ask("watched", true);
    const found: NamedPart[] = [];
    await awaitAnswers(store, "history", gateways, ({ name }, answer) => {
      const part = readHistory(answer, askedAt, to);
      if (part === undefined) return false;
      found.push([name, part]);
      return true;
    });
    return found;
  }
}

/**
 * Waits for answers, which gateways publish under the ids of the questions or their own ids.
 *
 * @param all The questions or gateways
 * @param accept Receives an answer. Returns false for the answer to an earlier question
 */
async function awaitAnswers<Asked extends { readonly id: string }>(
  store: FleetStore,
  kind: "history" | "metrics" | "exchanges",
  all: readonly Asked[],
  accept: (asked: Asked, answer: unknown) => boolean,
): Promise<void> {
  const unanswered = new Map(all.map((asked) => [asked.id, asked]));
  const end = systemClock.monotonic() + REPLY_MS;
  while (unanswered.size > 0 && systemClock.monotonic() < end) {
    await pause(LOOK_MS);
    for await (const [id, answer] of store.take(kind, Array.from(unanswered.keys()))) {
      const asked = unanswered.get(id);
      if (asked !== undefined && accept(asked, answer)) unanswered.delete(id);
    }
  }
}
