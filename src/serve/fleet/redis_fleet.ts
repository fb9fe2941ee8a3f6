/**
 * The fleet: all gateways that share a Redis, as operators see and control them at this gateway.
 * Without Redis, the fleet is this gateway alone.
 *
 * | class            | subject                                                                  |
 * | ---------------- | ------------------------------------------------------------------------ |
 * | `ThisGateway`    | this gateway, with all of its workers: its state, traffic and drain      |
 * | `FleetPublisher` | publishes the record of this gateway in Redis, answers others' questions |
 * | `OtherGateways`  | reads the records of the others, asks them questions                     |
 * | `RedisFleet`     | joins both for the routes for operators                                  |
 *
 * @module
 */
import { GatewayError } from "../../errors/gateway_error.ts";
import { systemClock } from "../../exchange/clock.ts";
import type {
  DrainReport,
  Fleet,
  FleetPage,
  FleetWatch,
  GatewayMetrics,
} from "../../observe/fleet/fleet.ts";
import { mergeGateways } from "../../observe/fleet/fleet_parts.ts";
import {
  arrange,
  type FleetGateway,
  type FleetPart,
  type FleetReport,
} from "../../observe/fleet/fleet_report.ts";
import {
  type ExchangePage,
  type ExchangeQuery,
  mergePages,
} from "../../observe/live/exchange_page.ts";
import type { MetricSnapshot } from "../../observe/metrics/metric_registry.ts";
import { mergeMetrics } from "../../observe/metrics/metrics_text.ts";
import {
  LAG_MS,
  LOOK_MS,
  type NamedPart,
  OtherGateways,
  pause,
  REPLY_MS,
} from "./other_gateways.ts";
import type { FleetPublisher } from "./fleet_publisher.ts";
import type { ThisGateway } from "./this_gateway.ts";

/** Selects all gateways. */
const ALL = "all";

/** Selected gateways. */
interface Selection {
  readonly others: readonly FleetGateway[];
  /** True if this gateway is selected too. */
  readonly includesThis: boolean;
}

/** The fleet, through Redis if configured. */
export class RedisFleet implements Fleet {
  readonly #own: ThisGateway;
  readonly #others: OtherGateways;

  constructor(own: ThisGateway, publisher: FleetPublisher) {
    this.#own = own;
    this.#others = new OtherGateways(own.id, () => publisher.store);
  }

