/**
 * The fleet, as read and controlled by this gateway. It reads its own traffic and metrics locally,
 * and other gateways' from Redis.
 *
 * @module
 */
import { systemClock } from "../../exchange/clock.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { readAnswer } from "../../observe/fleet/exchange_questions.ts";
import type {
  Fleet,
  FleetPage,
  FleetWatch,
  GatewayMetrics,
  TurnedGateway,
} from "../../observe/fleet/fleet.ts";
import { toMetrics } from "../../observe/fleet/fleet_metrics.ts";
import {
  mergeGateways,
  PUBLISHED_SECONDS,
  readHistory,
  readPublished,
} from "../../observe/fleet/fleet_parts.ts";
import {
  arrange,
  type FleetGateway,
  type FleetPart,
  type FleetReport,
  readRecord,
} from "../../observe/fleet/fleet_report.ts";
import type { FleetStore } from "../../observe/fleet/fleet_store_redis.ts";
import {
  type ExchangePage,
  type ExchangeQuery,
  mergePages,
} from "../../observe/live/exchange_page.ts";
import type { LivePart } from "../../observe/live/live_report.ts";
import type { MetricSnapshot } from "../../observe/metrics/metric_registry.ts";
import { mergeMetrics } from "../../observe/metrics/metrics_text.ts";
import type { FleetMember } from "./fleet_member.ts";
import type { OwnGateway } from "./own_gateway.ts";
import { RecentValue } from "./recent_value.ts";

/** Selects all gateways. */
const ALL = "all";
/** Delay for watchers of several gateways, because each publishes once a second. Milliseconds. */
const LAG_MS = 3000;
/** Time for which read records and traffic are cached. Milliseconds. */
const FRESH_MS = 500;
/** The longest wait for gateways to answer a question, or to execute a command. Milliseconds. */
const ANSWER_MS = 3000;
/** Interval between two checks for answers. Milliseconds. */
const LOOK_MS = 100;

const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => void systemClock.timer(ms, resolve));

/** The fleet, through Redis if configured. */
export class SharedFleet implements Fleet {
  readonly #own: OwnGateway;
  readonly #member: FleetMember;
  #others: readonly FleetGateway[] = [];
  /** Time of the last read of other gateways' records. Milliseconds since 1970. */
  #readAt = 0;
  #isStale = false;
  #reading: Promise<void> | undefined;
  readonly #live = new RecentValue<ReadonlyMap<string, unknown>>(FRESH_MS);

  constructor(own: OwnGateway, member: FleetMember) {
    this.#own = own;
    this.#member = member;
  }

