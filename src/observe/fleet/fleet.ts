/**
 * Port: the gateways that share a Redis, as one of them reads and commands them.
 *
 * @module
 */
import type { ExchangePage, ExchangeQuery } from "../live/exchange_page.ts";
import type { MetricSnapshot } from "../metrics/metric_registry.ts";
import type { FleetGateway, FleetPart, FleetReport } from "./fleet_report.ts";

/** Traffic of one gateway or all, as one operator watches it. */
export interface FleetWatch {
  /** Time by which it is behind: figures of other gateways arrive a little later. Milliseconds. */
  readonly lagMs: number;
  /**
   * Reads the exchanges that settled from the second `from` up to, but not including, `to`. Seconds
   * since 1970.
   */
  look(from: number, to: number): Promise<FleetPart>;
}

/** A page of settled exchanges of several gateways, each with the name of its own. */
export interface FleetPage extends ExchangePage {
  /** Names of the gateways that did not answer: their exchanges are missing. */
  readonly missing: readonly string[];
}

/** The metrics of the gateways of one name. */
export interface GatewayMetrics {
  readonly name: string;
  /** `undefined` if it did not answer. */
  readonly metrics: readonly MetricSnapshot[] | undefined;
}

/** A gateway that was told to drain or to resume. */
export interface TurnedGateway extends Pick<FleetGateway, "id" | "name" | "state"> {
  /** True once it has published that it has done so. */
  readonly isDone: boolean;
}

/**
 * The fleet. A gateway is named by its id or its name; all are meant by `all`. Without Redis it has
 * one gateway.
 */
export interface Fleet {
  /** Lists the gateways, those included that were there lately. Never fails. */
  list(): Promise<FleetReport>;
  /**
   * Opens the traffic for one more watcher.
   *
   * @throws {GatewayError} `gateway_not_found`
   */
  watch(gateway: string): Promise<FleetWatch>;
  /**
   * Collects metrics, which every gateway publishes when it is asked to.
   *
   * @throws {GatewayError} `gateway_not_found`
   */
  metrics(gateway: string): Promise<readonly GatewayMetrics[]>;
  /**
   * Finds settled exchanges that gateways keep. Waits for their answers, for a few seconds at most.
   *
   * @throws {GatewayError} `gateway_not_found`; `fleet_unavailable` if none of them answers
   */
  exchanges(gateway: string, query: ExchangeQuery): Promise<FleetPage>;
  /**
   * Drains gateways or resumes them, and waits until they have done so, for a few seconds at most.
   *
   * @throws {GatewayError} `gateway_not_found`; `fleet_unavailable` if Redis does not answer
   */
  turn(gateway: string, isDrained: boolean): Promise<readonly TurnedGateway[]>;
}
