/**
 * Report of all gateways that share a Redis, as each of them describes itself.
 *
 * @module
 */
import type { LivePart, LiveReport } from "../live/live_report.ts";

/** Data of one gateway. */
export interface FleetFigures {
  /** `instance` of its configuration, or its host and port. */
  readonly name: string;
  readonly state: LiveReport["state"];
  readonly version: string;
  /** Digest of its configuration. Gateways with equal configurations have equal digests. */
  readonly digest: string;
  /** The start of its process. Milliseconds since 1970. */
  readonly startedAt: number;
  /** Runtime and its version. */
  readonly runtime: string;
  /** Number of serving processes; next to it, the configured number. */
  readonly workers: number;
  readonly workersWanted: number;
  readonly openExchanges: number;
  readonly openStreams: number;
  /** Settled exchanges per second, over the last ten seconds. */
  readonly rate: number;
  /** Share of errors among the exchanges of the last minute; `null` without exchanges. */
  readonly errorShare: number | null;
  /** Durations over the last minute, milliseconds; `null` without exchanges. */
  readonly p50: number | null;
  readonly p95: number | null;
  /** The gateway's own time. */
  readonly overhead: number | null;
  readonly memoryBytes: number;
  /** True while it can reach Redis; `null` without Redis. */
  readonly isRedisUp: boolean | null;
  /** Number of limit decisions made without Redis. */
  readonly localDecisions: number;
}

/** `serving` publishes, `lost` stopped publishing, `left` has shut down properly. */
export type Presence = "serving" | "lost" | "left";

/** One gateway of the fleet. */
export interface FleetGateway extends FleetFigures {
  /** Id of its process. A restarted gateway has another id. */
  readonly id: string;
  readonly presence: Presence;
  /** Time since its last record. Milliseconds. */
  readonly silentMs: number;
  /** True for the gateway that makes the report. */
  readonly isSelf: boolean;
}

/** The fleet at one moment. */
export interface FleetReport {
  /** Wall clock, milliseconds since 1970. */
  readonly now: number;
  /** True with Redis. Without Redis, the fleet is this gateway alone. */
  readonly isShared: boolean;
  /**
   * True while Redis does not answer. The other gateways are then shown in their last known state.
   */
  readonly isStale: boolean;
  /** Time since when it is stale, or now. Milliseconds since 1970. */
  readonly asOf: number;
  /** Sorted by name. */
  readonly gateways: readonly FleetGateway[];
}

/** The gateways that a live report covers. */
export interface LiveScope {
  /** Name of the gateway, if it is only one. */
  readonly gateway?: string;
  /** Number of gateways that it covers. */
  readonly gateways: number;
  /** True if some are missing, because Redis does not answer. */
  readonly isStale: boolean;
}

/** Traffic of one gateway or of all gateways. */
export interface FleetPart extends LivePart {
  readonly scope: LiveScope;
}

/**
 * A live report about one gateway or all. State, version and health are the reporting gateway's
 * own.
 */
export interface FleetLiveReport extends LiveReport {
  readonly scope?: LiveScope;
}

/** Version of the published form. Later versions add fields and do not change these. */
export const FLEET_FORM = 1;
/** Time without a record after which a gateway is lost. Milliseconds. */
export const LOST_MS = 5000;

const STATES: readonly unknown[] = ["starting", "ready", "draining", "leaving"];
const text = (value: unknown): string => typeof value === "string" ? value.slice(0, 100) : "";
/** The latest time of a `Date`. Milliseconds since 1970. */
const MAX_NUMBER = 8.64e15;
const isSound = (value: number): boolean => value >= 0 && value <= MAX_NUMBER;
const some = (value: unknown): number | null =>
  typeof value === "number" && isSound(value) ? value : null;
const count = (value: unknown): number => some(value) ?? 0;

/** The form of the ids of gateway processes. */
const ID = /^[0-9a-f-]{1,40}$/;

/**
 * Returns a name that is valid in metrics, in queries and on the console, as `instance` of the
 * configuration is. A machine's host name can have other characters.
 *
 * @param id Id of the gateway. Replaces a name that has no valid character, or that is `all`
 */
export function toGatewayName(name: string, id: string): string {
  const safe = name.slice(0, 100).replace(/[^\w.:@-]/g, "_");
  return safe === "" || safe === "all" ? `gateway-${id}` : safe;
}

/** A gateway's own record, as read from Redis. */
export interface FleetRecord {
  readonly id: string;
  /** Age of the record by the clock of Redis. Milliseconds. */
  readonly silentMs: number;
  /** JSON. */
  readonly text: string;
}

/** Writes the record of a gateway. `hasLeft` is true for its last record. */
export function writeRecord(figures: FleetFigures, hasLeft = false): string {
  return JSON.stringify({ v: FLEET_FORM, ...figures, ...(hasLeft && { hasLeft }) });
}

/**
 * Reads the record of a gateway, possibly of another version. Unknown fields are ignored, missing
 * ones are empty.
 *
 * @returns The gateway; `undefined` for an invalid record
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
 * Sorts gateways by name. Drops each gone gateway that a newer one of the same name has replaced.
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