  async list(): Promise<FleetReport> {
    if (Date.now() - this.#readAt >= FRESH_MS) await this.#read();
    const now = Date.now();
    const isShared = this.#member.store !== undefined;
    const late = this.#isStale ? now - this.#readAt : 0;
    const others = isShared
      ? this.#others.map((each) => ({ ...each, silentMs: each.silentMs + late }))
      : [];
    return {
      now,
      isShared,
      isStale: isShared && this.#isStale,
      asOf: this.#isStale && this.#readAt > 0 ? this.#readAt : now,
      gateways: arrange([...others, this.#self()]),
    };
  }

  async watch(gateway: string): Promise<FleetWatch> {
    const [one] = await this.#find(gateway);
    const isOwn = gateway !== ALL && one?.isSelf === true;
    const name = gateway === ALL ? undefined : one?.name;
    const read = async (from: number, to: number): Promise<FleetPart> => {
      const { gateways, isStale } = await this.list();
      const isWanted = (each: FleetGateway) =>
        each.presence === "serving" &&
        (gateway === ALL || each.id === one?.id || each.name === one?.name);
      const wanted = gateways.filter(isWanted);
      const others = isOwn ? [] : wanted.filter(({ isSelf }) => !isSelf);
      const [own, found] = await Promise.all([
        wanted.some(({ isSelf }) => isSelf) ? this.#own.served.readLive(from, to) : undefined,
        this.#collect(others, from, to).catch(() => undefined),
      ]);
      const parts = [
        ...found ?? [],
        ...(own === undefined ? [] : [[this.#own.name, own] as const]),
      ];
      const scope = { ...(name !== undefined && { gateway: name }), gateways: parts.length };
      return {
        ...mergeGateways(parts),
        scope: { ...scope, isStale: !isOwn && (isStale || found === undefined) },
      };
    };
    return { lagMs: isOwn || this.#member.store === undefined ? 0 : LAG_MS, read };
  }

  async metrics(gateway: string): Promise<readonly GatewayMetrics[]> {
    const wanted = (await this.#find(gateway)).filter(({ presence }) => presence !== "left");
    const others = wanted.filter(({ isSelf }) => !isSelf);
    const [own, found] = await Promise.all([
      wanted.length > others.length ? this.#own.served.readMetrics() : undefined,
      this.#askMetrics(others).catch(() => new Map<string, readonly MetricSnapshot[]>()),
    ]);
    const names = new Set(wanted.map(({ name }) => name));
    return Array.from(names, (name) => {
      const all = wanted.filter((each) => each.name === name)
        .map(({ id, isSelf }) => isSelf ? own : found.get(id))
        .filter((metrics) => metrics !== undefined);
      return { name, metrics: all.length === 0 ? undefined : mergeMetrics(all) };
    });
  }

  async exchanges(gateway: string, query: ExchangeQuery): Promise<FleetPage> {
    const wanted = (await this.#find(gateway)).filter(({ presence }) => presence === "serving");
    if (wanted.length === 0) throw new GatewayError("gateway_not_found");
    const others = wanted.filter(({ isSelf }) => !isSelf);
    const [own, found] = await Promise.all([
      wanted.length > others.length ? this.#own.served.findExchanges(query) : undefined,
      this.#askExchanges(others, query).catch(() => new Map<string, ExchangePage>()),
    ]);
    const missing = others.filter(({ id }) => !found.has(id)).map(({ name }) => name);
    if (missing.length === wanted.length) {
      throw new GatewayError("fleet_unavailable", {
        detail: `no answer from ${missing.join(", ")}`,
      });
    }
    const pages = Array.from(found.values());
    if (own !== undefined) {
      const exchanges = own.exchanges.map((each) => ({ ...each, gateway: this.#own.name }));
      pages.push({ ...own, exchanges });
    }
    return { ...mergePages(pages, query.limit), missing };
  }

  async turn(gateway: string, isDrained: boolean): Promise<readonly TurnedGateway[]> {
    await this.#read();
    const wanted = (await this.#find(gateway)).filter(({ presence }) => presence === "serving");
    if (gateway !== ALL && wanted.length > 1) {
      const ids = wanted.map(({ id }) => id).join(", ");
      throw new GatewayError("gateway_not_found", {
        detail: `several have this name: name one by its id, of ${ids}`,
      });
    }
    const others = wanted.filter(({ isSelf }) => !isSelf).map(({ id }) => id);
    const store = this.#member.store;
    const needsRedis = others.length > 0 || gateway === ALL;
    if (store !== undefined && needsRedis && this.#isStale) {
      throw new GatewayError("fleet_unavailable");
    }
    try {
      await store?.command(others, isDrained ? "drain" : "resume");
    } catch (cause) {
      throw new GatewayError("fleet_unavailable", { cause });
    }
    if (wanted.some(({ isSelf }) => isSelf)) this.#own.turn(isDrained);
    return await this.#awaitTurned(wanted.map(({ id }) => id), isDrained);
  }

  /** Waits until gateways have published that they executed a command. */
  async #awaitTurned(
    ids: readonly string[],
    isDrained: boolean,
  ): Promise<readonly TurnedGateway[]> {
    const wanted = isDrained ? ["draining", "leaving"] : ["ready", "starting"];
    const end = systemClock.monotonic() + ANSWER_MS;
    while (true) {
      const { gateways } = await this.list();
      const turned = gateways.filter(({ id }) => ids.includes(id)).map(({ id, name, state }) => {
        return { id, name, state, isDone: wanted.includes(state) };
      });
      if (turned.every(({ isDone }) => isDone) || systemClock.monotonic() > end) return turned;
      await pause(LOOK_MS);
      await this.#read();
    }
  }

  /** Returns the selected gateways. @throws {GatewayError} `gateway_not_found` */
  async #find(gateway: string): Promise<readonly FleetGateway[]> {
    const { gateways } = await this.list();
    if (gateway === ALL) return gateways;
    const byId = gateways.filter(({ id }) => id === gateway);
    const found = byId.length > 0 ? byId : gateways.filter(({ name }) => name === gateway);
    if (found.length === 0) throw new GatewayError("gateway_not_found");
    return found;
  }

  #self(): FleetGateway {
    return {
      ...this.#own.figures(),
      id: this.#own.id,
      presence: "serving",
      silentMs: 0,
      isSelf: true,
    };
  }

  /** Reads the records of the other gateways. If that fails, they keep their last known state. */
  #read(): Promise<void> {
    return this.#reading ??= this.#readOnce().finally(() => this.#reading = undefined);
  }

  async #readOnce(): Promise<void> {
    const store = this.#member.store;
    if (store === undefined) return;
    try {
      const records = await store.read();
      this.#others = records.filter(({ id }) => id !== this.#own.id).flatMap((record) =>
        readRecord(record) ?? []
      );
      this.#readAt = Date.now();
      this.#isStale = false;
    } catch {
      this.#isStale = true;
    }
  }

  /**
   * Collects the traffic of other gateways. A watcher that is new or late receives their stored
   * traffic.
   */
  async #collect(others: readonly FleetGateway[], from: number, to: number) {
    const store = this.#member.store;
    if (store === undefined || others.length === 0) return [];
    const isNew = to - from > PUBLISHED_SECONDS - LAG_MS / 1000;
    if (isNew) return await this.#askHistory(store, others, to);
    const live = await this.#live.get(() => this.#readLive(store));
    return others.flatMap(({ id, name }) => {
      const part = readPublished(live.get(id), from, to);
      return part === undefined ? [] : [[name, part] as const];
    });
  }

  /** Reads the published traffic of all other gateways, and asks them to continue. */
  async #readLive(store: FleetStore): Promise<ReadonlyMap<string, unknown>> {
    await store.ask("watched", false);
    const ids = this.#others.filter(({ presence }) => presence === "serving").map(({ id }) => id);
    const found = new Map<string, unknown>();
    for await (const [id, value] of store.take("live", ids)) found.set(id, value);
    return found;
  }

  async #askHistory(store: FleetStore, others: readonly FleetGateway[], to: number) {
    const asked = await store.ask("watched", true);
    const found: (readonly [name: string, part: LivePart])[] = [];
    await this.#await(store, "history", others, ({ name }, value) => {
      const part = readHistory(value, asked, to);
      return part === undefined ? false : found.push([name, part]) > 0;
    });
    return found;
  }

  /**
   * Asks gateways for exchanges. Returns the pages of the gateways that answered in time, by id.
   */
  async #askExchanges(
    others: readonly FleetGateway[],
    query: ExchangeQuery,
  ): Promise<Map<string, ExchangePage>> {
    const found = new Map<string, ExchangePage>();
    const store = this.#member.store;
    if (store === undefined || others.length === 0) return found;
    // Each gateway has its own question, so that no other gateway's answer counts.
    const questions = others.map(({ id, name }) => ({ id: crypto.randomUUID(), to: id, name }));
    await Promise.all(
      questions.map(({ id, to }) => store.askExchanges(to, JSON.stringify({ id, query }))),
    );
    await this.#await(store, "exchanges", questions, ({ to, name }, value) => {
      const page = readAnswer(value, name);
      return page !== undefined && found.set(to, page).size > 0;
    });
    return found;
  }

  async #askMetrics(
    others: readonly FleetGateway[],
  ): Promise<Map<string, readonly MetricSnapshot[]>> {
    const found = new Map<string, readonly MetricSnapshot[]>();
    const store = this.#member.store;
    const serving = others.filter(({ presence }) => presence === "serving");
    if (store === undefined || serving.length === 0) return found;
    const asked = await store.ask("scraped", true);
    await this.#await(store, "metrics", serving, ({ id }, value) => {
      const { asked: answered = 0, metrics } = (value ?? {}) as {
        asked?: number;
        metrics?: unknown;
      };
      if (answered < asked) return false;
      return found.set(id, toMetrics(metrics)).size > 0;
    });
    return found;
  }

  /**
   * Waits for answers, which gateways publish under the ids of the asked objects. `read` receives
   * an answer, and returns false for the answer to an earlier question.
   */
  async #await<Asked extends { readonly id: string }>(
    store: FleetStore,
    kind: "history" | "metrics" | "exchanges",
    all: readonly Asked[],
    read: (asked: Asked, value: unknown) => boolean,
  ): Promise<void> {
    const missing = new Map(all.map((asked) => [asked.id, asked]));
    const end = systemClock.monotonic() + ANSWER_MS;
    while (missing.size > 0 && systemClock.monotonic() < end) {
      await pause(LOOK_MS);
      for await (const [id, value] of store.take(kind, [...missing.keys()])) {
        const asked = missing.get(id);
        if (asked !== undefined && read(asked, value)) missing.delete(id);
      }
    }
  }
}
