/**
 * This gateway, as it describes itself to operators and to other gateways: one report, for all of
 * its workers.
 *
 * @module
 */
import process from "node:process";
import { type OperatorState, stateOf } from "../../admin/api/operator_actions.ts";
import { LastMinute } from "../../observe/fleet/fleet_figures.ts";
import type { FleetFigures } from "../../observe/fleet/fleet_report.ts";
import type { LivePart } from "../../observe/live/live_report.ts";
import { runtime, runtimeVersion } from "../../runtime.ts";
import type { Served } from "../admin_listener.ts";
import type { RedisReport } from "../compose.ts";
import type { Instance } from "../instance.ts";
import type { InForce } from "../reload.ts";

/** Parts of {@link ThisGateway}. */
export interface ThisGatewayParts {
  readonly instance: Instance;
  readonly served: Served;
  readonly version: string;
  /** Returns the active configuration. */
  readonly inForce: () => InForce;
  /** The drain state set by operators. */
  readonly operators: OperatorState;
}

/** This gateway. */
export class ThisGateway {
  /** Id of this process. Messages for this process do not apply to its successor. */
  readonly id: string;
  readonly served: Served;
  readonly #parts: ThisGatewayParts;
  readonly #startedAt = Math.round(Date.now() - process.uptime() * 1000);
  readonly #minute = new LastMinute();
  #redis: RedisReport | undefined;
  #readUntil: number;
  #openStreams = 0;

  constructor(parts: ThisGatewayParts) {
    this.#parts = parts;
    this.id = parts.instance.id;
    this.served = parts.served;
    this.#readUntil = Math.floor(Date.now() / 1000);
  }

  /** Name of this gateway among the others. */
  get name(): string {
    return this.#parts.instance.name;
  }

  /** The second after the last one read, since 1970. */
  get readUntil(): number {
    return this.#readUntil;
  }

  /** Uses the Redis of another configuration. */
  use(redis: RedisReport | undefined): void {
    this.#redis = redis;
  }

  /** Drains this gateway, or resumes it. Resuming does not stop a shutdown. */
  setDrained(isDrained: boolean): void {
    if (this.served.isReady) this.#parts.operators.isDrained = isDrained;
  }

  /**
   * Reads the traffic since the last call.
   *
   * @param isBrief True to omit the exchanges themselves
   * @returns The traffic and the second after its last; `undefined` if no second has passed since
   */
  async readTraffic(
    isBrief: boolean,
  ): Promise<{ readonly part: LivePart; readonly to: number } | undefined> {
    const to = Math.floor(Date.now() / 1000);
    const from = this.#readUntil;
    this.#readUntil = to;
    if (to <= from) return undefined; // or the clock was set back
    const part = await this.served.readLive(from, to, isBrief);
    this.#minute.add(part.seconds, to);
    this.#openStreams = part.openStreams;
    return { part, to };
  }

  /** Returns the current state of this gateway. */
  report(): FleetFigures {
    const { served, version, inForce, operators } = this.#parts;
    const redis = this.#redis?.();
    const age = Math.floor((Date.now() - this.#startedAt) / 1000);
    const { serving, wanted } = served.workers;
    return {
      name: this.name,
      state: stateOf(served, operators),
      version,
      digest: inForce().digest,
      startedAt: this.#startedAt,
      runtime: `${runtime} ${runtimeVersion}`,
      workers: serving,
      workersWanted: wanted,
      openExchanges: served.openExchanges,
      openStreams: this.#openStreams,
      ...this.#minute.figures(this.#readUntil, age),
      memoryBytes: served.memoryBytes,
      isRedisUp: redis?.isUp ?? null,
      localDecisions: (redis?.localDecisions ?? 0) + (served.localDecisions ?? 0),
    };
  }
}
