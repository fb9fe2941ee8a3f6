/**
 * The gateways that share a Redis, side by side, as each of them reports itself and as operators
 * see them.
 *
 * @module
 */
import type { LivePart, LiveReport } from "../live/live_report.ts";

/** Figures of one gateway, by itself. */
export interface FleetFigures {
  /** `instance` of its configuration, or its host and port. */
  readonly name: string;
  readonly state: LiveReport["state"];
  readonly version: string;
  /** Digest of its configuration, equal for gateways with equal configurations. */
  readonly digest: string;
  /** The start of its process. Milliseconds since 1970. */
  readonly startedAt: number;
  /** Runtime and its version. */
  readonly runtime: string;
  /** Processes that serve, and those that should. */
  readonly workers: number;
  readonly workersWanted: number;
  readonly openExchanges: number;
  readonly openStreams: number;
  /** Exchanges that settled each second, over the last ten seconds. */
  readonly rate: number;
  /** Share of errors among the exchanges of the last minute; `null` without any. */
  readonly errorShare: number | null;
  /** Durations over the last minute, milliseconds; `null` without any exchange. */
  readonly p50: number | null;
  readonly p95: number | null;
  /** The gateway's own time. */
  readonly overhead: number | null;
  readonly memoryBytes: number;
  /** True while Redis answers it; `null` without one. */
  readonly isRedisUp: boolean | null;
  /** Decisions on limits that it made without Redis. */
  readonly localDecisions: number;
}

/** A gateway that publishes, one that fell silent, and one that has ended as it should. */
export type Presence = "serving" | "lost" | "left";

/** One gateway of the fleet. */
export interface FleetGateway extends FleetFigures {
  /** Id of its process: a gateway that starts again has another one. */
  readonly id: string;
  readonly presence: Presence;
  /** Time since it was last heard of. Milliseconds. */
  readonly silentMs: number;
  /** True for the gateway that reports. */
  readonly isSelf: boolean;
}

/** The fleet at one moment. */
export interface FleetReport {
  /** Wall clock, milliseconds since 1970. */
  readonly now: number;
  /** True with Redis; without, there is this gateway alone. */
  readonly isShared: boolean;
  /** True while Redis does not answer: then the others are shown as they were last seen. */
  readonly isStale: boolean;
  /** The time since which it is stale, or now. Milliseconds since 1970. */
  readonly asOf: number;
  /** By name. */
  readonly gateways: readonly FleetGateway[];
}

/** The gateways that a live report is about. */
export interface LiveScope {
  /** Name of the one gateway; all if left out. */
  readonly gateway?: string;
  /** Number of gateways that it is about. */
  readonly gateways: number;
  /** True if some are missing, because Redis does not answer. */
  readonly isStale: boolean;
}

/** Traffic of one gateway or all. */
export interface FleetPart extends LivePart {
  readonly scope: LiveScope;
}

/**
 * A live report about one gateway or all. Its state, version and health are those of the gateway
 * that reports.
 */
export interface FleetLiveReport extends LiveReport {
  readonly scope?: LiveScope;
}

/**
 * Version of the form in which gateways publish. A later version adds fields, and keeps these as
 * they are.
 */
export const FLEET_FORM = 1;
/** Time after which a gateway that publishes nothing is lost. Milliseconds. */
export const LOST_MS = 5000;

const STATES: readonly unknown[] = ["starting", "ready", "draining", "leaving"];
const text = (value: unknown): string => typeof value === "string" ? value.slice(0, 100) : "";
/** The latest time of a `Date`. Milliseconds since 1970. */
const MAX_NUMBER = 8.64e15;
const isSound = (value: number): boolean => value >= 0 && value <= MAX_NUMBER;
const some = (value: unknown): number | null =>
  typeof value === "number" && isSound(value) ? value : null;
const count = (value: unknown): number => some(value) ?? 0;

/** The form of ids: that of the processes of gateways. */
const ID = /^[0-9a-f-]{1,40}$/;

/**
 * Returns a name that can stand in metrics, in queries and on the console, as `instance` of the
 * configuration does: the host of a machine may have another one.
 *
 * @param id Id of the gateway, for a name of which nothing is left, and for that of all gateways
 */
export function toGatewayName(name: string, id: string): string {
  const safe = name.slice(0, 100).replace(/[^\w.:@-]/g, "_");
  return safe === "" || safe === "all" ? `gateway-${id}` : safe;
}

/** A gateway's own record, as it was found. */
export interface FleetRecord {
  readonly id: string;
  /** Time since it was written, by the clock of Redis. Milliseconds. */
  readonly silentMs: number;
  /** JSON. */
  readonly text: string;
}

/** Writes the record of a gateway; `hasLeft` for its last one. */
export function writeRecord(figures: FleetFigures, hasLeft = false): string {
  return JSON.stringify({ v: FLEET_FORM, ...figures, ...(hasLeft && { hasLeft }) });
}

/**
 * Reads the record of a gateway, which may be of another version: unknown fields are ignored,
 * missing ones are empty.
 *
 * @returns The gateway; `undefined` for what is no record
 */
export function readRecord({ id, silentMs, text: json }: FleetRecord): FleetGateway | undefined {
  if (!ID.test(id)) return undefined;
  let found: { readonly [Name in keyof FleetFigures | "hasLeft"]?: unknown };
  try {
    found = JSON.parse(json);
    if (typeof found.name !== "string") return undefined;
  } catch {
    return undefined;
  }
  const presence = silentMs > LOST_MS ? "lost" : "serving";
  return {
    id,
    presence: found.hasLeft === true ? "left" : presence,
    silentMs,
    isSelf: false,
    name: toGatewayName(found.name, id),
    state: STATES.includes(found.state) ? found.state as FleetFigures["state"] : "starting",
    version: text(found.version),
    digest: text(found.digest),
    startedAt: count(found.startedAt),
    runtime: text(found.runtime),
    workers: count(found.workers),
    workersWanted: count(found.workersWanted),
    openExchanges: count(found.openExchanges),
    openStreams: count(found.openStreams),
    rate: count(found.rate),
    errorShare: some(found.errorShare),
    p50: some(found.p50),
    p95: some(found.p95),
    overhead: some(found.overhead),
    memoryBytes: count(found.memoryBytes),
    isRedisUp: typeof found.isRedisUp === "boolean" ? found.isRedisUp : null,
    localDecisions: count(found.localDecisions),
  };
}

/**
 * Sorts gateways by name, and drops those that are gone and that another one of their name has
 * taken over from.
 */
export function arrange(gateways: readonly FleetGateway[]): FleetGateway[] {
  const isReplaced = (gone: FleetGateway) =>
    gone.presence !== "serving" &&
    gateways.some(({ id, name, startedAt }) =>
      name === gone.name && id !== gone.id && startedAt > gone.startedAt
    );
  const byName = (one: FleetGateway, other: FleetGateway) => {
    if (one.name === other.name) return one.startedAt - other.startedAt;
    return one.name < other.name ? -1 : 1;
  };
  return gateways.filter((gateway) => !isReplaced(gateway)).sort(byName);
}
