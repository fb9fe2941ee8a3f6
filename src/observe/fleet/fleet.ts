/**
 * Port: reads and controls the gateways that share a Redis.
 *
 * @module
 */
import type { ExchangePage, ExchangeQuery } from "../live/exchange_page.ts";
import type { MetricSnapshot } from "../metrics/metric_registry.ts";
import type { FleetGateway, FleetPart, FleetReport } from "./fleet_report.ts";

/** Traffic of one gateway or all gateways, for one operator. */
export interface FleetWatch {
  /** Delay of the traffic: data of other gateways arrives a little later. Milliseconds. */
  readonly lagMs: number;
  /**
   * Reads the exchanges that settled from the second `from` up to, but not including, `to`. Seconds
   * since 1970.
   */
  read(from: number, to: number): Promise<FleetPart>;
}

/** A page of settled exchanges of several gateways, each with its gateway's name. */
export interface FleetPage extends ExchangePage {
  /** Names of the gateways that did not answer. Their exchanges are missing. */
  readonly missing: readonly string[];
}

/** The metrics of all gateways that have one name. */
export interface GatewayMetrics {
  readonly name: string;
  /** `undefined` if the gateway did not answer. */
  readonly metrics: readonly MetricSnapshot[] | undefined;
}

/** The state of a gateway that was asked to drain or to resume. */
export interface DrainReport extends Pick<FleetGateway, "id" | "name" | "state"> {
  /** True after it has published the new state. */
  readonly isDone: boolean;
}

/**
 * The fleet. A gateway is selected by its id or name, and all gateways by `all`. Without Redis the
 * fleet has one gateway.
 */
export interface Fleet {
  /** Lists the gateways, including recently left ones. Never fails. */
  list(): Promise<FleetReport>;
  /**
   * Starts a watch of the traffic.
   *
   * @throws {GatewayError} `gateway_not_found`
   */
  watch(gateway: string): Promise<FleetWatch>;
  /**
   * Collects metrics. Every gateway publishes them on request.
   *
   * @throws {GatewayError} `gateway_not_found`
   */
  metrics(gateway: string): Promise<readonly GatewayMetrics[]>;
  /**
   * Finds settled exchanges that gateways have stored. Waits a few seconds at most for their
   * answers.
   *
   * @throws {GatewayError} `gateway_not_found`; `fleet_unavailable` if no gateway answers
   */
  exchanges(gateway: string, query: ExchangeQuery): Promise<FleetPage>;
  /**
   * Drains or resumes gateways. Waits a few seconds at most until they have done so.
   *
   * @throws {GatewayError} `gateway_not_found`; `fleet_unavailable` if Redis does not answer
   */
  setDrained(gateway: string, isDrained: boolean): Promise<readonly DrainReport[]>;
}
