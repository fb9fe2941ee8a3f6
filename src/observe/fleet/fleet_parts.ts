/**
 * Traffic that gateways publish while the fleet is watched, and its merge. Gateways can have
 * different configurations and versions.
 *
 * @module
 */
import {
  type LiveExchange,
  type LivePart,
  type LiveSecond,
  mergeParts,
} from "../live/live_report.ts";
import { compact } from "./fleet_figures.ts";
import { FLEET_FORM } from "./fleet_report.ts";
import { count, isObject, list, readPart, type Unknown } from "./foreign_part.ts";

/** Number of seconds that a gateway publishes each second, so that a late reader misses none. */
export const PUBLISHED_SECONDS = 8;
/** Limit of the published exchanges of one second. */
const SECOND_EXCHANGES = 100;
/** Limit of the exchanges in the history that is published for a new watcher. */
const HISTORY_EXCHANGES = 300;

/** Traffic of one second. */
interface PublishedSecond {
  readonly at: number;
  readonly seconds: readonly LiveSecond[];
  readonly exchanges: readonly LiveExchange[];
}

/** The last seconds of a gateway, as it publishes them. */
export class PublishedParts {
  #seconds: PublishedSecond[] = [];
  #last: LivePart | undefined;

  /** Adds the traffic of the seconds up to, but not including, `to`. Seconds since 1970. */
  add(part: LivePart, to: number): void {
    const { seconds, exchanges } = part;
    this.#last = part;
    this.#seconds.push({ at: to - 1, seconds, exchanges: exchanges.slice(-SECOND_EXCHANGES) });
    this.#seconds = this.#seconds.filter(({ at }) => at >= to - PUBLISHED_SECONDS);
  }

  /**
   * Adds the exchanges of seconds that were added without exchanges, before there was a watcher.
   */
  fill({ exchanges }: LivePart): void {
    const last = this.#seconds.at(-1)?.at ?? 0;
    this.#seconds = this.#seconds.map((second) => ({
      ...second,
      exchanges: exchanges.filter((exchange) => Math.min(endOf(exchange), last) === second.at)
        .slice(-SECOND_EXCHANGES),
    }));
  }

  toJson(): unknown {
    const { openExchanges = 0, openStreams = 0, providers = [] } = this.#last ?? {};
    return { v: FLEET_FORM, openExchanges, openStreams, providers, parts: this.#seconds };
  }
}

/** Returns the second in which an exchange ended. */
const endOf = ({ settledAt }: LiveExchange): number => Math.floor(settledAt / 1000);

/**
 * Prepares the traffic of the last five minutes for publication.
 *
 * @param asked Number of the question that it answers
 */
export function toHistory(part: LivePart, asked: number): unknown {
  const seconds = part.seconds.map(compactSecond);
  return {
    v: FLEET_FORM,
    asked,
    part: { ...part, seconds, exchanges: part.exchanges.slice(-HISTORY_EXCHANGES) },
  };
}

/**
 * Reads the traffic that a gateway has published.
 *
 * @param value From {@link PublishedParts}, of any version
 * @param from First second to read, since 1970
 * @param to The second after the last
 * @returns Its traffic; `undefined` for an invalid value
 */
export function readPublished(value: unknown, from: number, to: number): LivePart | undefined {
  if (!isObject(value)) return undefined;
  const { parts, ...rest } = value as Unknown<LivePart> & { readonly parts?: unknown };
  const isWanted = ({ at }: Unknown<PublishedSecond>) =>
    typeof at === "number" && at >= from && at < to;
  const wanted: readonly Unknown<PublishedSecond>[] = list(parts).filter(isObject).filter(isWanted);
  return readPart({
    ...rest,
    seconds: wanted.flatMap(({ seconds }) => list(seconds)),
    exchanges: wanted.flatMap(({ exchanges }) => list(exchanges)),
  });
}

/**
 * Reads the history that a gateway has published.
 *
 * @param value From {@link toHistory}, of any version
 * @param asked Number of the question. The history must answer it, or a later one
 * @returns Its traffic; `undefined` if it answers an earlier question
 */
export function readHistory(value: unknown, asked: number, to: number): LivePart | undefined {
  if (!isObject(value)) return undefined;
  const { asked: answered, part } = value as { readonly asked?: unknown; readonly part?: unknown };
  if (count(answered) < asked || !isObject(part)) return undefined;
  const read = readPart(part);
  // The gateway's next publications have the later seconds.
  return {
    ...read,
    seconds: read.seconds.filter(({ at }) => at < to),
    exchanges: read.exchanges.filter((exchange) => endOf(exchange) < to),
  };
}

const compactSecond = (second: LiveSecond): LiveSecond => ({
  ...second,
  duration: compact([second.duration]),
  firstToken: compact([second.firstToken]),
  overhead: compact([second.overhead]),
});

type Provider = LivePart["providers"][number];
type Replica = Provider["replicas"][number];

function mergeReplicas(all: readonly Replica[]): Replica[] {
  const byUrl = new Map<string, Replica>();
  for (const replica of all) {
    const before = byUrl.get(replica.url);
    byUrl.set(
      replica.url,
      before === undefined ? replica : {
        ...before,
        inService: before.inService + replica.inService,
        ejected: before.ejected + replica.ejected,
        ejectedMs: Math.max(before.ejectedMs, replica.ejectedMs),
        failures: Math.max(before.failures, replica.failures),
      },
    );
  }
  return [...byUrl.values()];
}

/** Merges providers by name and replicas by URL: gateways can have different ones. */
function mergeProviders(all: readonly Provider[]): Provider[] {
  const byName = new Map<string, Provider[]>();
  for (const provider of all) {
    const same = byName.get(provider.name);
    if (same === undefined) byName.set(provider.name, [provider]);
    else same.push(provider);
  }
  return Array.from(byName.values(), (same) => ({
    ...same[0] as Provider,
    hosts: [...new Set(same.flatMap(({ hosts }) => hosts))],
    replicas: mergeReplicas(same.flatMap(({ replicas }) => replicas)),
  }));
}

/**
 * Merges the traffic of several gateways.
 *
 * @returns Counts added up; exchanges in the order in which they ended, each with its gateway's
 * name
 */
export function mergeGateways(
  gateways: readonly (readonly [name: string, part: LivePart])[],
): LivePart {
  const parts = gateways.map(([gateway, part]) => ({
    ...part,
    providers: [],
    exchanges: part.exchanges.map((exchange) => ({ ...exchange, gateway })),
  }));
  const merged = mergeParts(parts);
  return {
    ...merged,
    seconds: merged.seconds.map(compactSecond),
    providers: mergeProviders(gateways.flatMap(([, part]) => part.providers)),
  };
}
