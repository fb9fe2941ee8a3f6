/**
 * This gateway's own record for other gateways: one record, for all of its workers.
 *
 * @module
 */
import { hostname } from "node:os";
import process from "node:process";
import { type OperatorState, stateOf } from "../../admin/api/operator_actions.ts";
import { LastMinute } from "../../observe/fleet/fleet_figures.ts";
import { type FleetFigures, toGatewayName } from "../../observe/fleet/fleet_report.ts";
import type { LivePart } from "../../observe/live/live_report.ts";
import { runtime } from "../../runtime.ts";
import type { Served } from "../admin_listener.ts";
import type { RedisReport } from "../compose.ts";
import type { InForce } from "../reload.ts";

/** Parts of {@link OwnGateway}. */
export interface OwnGatewayParts {
  readonly served: Served;
  readonly version: string;
  /** Returns the active configuration. */
  readonly inForce: () => InForce;
  /** The drain state set by operators. */
  readonly operators: OperatorState;
}

/** Settings that change with the configuration. */
interface OwnSettings {
  readonly instance: string | undefined;
  readonly redis: RedisReport | undefined;
}

/**
 * Returns the name of this machine; `undefined` if Deno denies access. Deno does not prompt for it.
 */
function machineName(): string | undefined {
  if (runtime !== "deno") return hostname();
  const { permissions } = (globalThis as unknown as {
    Deno: { permissions: { querySync(wanted: { name: string; kind: string }): { state: string } } };
  }).Deno;
  return permissions.querySync({ name: "sys", kind: "hostname" }).state === "granted"
    ? hostname()
    : undefined;
}

/** This gateway. */
export class OwnGateway {
  /** Id of this process. Messages for this process do not apply to its successor. */
  readonly id: string = crypto.randomUUID().slice(0, 13);
  readonly served: Served;
  readonly #parts: OwnGatewayParts;
  readonly #startedAt = Math.round(Date.now() - process.uptime() * 1000);
  readonly #minute = new LastMinute();
  #settings: OwnSettings = { instance: undefined, redis: undefined };
  #lookedTo: number;
  #openStreams = 0;
  readonly #host = toGatewayName(machineName() ?? "", this.id);
  /** Host and first port. */
  #address = this.#host;

  constructor(parts: OwnGatewayParts) {
    this.#parts = parts;
    this.served = parts.served;
    this.#lookedTo = Math.floor(Date.now() / 1000);
  }

  /** Name of this gateway among the others. */
  get name(): string {
    const { instance } = this.#settings;
    if (instance !== undefined) return instance;
    const [url] = this.served.urls; // empty after it has left
    if (url !== undefined) {
      this.#address = toGatewayName(`${this.#host}:${new URL(url).port}`.slice(-100), this.id);
    }
    return this.#address;
  }

  /** The second after the last one read, since 1970. */
  get lookedTo(): number {
    return this.#lookedTo;
  }

  /** Uses the settings of another configuration. */
  use(settings: OwnSettings): void {
    this.#settings = settings;
  }

  /** Drains this gateway, or resumes it. Resuming does not stop a shutdown. */
  turn(isDrained: boolean): void {
    if (this.served.isReady) this.#parts.operators.isDrained = isDrained;
  }

  /**
   * Reads the traffic since the last call.
   *
   * @param isBrief True to omit the exchanges themselves
   * @returns The traffic and the second after its last; `undefined` if no second has passed since
   */
  async lookAgain(
    isBrief: boolean,
  ): Promise<{ readonly part: LivePart; readonly to: number } | undefined> {
    const to = Math.floor(Date.now() / 1000);
    const from = this.#lookedTo;
    this.#lookedTo = to;
    if (to <= from) return undefined; // or the clock was set back
    const part = await this.served.readLive(from, to, isBrief);
    this.#minute.add(part.seconds, to);
    this.#openStreams = part.openStreams;
    return { part, to };
  }

  /** Returns the current data of this gateway. */
  figures(): FleetFigures {
    const { served, version, inForce, operators } = this.#parts;
    const redis = this.#settings.redis?.();
    const age = Math.floor((Date.now() - this.#startedAt) / 1000);
    const { serving, wanted } = served.workers;
    return {
      name: this.name,
      state: stateOf(served, operators),
      version,
      digest: inForce().digest,
      startedAt: this.#startedAt,
      runtime: `${runtime} ${process.versions[runtime] ?? ""}`,
      workers: serving,
      workersWanted: wanted,
      openExchanges: served.openExchanges,
      openStreams: this.#openStreams,
      ...this.#minute.figures(this.#lookedTo, age),
      memoryBytes: served.memoryBytes,
      isRedisUp: redis?.isUp ?? null,
      localDecisions: (redis?.localDecisions ?? 0) + (served.localDecisions ?? 0),
    };
  }
}