  async list(): Promise<FleetReport> {
    const { gateways, ...report } = await this.#others.list();
    return { ...report, now: Date.now(), gateways: arrange([...gateways, this.#describeThis()]) };
  }

  async watch(gateway: string): Promise<FleetWatch> {
    const [one] = await this.#find(gateway);
    const isOnlyThis = gateway !== ALL && one?.isSelf === true;
    const watched = gateway === ALL ? undefined : one;
    return {
      lagMs: isOnlyThis || !this.#others.isShared ? 0 : LAG_MS,
      read: (from, to) => this.#readTraffic(watched, isOnlyThis, from, to),
    };
  }

  async metrics(gateway: string): Promise<readonly GatewayMetrics[]> {
    const selected = (await this.#find(gateway)).filter(({ presence }) => presence !== "left");
    const { others, includesThis } = split(selected);
    const [own, found] = await Promise.all([
      includesThis ? this.#own.served.readMetrics() : undefined,
      this.#others.askMetrics(others).catch(() => new Map<string, readonly MetricSnapshot[]>()),
    ]);
    const names = new Set(selected.map(({ name }) => name));
    return Array.from(names, (name) => {
      const ofName = selected.filter((each) => each.name === name);
      const answers = ofName.map(({ id, isSelf }) => isSelf ? own : found.get(id))
        .filter((metrics) => metrics !== undefined);
      return { name, metrics: answers.length === 0 ? undefined : mergeMetrics(answers) };
    });
  }

  async exchanges(gateway: string, query: ExchangeQuery): Promise<FleetPage> {
    const selected = await this.#findServing(gateway);
    if (selected.length === 0) throw new GatewayError("gateway_not_found");
    const { others, includesThis } = split(selected);
    const [own, found] = await Promise.all([
      includesThis ? this.#own.served.findExchanges(query) : undefined,
      this.#others.askExchanges(others, query).catch(() => new Map<string, ExchangePage>()),
    ]);
    const missing = others.filter(({ id }) => !found.has(id)).map(({ name }) => name);
    if (missing.length === selected.length) {
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

  async setDrained(gateway: string, isDrained: boolean): Promise<readonly DrainReport[]> {
    await this.#others.readAgain();
    const selected = await this.#findServing(gateway);
    const ids = selected.map(({ id }) => id);
    if (gateway !== ALL && ids.length > 1) {
      throw new GatewayError("gateway_not_found", {
        detail: `several have this name: name one by its id, of ${ids.join(", ")}`,
      });
    }
    const { others, includesThis } = split(selected);
    const needsRedis = others.length > 0 || gateway === ALL;
    if (needsRedis && this.#others.isStale) throw new GatewayError("fleet_unavailable");
    try {
      await this.#others.command(others.map(({ id }) => id), isDrained ? "drain" : "resume");
    } catch (cause) {
      throw new GatewayError("fleet_unavailable", { cause });
    }
    if (includesThis) this.#own.setDrained(isDrained);
    return await this.#awaitDrained(ids, isDrained);
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

  async #findServing(gateway: string): Promise<readonly FleetGateway[]> {
    return (await this.#find(gateway)).filter(({ presence }) => presence === "serving");
  }

  #describeThis(): FleetGateway {
    return {
      ...this.#own.report(),
      id: this.#own.id,
      presence: "serving",
      silentMs: 0,
      isSelf: true,
    };
  }

  /**
   * Reads the traffic of a watch.
   *
   * @param watched The watched gateway, or its successors with the same name; `undefined` for all
   * @param isOnlyThis True if only this gateway is watched
   */
  async #readTraffic(
    watched: FleetGateway | undefined,
    isOnlyThis: boolean,
    from: number,
    to: number,
  ): Promise<FleetPart> {
    const { gateways, isStale } = await this.list();
    const selected = gateways.filter(({ id, name, presence }) => {
      const isWatched = watched === undefined || id === watched.id || name === watched.name;
      return presence === "serving" && isWatched;
    });
    const { others, includesThis } = split(selected);
    const [own, found] = await Promise.all([
      includesThis ? this.#own.served.readLive(from, to) : undefined,
      this.#others.readTraffic(isOnlyThis ? [] : others, from, to).catch(() => undefined),
    ]);
    const parts: NamedPart[] = [...found ?? []];
    if (own !== undefined) parts.push([this.#own.name, own]);
    const scope = {
      ...(watched !== undefined && { gateway: watched.name }),
      gateways: parts.length,
      isStale: !isOnlyThis && (isStale || found === undefined),
    };
    return { ...mergeGateways(parts), scope };
  }

  /** Waits until gateways have published that they executed a command. */
  async #awaitDrained(
    ids: readonly string[],
    isDrained: boolean,
  ): Promise<readonly DrainReport[]> {
    const doneStates = isDrained ? ["draining", "leaving"] : ["ready", "starting"];
    const end = systemClock.monotonic() + REPLY_MS;
    while (true) {
      const { gateways } = await this.list();
      const reports = gateways.filter(({ id }) => ids.includes(id)).map(({ id, name, state }) => {
        return { id, name, state, isDone: doneStates.includes(state) };
      });
      if (reports.every(({ isDone }) => isDone) || systemClock.monotonic() > end) return reports;
      await pause(LOOK_MS);
      await this.#others.readAgain();
    }
  }
}

/** Separates this gateway from the others. */
function split(gateways: readonly FleetGateway[]): Selection {
  const others = gateways.filter(({ isSelf }) => !isSelf);
  return { others, includesThis: others.length < gateways.length };
}
